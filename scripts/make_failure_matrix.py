"""Make docs/failure-matrix.md: what was seen of an attempt, its cause, the budget it spends and what happens next.

The page is computed from the recorded endings (tests/scheduling/endings.yaml) and the classifier itself, so that it cannot
promise what the code does not do. Without arguments it writes the page; a test fails while the page is behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spotwright.model.attempts import Cause, Condition, ContainerEnd, Signals
from spotwright.scheduling.budgets import MAX_MOVES
from spotwright.scheduling.cause import classify

__all__ = ["ENDINGS", "PAGE", "Recorded", "page", "read"]

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = ROOT / "tests" / "scheduling" / "endings.yaml"
PAGE = ROOT / "docs" / "failure-matrix.md"

_INTRODUCTION = """\
# Failure matrix

Why did an attempt end, whose budget does it cost, and what comes next? Spotwright decides it from every signal at hand: exit
code and signal, outputs, notice, the pod's reason and conditions, the node's conditions, taints and events. Never from one
string, and never from the exit code alone: 137 and 143 only say that somebody sent a signal.

The first line that fits decides:

1. cancelled;
2. exit 0 with every declared output: succeeded, also while a notice was running;
3. the provider announced that it takes the node (a notice, a condition, a taint, an event): interrupted;
4. it is on record that our side or Kubernetes ended it (moved, scaled down, consolidated, preempted by a higher priority,
   evicted by a node that ran short): disrupted. Over the pod's own storage limit: failed;
5. the node is gone, or was shut down under it: interrupted. A shutdown of a node that is no spot node: disrupted;
6. nothing is heard of the node: lost;
7. Kubernetes marked it for disruption, or its node did not admit it: disrupted;
8. nothing is heard of the attempt itself: lost, or disrupted where its node is seen to live on;
9. out of memory, start-up, timed out, in this order;
10. nobody recorded an end: lost. All that is left: failed.

Every row below is a test. It stands for a public thread, linked in the second column; a *variant* changes one signal of its
thread, or plays its end on one machine. This page is made by `scripts/make_failure_matrix.py`.
"""

_MEANING: Mapping[Cause, str] = {
    Cause.SUCCEEDED: "The work is done.",
    Cause.INTERRUPTED: "The provider took the node.",
    Cause.LOST: "Nothing is heard of it any more: its node or the engine went.",
    Cause.DISRUPTED: "Kubernetes or we moved it.",
    Cause.FAILED: "The user's code.",
    Cause.OUT_OF_MEMORY: "It used more memory than it was given.",
    Cause.TIMED_OUT: "Its own time limit passed.",
    Cause.START_UP: "It never ran: image, environment, volume.",
    Cause.CANCELLED: "The user stopped it.",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded ending and the cause it must have. ``shown`` is the signals as the file writes them."""

    case: str
    issue: str  # owner/repository#number
    where: str
    seen: str
    signals: Signals
    cause: Cause
    shown: Mapping[str, Any]
    variant: bool = False


def read(path: Path = ENDINGS) -> tuple[Recorded, ...]:
    """Read the recorded endings; a case with an unknown field raises ``TypeError``."""
    return tuple(_recorded(**case) for case in yaml.safe_load(path.read_text(encoding="utf-8")))


def _recorded(*, signals: Mapping[str, Any], cause: str, **rest: Any) -> Recorded:
    return Recorded(signals=_signals(signals), cause=Cause(cause), shown=signals, **rest)


def _signals(values: Mapping[str, Any]) -> Signals:
    shapes: Mapping[str, Any] = {
        "conditions": Condition,
        "node_conditions": Condition,
        "node_events": Condition,
        "containers": ContainerEnd,
    }
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name in shapes:
            made[name] = tuple(shapes[name](**item) for item in value)
        else:
            made[name] = tuple(value) if isinstance(value, list) else value
    return Signals(**made)


def page(endings: tuple[Recorded, ...]) -> str:
    """The page as Markdown: one table a cause, in the order of the design's table."""
    parts = [_INTRODUCTION]
    decided = [(ending, classify(ending.signals).cause) for ending in endings]
    for cause, meaning in _MEANING.items():
        rows = [_row(ending, cause) for ending, found in decided if found is cause]
        if rows:
            head = "| what was seen | where | cause | budget | what happens next |\n| --- | --- | --- | --- | --- |"
            parts.append("\n".join([f"## {str(cause).capitalize()}\n\n{meaning}\n", head, *rows]) + "\n")
    return "\n".join(parts)


def _row(ending: Recorded, cause: Cause) -> str:
    repository, _, number = ending.issue.partition("#")
    link = f"[{ending.issue}](https://github.com/{repository}/issues/{number})"
    where = f"{ending.where}: {link}" + (" (variant)" if ending.variant else "")
    cells = (f"{ending.seen}<br>`{_shown(ending.shown)}`", where, str(cause), _budget(cause), _next(cause))
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return f"[{'; '.join(_shown(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _budget(cause: Cause) -> str:
    if cause.is_interruption:
        return "interruptions"
    return "errors" if cause.is_error else "none"


def _next(cause: Cause) -> str:
    if cause.is_interruption:
        return "again, with a wait only on the pool it was taken from; after `interruptions.max` the task fails"
    if cause.is_error:
        return "again on the same rung after `errors.backoff`; after `errors.retries` the task fails"
    if cause is Cause.DISRUPTED:
        return f"again at once on the same rung, at most {MAX_MOVES} times"
    return "nothing"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(read()), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
