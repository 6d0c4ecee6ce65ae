"""The failure matrix (what follows each cause, and its signs) and its evidence (the cases).

Both pages are computed from the recorded endings (tests/scheduling/endings.yaml), the classifier and the budgets, so they match
the code. Signals that local runs and simulations do not report are marked, from the fields of ``Signals`` that these fill.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import MAX_MOVES, BudgetUse, FollowUp, LadderPosition, after_attempt
from spotwright.scheduling.cause import ROWS, Row, classify
from spotwright.scheduling.ladder import Ladder, Rung

__all__ = ["ENDINGS", "Recorded", "evidence_page", "page", "read", "reported", "sign"]

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = ROOT / "tests" / "scheduling" / "endings.yaml"
BODIES = ("local", "simulation", "engine")

_INTRODUCTION = """\
# Failure matrix

Each attempt ends with one *cause*, which decides the spent budget and the next step. All signals count: exit code, outputs,
notice, the pod's reason and conditions, the node's conditions, taints and events. The exit code alone is not enough: 137 and
143 only mean that a signal was sent.

Every case is a test: [the evidence](failure-evidence.md).

## What comes next

For a task with `interruptions: {max: 10}`, `errors: {retries: 1}` and a ladder of two pools, `spot` and `on-demand`:

| cause | meaning | first time | when the budget is spent |
| --- | --- | --- | --- |
"""

_ORDER = """
*Unschedulable*: no rung had a node within `pending_timeout`, and the task fails without an attempt. Rungs, waits, deadlines:
[What happens after an attempt](explanation/decisions.md).

## Exit code 86

A pod with exit code 86 is a refusal, not an attempt: its task's budget was spent, so the controller replaced its image by a
small one. Its termination message lists the endings that spent the budget. A rule on the workload makes 86 final, so it is not
retried.

## How the cause is decided

The first matching line decides:

{rules}

## Signs

"Run": local and simulated runs report it. Kubernetes reports the others.
"""

_SEEN = """
## Seen on a real cluster

{versions}; Pod, Job, JobSet, TrainJob, Argo and KFP-shaped Workflows, on a spot node.
Tests check these causes: [recorded deaths](recorded-deaths.md).

"""

_EVIDENCE_INTRODUCTION = """\
# Evidence of the failure matrix

