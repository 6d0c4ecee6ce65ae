"""The table of docs/explanation/grace.md, from measurements on a real cluster (tests/cluster/recordings/grace.json)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["RESULTS", "table"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "cluster" / "recordings" / "grace.json"
_SHAPES = {"argo": "Argo step", "kfp": "KFP-shaped task"}
_CODES = {"saving": "`spotwright.checkpoint`", "plain": "saves at SIGTERM"}
_HEAD = (
    "| pod | code | fault | hook | pods | notice | from notice to SIGTERM | code lived after SIGTERM "
    "| saved | pod ended | work lost |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def table() -> str:
    """The table with the sentence before it."""
    return "\n".join(_table(json.loads(RESULTS.read_text(encoding="utf-8"))))


def _table(results: Mapping[str, Any]) -> Iterator[str]:
    trials = results["trials"]
    loads = [trial["load"] for trial in trials]
    versions = ", ".join(f"{product} {version}" for product, version in results["versions"].items())
    yield f"Seen on {versions}, on two cores under a load of {min(loads):.0f} to {max(loads):.0f}, which makes all times"
    yield "longer. Seconds, the median of the pods of a row with the smallest and the largest; *notice*, *saved* and *pod ended*"
    yield "from the fault on:"
    yield ""
    yield _HEAD
    rows: dict[tuple[str, str, str, bool], list[Mapping[str, Any]]] = {}
    for trial in trials:
        for one in trial["moments"]:
            rows.setdefault((one["shape"], one["code"], trial["fault"], one["with_hook"]), []).append(one)
    for (shape, code, fault, hook), moments in sorted(rows.items(), key=lambda row: (row[0][:3], not row[0][3])):
        derived = [{**one, **_between(one)} for one in moments]
        cells = [_range(derived, name) for name in ("noticed", "warned", "after", "saved", "ended", "lost")]
        words = [_SHAPES[shape], _CODES[code], fault, "yes" if hook else "no", str(len(moments)), *cells]
        yield f"| {' | '.join(words)} |"


def _between(one: Mapping[str, Any]) -> Mapping[str, float | None]:
    """The seconds between two moments of a pod: from the notice to SIGTERM, and from SIGTERM to the last sign of life.

    Signs of life come ten times a second, so code that ends at once gives 0.
    """
    noticed, sigterm, lived = one["noticed"], one["sigterm"], one["lived"]
    warned = None if noticed is None or sigterm is None else sigterm - noticed
    return {"warned": warned, "after": None if sigterm is None else max(0.0, lived - sigterm)}


def _range(moments: Sequence[Mapping[str, Any]], name: str) -> str:
    """The median with the smallest and the largest value, and the number of pods that had one."""
    values = sorted(one[name] for one in moments if one[name] is not None)
    if not values:
        return "" if name != "saved" else f"0 of {len(moments)}"
    text = f"{median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})" if len(values) > 1 else f"{values[0]:.1f}"
    return text if len(values) == len(moments) else f"{text}, {len(values)} of {len(moments)}"
