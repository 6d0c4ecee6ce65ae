"""Two teams work through three power cuts and an upgrade of the chart: all of it ends as its policy says, recorded once."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from testbed.faults import Faults
from tests.cluster.chart.rendered import PROCESSES
from tests.cluster.conftest import Measured
from tests.cluster.live.chart.releases import SOON
from tests.cluster.live.chart.spotwright_command import spotwright
from tests.cluster.live.chart.teams_release import TeamsRelease
from tests.cluster.live.chart.two_teams import (
    PRICES,
    Seen,
    Work,
    create,
    outcome,
    watched,
    work_of,
)
from tests.cluster.live.kube import Kube, Object
from tests.cluster.live.recorded import runs_of

from spotwright.engine.state import AttemptState, RunState
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

SPOT_NODE = 2
ENDED = 420.0  # seconds, on a busy machine
ROUNDED = 1.5  # seconds: Kubernetes tells whole ones
NOTICED = 90.0  # seconds until Kubernetes gives up the pods of a node
REFUSED = "spotwright.dev/refused"
KINDS = ("spotruns", "spottasks", "spotattempts", "spotpools", "spotcounters")


class Show:
    """The whole scenario: work, faults, and the records afterwards."""

    def __init__(self, kube: Kube, faults: Faults, release: TeamsRelease, seen: dict[str, Seen]) -> None:
        self.kube, self.faults, self.release, self.seen = kube, faults, release, seen
        self.work = {team: work_of(kube, team) for team in release.teams}
        self._ended: dict[tuple[str, str], str] = {}

    def outcome(self, team: str, work: Work) -> str:
        """How a workload has ended, empty while it has not. A lost node takes Pods that have ended along, so it is remembered."""
        key = (team, work.name)
        self._ended[key] = self._ended.get(key) or outcome(self.kube, team, work)
        return self._ended[key]

    def begin(self, wave: int) -> None:
        """Create the workloads of a wave."""
        for work in self.work.values():
            create(self.kube, [each for each in work if each.wave == wave])

    def on_node(self, node: int, count: int) -> None:
        """Wait until so many pods of the teams run on a node."""

        def running() -> bool:
            pods = [pod for team in self.release.teams for pod in self.kube.list("pods", team)]
            here = [pod for pod in pods if pod["spec"].get("nodeName") == f"n{node}"]
            return sum(pod["status"].get("phase") == "Running" for pod in here) >= count

        self.kube.wait(running, f"{count} pods run on n{node}", SOON)

    def cut(self, node: int, *, for_good: bool) -> None:
        """Cut a node's power until Kubernetes has noticed it, and let it come back, as a new machine if it went for good."""
        self.faults.cut_power(node)
        self.kube.wait(lambda: self._is_given_up(node), f"Kubernetes has given up n{node}", NOTICED)
        if for_good:
            self.faults.delete(node)
            time.sleep(5)
        self.faults.restore(node)

    def _is_given_up(self, node: int) -> bool:
        found = self.kube.get("node", f"n{node}") or {}
        return any(each["key"] == "node.kubernetes.io/unreachable" for each in found["spec"].get("taints", []))

    def cut_the_leader(self) -> float:
        """Cut the node of the leading recorder, and a webhook with it. Returns seconds until the other one records."""
        before = self.release.leader()
        node = int(self.release.leading_pod()["spec"]["nodeName"].removeprefix("n"))
        assert f"n{node}" in {each["spec"]["nodeName"] for each in self.release.pods("webhook")}
        self.faults.cut_power(node)
        cut = time.monotonic()
        self.kube.wait(lambda: self.release.leader() != before, "the other replica leads", SOON)
        took = time.monotonic() - cut
        self.faults.restore(node)
        return took

    def wait_for(self, *kinds: str) -> None:
        """Wait until all workloads of these kinds have ended."""
        found = [(team, each) for team, work in self.work.items() for each in work if each.kind in kinds]
        self.kube.wait(lambda: all(self.outcome(team, each) for team, each in found), f"{kinds} end", SOON)

    def wait_until_all_is_recorded(self) -> None:
        """Wait until every workload has ended and its record says so."""
        open_now: list[str] = []

        def is_over() -> bool:
            open_now[:] = [
                f"{team}/{each.name}"
                for team, work in self.work.items()
                for each in work
                if not self.outcome(team, each)
            ]
            runs = [run for team in self.release.teams for run in self.kube.list("spotruns", team)]
            phases = Counter(run.get("status", {}).get("phase", "") for run in runs)
            return not open_now and phases.total() == sum(map(len, self.work.values())) and set(phases) <= ENDS

        try:
            self.kube.wait(is_over, "every workload has ended and is recorded", ENDED)
        except AssertionError as error:
            raise AssertionError(f"{error}: {open_now}") from error