The recorded endings behind the [failure matrix](failure-matrix.md), by cause and by sign. Each row is a test: these signals
have this cause. Each comes from a public thread; a *variant* changes one of its signals, or reproduces its end on one machine.
"""

_MEANING: Mapping[Cause, str] = {
    Cause.SUCCEEDED: "The work is done.",
    Cause.INTERRUPTED: "The provider reclaimed the node.",
    Cause.LOST: "The node or the engine is gone without a trace.",
    Cause.DISRUPTED: "Kubernetes or Spotwright moved it.",
    Cause.FAILED: "The user's code failed.",
    Cause.OUT_OF_MEMORY: "It exceeded its memory.",
    Cause.TIMED_OUT: "Its own time limit passed.",
    Cause.START_UP: "It never ran: image, environment, volume.",
    Cause.CANCELLED: "The user stopped it.",
}

_SIGNS: Sequence[tuple[str, str]] = (
    (r".*, with work left(; .*)?", "it exited with 0 with work left"),
    (
        r"it (ended|was ended by \w+|exited with \d+) after the notice for its node",
        "it ended after the notice for its node",
    ),
    (
        r"it (ended|was ended by \w+|exited with \d+) after the provider .*",
        "the provider announced that it is reclaiming the node",
    ),
    (r"it was ended by \w+, and nothing .*", "a signal ended it, and nothing says that its node was to go"),
    (r"its node did not admit it \(.*\)", "its node did not admit it"),
    (r"its node( \(not spot\))? restarted: .*", "its node restarted"),
    (r"its container runtime lost it .*", "no signal shows how it ended"),
    (r"it exited with 0 without its outputs?.*", "it exited with 0 without its outputs"),
    (r"it exited with [1-9]\d*", "it exited with a code other than 0"),
    (r"it exited with \d+ after the kernel killed for memory", "the kernel killed a process of it for memory"),
    (r"its container \w+ ran out of memory", "a container ran out of memory"),
    (r"its container \w+ could not be started", "a container could not be started"),
    (r"its container \w+ stayed in \w+", "a container never got past pulling or creating"),
    (r"no such package", "its environment could not be built"),
    (r"it was moved: \w+", "it was moved: drained, consolidated"),
)
"""Sentences of the classifier that differ in a detail, and what they have in common."""


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


@functools.cache
def read(path: Path = ENDINGS) -> tuple[Recorded, ...]:
    """Read the recorded endings; a case with an unknown field raises ``TypeError``."""
    return tuple(_recorded(**case) for case in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def _recorded(*, signals: Mapping[str, Any], cause: str, **rest: Any) -> Recorded:
    return Recorded(signals=_signals(signals), cause=Cause(cause), shown=signals, **rest)


def _signals(values: Mapping[str, Any]) -> Signals:
    shapes: Mapping[str, Any] = {
        "conditions": StatusCondition,
        "node_conditions": StatusCondition,
        "node_events": StatusCondition,
        "containers": ContainerEnd,
    }
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name in shapes:
            made[name] = tuple(shapes[name](**item) for item in value)
        else:
            made[name] = tuple(value) if isinstance(value, list) else value
    return Signals(**made)


def page() -> str:
    """The matrix as Markdown: what follows each cause, and its signs."""
    rows = "".join(
        f"| {_link(cause)} | {meaning} | {_first(cause)} | {_spent(cause)} |\n" for cause, meaning in _MEANING.items()
    )
    signs = ["", "| cause | sign | cases | today |", "| --- | --- | --- | --- |"]
    for cause, name, cases in _grouped(read()):
        today = "run" if any(_happens(case.signals) for case in cases) else ""
        signs.append(f"| {cause} | {name} | [{len(cases)}](failure-evidence.md#{_anchor(cause, name)}) | {today} |")
    order = _ORDER.format(rules="\n".join(_numbered(row) for row in ROWS))
    return _INTRODUCTION + rows + order + "\n".join(signs) + "\n" + _seen_on_a_cluster()


def _numbered(row: Row) -> str:
    return textwrap.fill(f"{row.number}. {row.text}", 121, subsequent_indent="   ")


def _seen_on_a_cluster() -> str:
    """The deaths recorded on a real cluster, in short."""
    from scripts.make_recorded_deaths import read_deaths, short_table, versions

    deaths = read_deaths()
    return _SEEN.format(versions=versions(deaths)) + short_table(deaths)


def evidence_page() -> str:
    """The cases as Markdown, one table for each sign."""
    parts = [_EVIDENCE_INTRODUCTION]
    before = None
    for cause, name, cases in _grouped(read()):
        if cause is not before:
            parts.append(f"## {str(cause).capitalize()}\n\n{_MEANING[cause]}\n")
            before = cause
        head = "| seen | signals | where |\n| --- | --- | --- |"
        parts.append("\n".join([f"### {_heading(cause, name)}\n", head, *map(_row, cases)]) + "\n")
    return "\n".join(parts)


def _grouped(endings: Sequence[Recorded]) -> Iterator[tuple[Cause, str, list[Recorded]]]:
    """The endings by cause, in the order of the page, and by sign."""
    for cause in _MEANING:
        groups: dict[str, list[Recorded]] = {}
        for each in endings:
            ending = classify(each.signals)
            if ending.cause is cause:
                groups.setdefault(sign(ending.why), []).append(each)
        for name, cases in groups.items():
            yield cause, name, cases


def sign(why: str) -> str:
    """A sentence of the classifier, without the details in which cases of one kind differ."""
    return next((name for pattern, name in _SIGNS if re.fullmatch(pattern, why)), why)


def _heading(cause: Cause, name: str) -> str:
    return f"{str(cause).capitalize()}: {name}"


def _anchor(cause: Cause, name: str) -> str:
    return re.sub(r"[^\w\- ]", "", _heading(cause, name).lower()).replace(" ", "-")


def _link(cause: Cause) -> str:
    return f"[{cause}](failure-evidence.md#{str(cause).replace(' ', '-')})"


def _row(recorded: Recorded) -> str:
    repository, _, number = recorded.issue.partition("#")
    link = f"[{recorded.issue}](https://github.com/{repository}/issues/{number})"
    where = f"{recorded.where}: {link}" + (" (variant)" if recorded.variant else "")
    cells = (recorded.seen, f"`{_shown(recorded.shown)}`", where)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return f"[{'; '.join(_shown(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


_POLICY = Policy(max_interruptions=10, retries=1, fall_back_after=10)
_LADDER = Ladder((Rung(("spot",), spot=True), Rung(("on-demand",), spot=False)))
_PLACE = LadderPosition(0, pool="spot")
_FULL = BudgetUse(_POLICY.max_interruptions, _POLICY.retries, MAX_MOVES)


def _first(cause: Cause) -> str:
    """What follows the first end of this cause, in the words of the decision."""
    following = after_attempt(cause, BudgetUse(), _PLACE, _POLICY, _LADDER)
    if following.then is FollowUp.RETRY:
        return following.why + (f", after {following.wait:g} s" if following.wait else ", at once")
    return f"the task has {'succeeded' if following.then is FollowUp.SUCCEED else 'been cancelled'}"


def _spent(cause: Cause) -> str:
    """What follows once the budget of this cause is spent."""
    following = after_attempt(cause, _FULL, _PLACE, _POLICY, _LADDER)
    return f"the task fails: {following.why}" if following.then is FollowUp.FAIL else ""


def _happens(signals: Signals) -> bool:
    """Whether a current run can report these signals."""
    default = Signals()
    return {name for name, value in signals._asdict().items() if value != getattr(default, name)} <= reported()


@functools.cache
def reported() -> frozenset[str]:
    """The fields of ``Signals`` that a backend fills, by name, in ``Signals(...)`` or ``signals._replace(...)``."""
    found = set[str]()
    for body in BODIES:
        for path in (ROOT / "src" / "spotwright" / body).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _makes_signals(node):
                    found |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return frozenset(found)


def _makes_signals(call: ast.Call) -> bool:
    changed, _, function = ast.unparse(call.func).rpartition(".")
    return function == "Signals" or (function == "_replace" and changed.rpartition(".")[2] == "signals")
