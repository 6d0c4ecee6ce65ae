"""Pods that a webhook has admitted: what it noted of them, from the annotations with which it marked them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION, Admission
from spotwright.cluster.attempt_numbers import Ledger, Slot, ledger_of
from spotwright.records.state_folder import StateFolder

PINNED = "tests/pinned"
"""The annotation of a pod with the conditions that its review has added, for each required term."""


def admission_of(pod: Mapping[str, Any], _root: str = "") -> Admission | None:
    """What a review decided that has left these annotations; None for a pod without them."""
    marks = pod["metadata"].get("annotations") or {}
    found = {
        name: marks[key]
        for name in ("rung", "open", "refused", "attempt")
        if (key := f"spotwright.dev/{name}") in marks
    }
    if not found:
        return None
    pools = tuple(filter(None, found.get("rung", "").split(",")))
    why = marks.get("spotwright.dev/why", "first attempt")
    pinned = tuple(map(tuple, json.loads(marks.get(PINNED, "[]"))))
    return Admission(pools, "open" in found, found.get("refused") == "true", why, int(found.get("attempt", 1)), pinned)


def note_admission(folder: Path, pod: dict[str, Any]) -> None:
    """Write what a review decided of a pod into the ledger of a state folder, and mark the pod with the review's token."""
    decided, meta = admission_of(pod), pod["metadata"]
    owner = next((one["uid"] for one in meta.get("ownerReferences") or ()), "")
    if decided is None:
        return
    ledger = Ledger(ledger_of(StateFolder.open(folder)), time.time)
    token = f"review-of-{meta['uid']}"
    ledger.number(token, meta["namespace"], owner, [Slot(meta["name"])])
    ledger.keep(token, decided)
    ledger.close()
    meta["annotations"] = {**meta["annotations"], ADMISSION_ANNOTATION: token}