ENDS = {"succeeded", "failed"}


def test_two_teams_work_through_lost_nodes_and_an_upgrade(
    kube: Kube, faults: Faults, teams_release: TeamsRelease, measured: Measured, tmp_path: Path
) -> None:
    release = teams_release
    for process in PROCESSES:
        assert len({each["spec"]["nodeName"] for each in release.pods(process)}) == 2
    with ExitStack() as stack:
        seen = {team: stack.enter_context(watched(kube, team, tmp_path)) for team in release.teams}
        show = Show(kube, faults, release, seen)
        play(show, measured)
        time.sleep(2)  # until the watches have told the last of it
        pods = {team: seen[team].pods() for team in release.teams}
    problems: list[str] = []
    for team in show.work:
        runs = {named.name: (named.run, run) for named, run in runs_of(kube.kubeconfig, namespace=team)}
        problems += wrong_ends(show, team, {name: run for name, (_, run) in runs.items()})
        problems += wrong_attempts(kube, team, [run for _, run in runs.values()], pods[team])
        for name, (run, state) in runs.items():
            account = spotwright(kube, "report", run, "-n", team)
            problems += [f"{team}/{name}: {each}" for each in wrong_account(account, state, pods[team])]
        listed = spotwright(kube, "runs", "-n", team)
        if sorted(each["run"] for each in listed) != sorted(run for run, _ in runs.values()):
            problems.append(f"{team}: runs lists {len(listed)} of {len(runs)} runs")
    lost = [pod for of in pods.values() for pod in of.values() if came_and_went(pod)]
    measured("pods that were deleted on the nodes of recorders", float(len(lost)))
    for kind, count in Counter(each.kind for work in show.work.values() for each in work).items():
        measured(f"workloads of two teams, {kind}", float(count))
    measured("their pods", float(sum(map(len, pods.values()))))
    problems += [line for process in PROCESSES for line in release.errors(process)]
    records = {kind: names_of(kube, kind, release.teams) for kind in KINDS[:3]}
    release.uninstall()
    kube.wait(lambda: not release.left() or None, "nothing of the release is left", 60)
    problems += [f"{kind} went" for kind, names in records.items() if names_of(kube, kind, release.teams) != names]
    problems += [f"crd {kind} went" for kind in KINDS if kube.get("crd", f"{kind}.spotwright.dev") is None]
    assert not problems, "\n".join(problems)


def play(show: Show, measured: Measured) -> None:
    """The work, the three power cuts, and the upgrade."""
    began = time.monotonic()
    show.begin(0)
    show.on_node(SPOT_NODE, 5)
    show.cut(SPOT_NODE, for_good=True)
    show.begin(1)
    show.on_node(SPOT_NODE, 3)
    took = show.cut_the_leader()
    measured("from the power cut of the leader's node until the other replica leads", took)
    show.release.run("upgrade", verbose=True)
    show.begin(2)
    show.wait_for("workflow", "pod")  # Argo 3.7.3 may wait without end for a pod whose node has restarted
    show.begin(3)
    show.on_node(SPOT_NODE, 3)
    show.cut(SPOT_NODE, for_good=False)
    show.release.wait_until_rolled_out()
    show.wait_until_all_is_recorded()
    measured("until all work of two teams was recorded", time.monotonic() - began)


def names_of(kube: Kube, kind: str, teams: tuple[str, ...]) -> set[str]:
    return {each["metadata"]["uid"] for team in teams for each in kube.list(kind, team)}


def wrong_ends(show: Show, team: str, runs: dict[str, RunState]) -> Iterator[str]:
    """Workloads that did not end as their policy says, or are recorded otherwise."""
    for each in show.work[team]:
        expected = "succeeded" if each.succeeds else "failed"
        ended, run = show.outcome(team, each), runs.get(each.name)
        if ended != expected or run is None or run.status.value != expected:
            yield f"{team}/{each.name}: expected {expected}, ended {ended}, recorded {run and run.status.value}"


def attempts_of(run: RunState) -> list[AttemptState]:
    return [attempt for task in run.tasks.values() for attempt in task.attempts]


