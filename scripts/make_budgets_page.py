"""The page on budgets: which endings spend which budget, on real controllers and in pure decisions.

The first table was observed on a real cluster (tests/cluster/recordings/budgets.json, written by ``python -m
tests.cluster.budget_trials``); the second is computed from the decisions, for every order of endings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.model.attempts import Cause
from spotwright.model.policy import Layer, Policy, Spot, resolve
from spotwright.model.pools import Capacity, Pool
from spotwright.scheduling.ladder import Ladder, PodRequirements, build
from spotwright.scheduling.next_attempt import NextAttempt, PastAttempt, next_rung

__all__ = ["RESULTS", "decided", "every_order", "page"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "cluster" / "recordings" / "budgets.json"

_KINDS = {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "argo": "Argo", "kfp": "KFP"}
_WORDS = {
    "i": "interrupted", "m": "moved", "e": "exit 1", "k": "exit 137", "o": "out of memory", "c": "no such command",
    "s": "exit 0",
}  # fmt: skip
_CAUSES = {"i": Cause.INTERRUPTED, "m": Cause.DISRUPTED, "e": Cause.FAILED, "s": Cause.SUCCEEDED}
_POOLS = {
    name: Pool(name, Capacity(capacity), provider="generic", labels={"pool": name})
    for name, capacity in (("spot", "spot"), ("system", "on-demand"))
}
_INTRODUCTION = """\
# Budgets

Interruptions never spend the budget for errors, nor errors the one for interruptions, and both are bounded, whatever the
workload's own controller counts. That controller makes every next pod. The webhook of `spotwright controller` gives the pod the
rung of its attempt or, once a budget is spent, a small image that says so and exits with 86. That is final, by a rule that was
placed on the object at its creation.

## On real controllers

Each row is a workload of these kinds on {versions}, with `spot: prefer` and the budgets of its heading. The Workflow called KFP
has the shape that KFP's backend gives to runs, with a driver and a launcher of our own. Interruptions were made like those of
Kubernetes' pod garbage collector for a missing Node. "On" are the attempts' pools: if the end of an attempt was not yet
recorded when the next pod was made, that pod got the last certain rung, and after a review of more than two seconds it kept its
object's preference for spot. One order was repeated because two reviews in a row were that late: the trial's code needs its
attempt's number. "Counted" is the kind's own controller's count at the end, "seconds" the time until the end, on a busy
machine.
"""
_BETWEEN = """
The kinds differ:

- With `errors.retries: 0` an error that cannot be an interruption ends the workload without a refusal: by a rule of the Job or
  JobSet on exit codes other than 137 and 143, and by the Workflow's expression. So an error after a notice ends it too.
- A Job makes its next pod after 10, 20, 40 seconds, whatever the policy's backoff.
- Argo recreates a vanished pod without counting it, so its count does not reflect budgets.
- KFP's launcher turns every exit code of the code into 1, so the code's own 137 ends a task without retries at once.
- Argo 3.7.3 counts a pod that garbage collection has marked as failed, but whose containers' last state is "running", as a
  success, if it looks in the milliseconds before the pod is deleted. It was seen once, when the trial was slow between both.
  The attempt is recorded as interrupted then.

## Every order

The decisions for every order of interruptions and errors with `interruptions.max: {interruptions}` and
`errors.retries: {errors}`, as for the webhook before each pod. A test runs each order through the journal and through models of
all controllers, and compares the models with the table above.

| endings | then |
| --- | --- |
"""


def page() -> str:
    """The page, from the recordings and the decisions."""
    written = json.loads(RESULTS.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {number}" for name, number in written["versions"].items())
    tables = "\n".join(_live(written["results"]))
    between = _BETWEEN.format(interruptions=2, errors=1)
    orders = "\n".join(f"| {_listed(order)} | {decided(order, 2, 1).refusal} |" for order in every_order(2, 1))
    return f"{_INTRODUCTION.format(versions=versions)}\n{tables}\n{between}{orders}\n"


def _live(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    budgets = dict.fromkeys((each["interruptions"], each["errors"]) for each in results)
    for interruptions, errors in budgets:
        yield f"### `interruptions.max: {interruptions}`, `errors.retries: {errors}`\n"
        yield "| endings | kinds | attempts | on | refused | counted | it said | seconds |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for each in results:
            if (each["interruptions"], each["errors"]) == (interruptions, errors):
                key = (each["endings"], *each["causes"], *each["pools"], _why(each), _reason(each))
                alike.setdefault(key, []).append(each)
        yield from (_row(group) for group in alike.values())
        yield ""


def _row(group: Sequence[Mapping[str, Any]]) -> str:
    first = group[0]
    kinds = ", ".join(_KINDS[each["kind"]] for each in group)
    counted = " to ".join(
        dict.fromkeys(str(each) for each in sorted(each["counted"] for each in group)[:: len(group) - 1 or 1])
    )
    seconds = sorted(round(each["seconds"]) for each in group)
    spread = " to ".join(dict.fromkeys(str(each) for each in (seconds[0], seconds[-1])))
    cells = [
        _listed(first["endings"][: len(first["causes"])]), kinds, ", ".join(first["causes"]), ", ".join(first["pools"]),
        _why(first), counted, _reason(first), spread,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _why(result: Mapping[str, Any]) -> str:
    """The text of the refusal; empty without one."""
    return str(result["refusal"]).partition("was refused: ")[2]


def _reason(result: Mapping[str, Any]) -> str:
    """The controller's message, without names of objects."""
    said = str(result["said"])
    parts = said.split(": ")
    return ": ".join(parts[:2]) if parts[0] in ("Failed", "Complete", "Completed", "Succeeded", "Error") else said


def _listed(endings: str) -> str:
    return ", ".join(_WORDS[letter] for letter in endings)


def every_order(interruptions: int, errors: int) -> Sequence[str]:
    """Every order of interruptions and errors, up to the ending that spends a budget."""
    found: list[str] = []

    def grow(order: str) -> None:
        if decided(order, interruptions, errors).refusal:
            found.append(order)
            return
        for letter in "ie":
            grow(order + letter)

    grow("")
    return found


def decided(endings: str, interruptions: int, errors: int) -> NextAttempt:
    """The decision about the attempt after these endings."""
    values = {"spot": Spot.PREFER, "interruptions.max": interruptions, "errors.retries": errors}
    policy: Policy = resolve([Layer("the budgets", {**values, "fall_back_after": interruptions})])
    ladder: Ladder = build(PodRequirements(), policy, _POOLS)
    history: list[PastAttempt] = []
    for letter in endings:
        rung = ladder.rungs[next_rung(history, policy, ladder).rung].pools
        history.append(PastAttempt(_CAUSES[letter], rung, rung[0]))
    return next_rung(history, policy, ladder)
