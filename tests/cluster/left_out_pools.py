"""Pauses of pools as a leader has written them for the other replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spotwright.cluster.unavailable_pools import LEFT_OUT_FILE, definition_of
from spotwright.model.pools import Pool
from spotwright.scheduling.budgets import Pause


def leave_out(state: Path, namespace: str, pauses: Mapping[str, Pause], pools: Mapping[str, Pool]) -> None:
    """Write what a namespace has found into a state folder, beside what is there."""
    path = state / LEFT_OUT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_bytes())["found"] if path.exists() else []
    rows += [
        {
            "key": definition_of(pools[name]),
            "namespace": namespace,
            "pool": name,
            "said": False,
            **pause._asdict(),
        }
        for name, pause in pauses.items()
    ]
    path.write_text(json.dumps({"found": rows}), encoding="utf-8")
