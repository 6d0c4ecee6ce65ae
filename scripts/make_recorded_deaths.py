"""The page of recorded deaths: the classifier's decision on every death recorded on a real cluster.

The recordings (tests/cluster/recordings) have an observer's view of the workloads of all kinds; people wrote the cause that
each must have, with its reason (tests/cluster/expected_causes.yaml). The failure matrix shows the same table in short.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spotwright.cluster.signals import LastSeen, signals_of
from spotwright.model.attempts import Cause, Ending
from spotwright.scheduling.cause import classify

__all__ = [
    "EXPECTED",
    "RECORDINGS",
    "Expected",
    "RecordedDeath",
    "RecordedMoment",
    "expected_causes",
    "page",
    "read_deaths",
    "short_table",
    "versions",
]

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "tests" / "cluster" / "recordings"
EXPECTED = ROOT / "tests" / "cluster" / "expected_causes.yaml"

_PRODUCTS = ("Kubernetes", "Argo", "JobSet", "Trainer")
_KINDS = {
    "pod": "Pod",
    "job": "Job",
    "jobset": "JobSet",
    "trainjob": "TrainJob",
    "argo": "Argo",
    "kfp": "KFP",
    "job-stock": "unplaced Job",
    "argo-stock": "unplaced Argo",
}
"""The names of the workloads on the page."""

_INTRODUCTION = """\
# Recorded deaths

Each fault hit workloads of all kinds on one spot node of a real cluster at once, seen on {versions}. `spotwright place` had
placed a bare Pod, a Job, a JobSet, a TrainJob and two Workflows (`interruptions.max: 3`, `errors.retries: 0`), but not a Job
and a Workflow. The Workflow called KFP has the templates that KFP's compiler makes, with a driver and a launcher of our own.

The API server's data on each pod, its node and its owners are in `tests/cluster/recordings`, and a test checks the classifier
against them. `make cluster-record` repeats the recordings.

A node counted as lost after 12 s without a heartbeat (50 s by default), and pods left it 3 s later (300 s by default). "After" is
the time in seconds from the fault until the API showed the end, on a busy machine. "Pods" counts all pods of the workload, about
12 s later. If Kubernetes gave a pod up before it showed its end, both moments have a row.
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """The cause that an ending must have, and the reason that a person wrote for it."""

    cause: Cause
    because: str


@dataclass(frozen=True, slots=True)
class RecordedMoment:
    """The observations of one victim at one time, ``lost`` or ``ended``; ``seconds`` is the time since the fault."""

    workload: str
    moment: str
    seconds: float | None
    seen: LastSeen

    @property
    def ending(self) -> Ending:
        """The classifier's decision."""
        return classify(signals_of(self.seen))

    def expected(self, causes: Mapping[str, Expected]) -> Expected:
        """The most specific expectation of a death for this time."""
        special = (f"{self.workload} {self.moment}", self.workload, self.moment, "all")
        return next(causes[which] for which in special if which in causes)


@dataclass(frozen=True, slots=True)
class RecordedDeath:
    """One death of the workloads of all kinds. ``pods``: how many pods each workload had in all, about 12 s later."""

    name: str
    what: str
    versions: Mapping[str, str]  # of Kubernetes and the controllers, by product
    moments: Sequence[RecordedMoment]
    pods: Mapping[str, int]


def read_deaths() -> Sequence[RecordedDeath]:
    """All recordings, in the order of the expected causes."""
    order = {name: place for place, name in enumerate(expected_causes())}
    deaths = [_death(json.loads(path.read_text(encoding="utf-8"))) for path in RECORDINGS.glob("*/*.json")]
    return sorted(deaths, key=lambda death: (order.get(death.name, len(order)), death.name))


def _death(written: Mapping[str, Any]) -> RecordedDeath:
    objects = written["objects"]
    moments = [
        RecordedMoment(ending["workload"], moment["moment"], moment["seconds"], _seen(moment, objects))
        for ending in written["endings"]
        for moment in ending["moments"]
    ]
    pods = {ending["workload"]: ending["pods"] for ending in written["endings"]}
    return RecordedDeath(written["death"], written["what"], written["versions"], moments, pods)