def wrong_attempts(kube: Kube, team: str, runs: list[RunState], pods: dict[str, Object]) -> Iterator[str]:
    """Pods that are not recorded just once, and numbers with gaps or repeats, by the records and by the objects."""
    recorded = Counter(attempt.key.partition("/")[0] for run in runs for attempt in attempts_of(run))
    names = {uid: pod["metadata"]["name"] for uid, pod in pods.items()}
    work = {uid for uid, pod in pods.items() if not is_refusal(pod)}
    missing = {uid for uid in work - set(recorded) if not came_and_went(pods[uid])}
    yield from (f"{team}: pod {names[uid]} is not recorded" for uid in missing)
    yield from (f"{team}: pod {names.get(uid, uid)} is no work, and is recorded" for uid in set(recorded) - work)
    yield from (
        f"{team}: pod {names.get(uid, uid)} is recorded {count} times" for uid, count in recorded.items() if count > 1
    )
    for run in runs:
        for task in run.tasks.values():
            numbers = [attempt.number for attempt in task.attempts]
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"{team}: task {task.path} has the attempts {numbers}"
    by_task: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for found in kube.list("spotattempts", team):
        if found["spec"].get("page", 1) == 1:
            by_task[found["spec"]["run"], found["spec"]["task"]].append(found["spec"]["attempt"])
    for (run_name, task_name), each in by_task.items():
        if sorted(each) != list(range(1, len(each) + 1)):
            yield f"{team}: {run_name} {task_name} has SpotAttempts {sorted(each)}"
    if sum(map(len, by_task.values())) != recorded.total():
        yield f"{team}: {sum(map(len, by_task.values()))} SpotAttempts for {recorded.total()} attempts"


def came_and_went(pod: Object) -> bool:
    """Whether a pod was deleted on a recorder's node whose power was cut: it may have existed while none recorded."""
    return bool(pod["isGone"]) and pod["spec"].get("nodeName") != f"n{SPOT_NODE}"


def is_refusal(pod: Object) -> bool:
    return REFUSED in pod["metadata"].get("annotations", {})


def wrong_account(account: dict[str, Any], run: RunState, pods: dict[str, Object]) -> Iterator[str]:
    """Parts of an account that do not add up, or differ from the records."""
    costs = account["attempts_by_start"]
    money = math.fsum(each["seconds"] * each["share"] * PRICES[each["pool"]] / 3600 for each in costs)
    whole = account["whole"]["money"]
    if not math.isclose(money, whole, abs_tol=0.01):
        yield f"its attempts cost {money}, and the whole is {whole}"
    by_pool = math.fsum(each["whole"]["money"] for each in account["pools"])
    if not math.isclose(by_pool, whole, abs_tol=0.01):
        yield f"its pools cost {by_pool}, and the whole is {whole}"
    ran = sorted((task.path, each.number) for task in run.tasks.values() for each in task.attempts if each.bound_at)
    if sorted((each["task"], each["attempt"]) for each in costs) != ran:
        yield f"{len(costs)} attempts have a cost, and {len(ran)} had a node"
    if account["under_way"]:
        yield "something is under way"
    seconds = {(each["task"], each["attempt"]): each["seconds"] for each in costs}
    for task in run.tasks.values():
        for attempt in task.attempts:
            ran_for, life = spans_of(pods.get(attempt.key.partition("/")[0], {"status": {}}))
            counted = seconds.get((task.path, attempt.number), 0.0)
            least = (
                0.0 if attempt.cause is Cause.LOST else ran_for - ROUNDED
            )  # when a pod went that nobody saw is unknown
            if ran_for and not least <= counted <= life + ROUNDED:
                yield f"{task.path} {attempt.number} ran for {ran_for} of {life} s, and {counted} s are counted"


def spans_of(pod: Object) -> tuple[float, float]:
    """Seconds for which a pod's main container ran, and for which the pod lived until then; 0 if its node reported no end."""
    for status in pod["status"].get("containerStatuses", []):
        ended = status.get("state", {}).get("terminated", {})
        if (
            status["name"] in ("main", "node")
            and ended.get("reason") in ("Completed", "Error")
            and ended.get("startedAt")
        ):
            made, started, finished = (
                datetime.fromisoformat(text)
                for text in (pod["metadata"]["creationTimestamp"], ended["startedAt"], ended["finishedAt"])
            )
            return (finished - started).total_seconds(), (finished - made).total_seconds()
    return 0.0, 0.0