def _seen(moment: Mapping[str, Any], objects: Mapping[str, Any]) -> LastSeen:
    return LastSeen(
        pod=objects[moment["pod"]],
        node=objects[moment["node"]] if moment["node"] else None,
        owners=[objects[name] for name in moment["owners"]],
        pod_gone=moment["pod_gone"],
        node_gone=moment["node_gone"],
        waited=objects[moment["waited"]] if moment["waited"] else None,
    )


def expected_causes() -> Mapping[str, Mapping[str, Expected]]:
    """The expected causes by death, and for each by ``all``, a workload, a moment, or ``WORKLOAD MOMENT``."""
    written = yaml.load(EXPECTED.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {
        death: {which: Expected(Cause(each["cause"]), each["because"]) for which, each in causes.items()}
        for death, causes in written.items()
    }


def page() -> str:
    """The page: one table for each death."""
    deaths, causes = read_deaths(), expected_causes()
    return "\n".join([_INTRODUCTION.format(versions=versions(deaths)), *(_section(each, causes) for each in deaths)])


def versions(deaths: Sequence[RecordedDeath]) -> str:
    """The versions of Kubernetes and the controllers, as a list in a sentence; raises ``ValueError`` if they differ."""
    lists = {", ".join(f"{name} {death.versions[name]}" for name in _PRODUCTS) for death in deaths}
    (only,) = lists
    return only


def _section(death: RecordedDeath, causes: Mapping[str, Mapping[str, Expected]]) -> str:
    heading = f"## {_capital(death.what)}\n"
    if not death.moments:
        return f"{heading}\nNo pod, so no attempt and no cause: Jobs keep trying, the Workflows ended with an error.\n"
    reasons = dict.fromkeys(moment.expected(causes[death.name]).because for moment in death.moments)
    alike: dict[tuple[str, Cause, str, int], list[RecordedMoment]] = {}
    for moment in sorted(death.moments, key=lambda moment: moment.moment, reverse=True):  # lost before ended
        ending = moment.ending
        alike.setdefault((moment.moment, ending.cause, ending.why, death.pods[moment.workload]), []).append(moment)
    head = ["| kinds | after | cause | sentence | pods |", "| --- | --- | --- | --- | --- |"]
    rows = [
        f"| {', '.join(_KINDS[moment.workload] for moment in moments)} | {_after(moments)} | {cause} | {why} | {pods} |"
        for (_, cause, why, pods), moments in alike.items()
    ]
    return "\n".join([heading, "\n\n".join(reasons), "", *head, *rows]) + "\n"


def _after(moments: Sequence[RecordedMoment]) -> str:
    """The times of some events, as a range; empty if the work ended by itself."""
    seconds = sorted(moment.seconds for moment in moments if moment.seconds is not None)
    return "" if not seconds else " to ".join(dict.fromkeys(f"{each:g}" for each in (seconds[0], seconds[-1])))


def _capital(sentence: str) -> str:
    return sentence if sentence.startswith("kubectl") else sentence[0].upper() + sentence[1:]


def short_table(deaths: Sequence[RecordedDeath]) -> str:
    """One row for each death: the causes, with the kinds that differ."""
    rows = [f"| {death.what} | {_short(death)} |" for death in deaths]
    return "\n".join(["| death | cause |", "| --- | --- |", *rows]) + "\n"


def _short(death: RecordedDeath) -> str:
    if not death.moments:
        return "no attempt"
    of_kinds: dict[str, list[str]] = {}
    for moment in death.moments:
        of_kinds.setdefault(moment.workload, []).append(moment.ending.cause)
    said = {workload: ", then ".join(dict.fromkeys(causes)) for workload, causes in of_kinds.items()}
    most = max(said.values(), key=list(said.values()).count)
    others = [f"{cause} ({_KINDS[workload]})" for workload, cause in said.items() if cause != most]
    return "; ".join([most, *others])
