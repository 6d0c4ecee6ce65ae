"""Drawn histories: the rung that the journal has of an attempt is the one of its pod, and the one that the journal had decided.

With and without a deadline in the policy, with pools that are left out, and with sets whose pods start again together.
"""

from __future__ import annotations

import asyncio
import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.cluster.admission_objects import a_job, admitted
from tests.cluster.admissions import PINNED
from tests.cluster.controller.findings import finding
from tests.cluster.folder_records import FolderHistories, FolderRecords
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching import watched_cluster
from tests.cluster.watching.recorded_set import API, RecordedSet
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import at, node, pod

from spotwright import config as configuration
from spotwright.clouds import node_labels
from spotwright.cluster import attempt_lookup
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.cluster.attempt_lookup import before
from spotwright.cluster.run_store import RunStore
from spotwright.config import Config
from spotwright.engine.events import TaskStatus
from spotwright.engine.state import TaskState
from spotwright.kube.pod import scheduling_of
from spotwright.records.state_folder import StateFolder

POOLS: dict[str, dict[str, Any]] = {
    "a": {"capacity": "spot", "provider": "aks", "labels": {"kubernetes.azure.com/agentpool": "a"}},
    "b": {"capacity": "spot", "provider": "aks", "labels": {"kubernetes.azure.com/agentpool": "b"}},
    "c": {"capacity": "on-demand", "provider": "aks", "labels": {"kubernetes.azure.com/agentpool": "c"}},
    "d": {"capacity": "on-demand", "provider": "aks", "labels": {"kubernetes.azure.com/agentpool": "d"}},
}
ENDINGS = ("interrupted", "moved", "failed")
SPOT = {"kubernetes.azure.com/scalesetpriority": "spot"}


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Pools of both capacities, and a policy with budgets, perhaps with a deadline."""
    spots, others = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    pools = {name: POOLS[name] for name in [*"ab"[:spots], *"cd"[:others]]}
    policy: dict[str, Any] = {
        "spot": draw(st.sampled_from(["prefer", "require"])),
        "interruptions": {"max": draw(st.integers(1, 4))},
        "errors": {"retries": draw(st.integers(0, 2))},
        "timeout": "1h",  # without it a Job counts interruptions
    }
    if draw(st.booleans()):
        policy["deadline"] = draw(st.sampled_from(["1m best-effort", "8h best-effort"]))
    elif policy["spot"] == "prefer":
        policy["fall_back_after"] = draw(st.integers(0, policy["interruptions"]["max"]))
    return configuration.from_mapping({"version": 1, "pools": pools, "policy": {"default": policy}})


class Observed(Cluster):
    """A cluster with a node of each pool."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.config = config
        super().__init__(folder)
        for name, pool in config.pools.items():
            self.view.put_node(node(f"n-{name}", **POOLS[name]["labels"], **(SPOT if pool.is_spot else {})))

    def _open(self) -> RunStore:
        return stored(self, self.config)

    def task(self, path: str) -> TaskState | None:
        """A task as its journal has it."""
        run = next(iter(self.store.runs.values()), None)
        return None if run is None else run.state.tasks.get(path)


def the_job(config: Config) -> dict[str, Any]:
    placed, _ = admitted(a_job(), config)
    placed["metadata"] |= {"uid": "job-uid", "creationTimestamp": at(0)}
    return {**placed, "status": {}}


def a_new_pod(root: dict[str, Any], number: int) -> dict[str, Any]:
    template = root["spec"]["template"]
    made = pod(f"p{number}", root, made=20.0 * number)
    made["metadata"] |= {key: dict(value) for key, value in template["metadata"].items()}
    return {**made, "apiVersion": "v1", "spec": template["spec"]}


def ended(made: dict[str, Any], how: str, pool: str, number: int) -> dict[str, Any]:
    """The pod after its end on a node of a pool."""
    code = 1 if how == "failed" else 143
    done = pod("x", made=20.0 * number, node=f"n-{pool}", phase="Failed", exit_code=code)["status"]
    reasons = {"interrupted": "DeletionByPodGC", "moved": "EvictionByEvictionAPI"}
    meta = dict(made["metadata"])
    if how in reasons:
        done["conditions"].append({"type": "DisruptionTarget", "status": "True", "reason": reasons[how]})
    if how == "moved":
        meta["deletionTimestamp"] = at(20 * number + 8)
    return {**made, "metadata": meta, "spec": {**made["spec"], "nodeName": f"n-{pool}"}, "status": done}


def rung_of(made: dict[str, Any]) -> tuple[str, ...]:
    return tuple(made["metadata"]["annotations"]["spotwright.dev/rung"].split(","))


STEPS = st.lists(
    st.tuples(st.sampled_from(ENDINGS), st.sets(st.sampled_from("abcd"), max_size=2), st.booleans()),
    min_size=1,
    max_size=7,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs(), STEPS)
def test_a_task_s_next_pod_has_the_rung_that_the_journal_decided(
    config: Config, steps: list[tuple[str, set[str], bool]]
) -> None:
    root, pods = the_job(config), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Observed(Path(folder) / "state", config)
        try:
            for number, (how, paused, is_open) in enumerate(steps, 1):
                task_before = cluster.task("train")
                new = a_new_pod(root, number)
                known = before(FolderHistories(StateFolder.open(cluster.folder)).of(root), "train", number)
                stays = "its owner would count it" if is_open else ""
                facts = AdmissionContext(known, without_capacity=paused, stays=stays)
                outcome = admit_pod(new, config, facts, "refusal:1")
                assert (outcome.verdict == "pod is refused") is (
                    task_before is not None and task_before.status is TaskStatus.FAILED
                )
                if outcome.verdict == "pod is refused":
                    return
                made = apply_patch(new, outcome.patch)
                if task_before is not None and "spotwright.dev/open" not in made["metadata"]["annotations"]:
                    decided = task_before.plan.ladder.rungs[task_before.next_rung or 0].pools
                    assert known[-1].then == decided  # the webhook reads the decision itself
                    assert rung_of(made) == decided or (
                        paused.issuperset(decided) and not paused.issuperset(rung_of(made))
                    )
                cluster.look(root, *pods, made)
                task = cluster.task("train")
                assert task is not None
                assert (len(task.attempts), tuple(task.last.pools)) == (number, rung_of(made))
                pods.append(ended(made, how, rung_of(made)[0], number))
                cluster.look(root, *pods)
        finally:
            cluster.store.close()


AUTHORS: list[dict[str, Any]] = [
    {"key": "kubernetes.azure.com/scalesetpriority", "operator": "In", "values": ["spot"]},
    {"key": "kubernetes.azure.com/agentpool", "operator": "In", "values": ["a"]},
    {"key": "kubernetes.azure.com/agentpool", "operator": "In", "values": ["c"]},
    {"key": "kubernetes.azure.com/agentpool", "operator": "NotIn", "values": ["b"]},
    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
]
"""Conditions of a step's author, of which most equal one of ours."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    configs(), st.lists(st.lists(st.sampled_from(AUTHORS), max_size=2, unique_by=str), max_size=2), st.integers(1, 4)
)
@example(
    configuration.from_mapping(
        {
            "version": 1,
            "pools": {name: POOLS[name] for name in "ac"},
            "policy": {"default": {"spot": "prefer", "interruptions": {"max": 4}, "fall_back_after": 1}},
        }
    ),
    [[AUTHORS[0]]],
    3,
)
def test_a_step_whose_author_requires_what_we_require_has_one_ladder_in_journal_and_pod(
    config: Config, terms: list[list[dict[str, Any]]], attempts: int
) -> None:
    workflow = {"kind": "Workflow", "metadata": {"name": "wf", "namespace": "team-a", "uid": "wf-uid"}, "status": {}}
    affinity = {"nodeSelectorTerms": [{"matchExpressions": some} for some in terms]}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}
    if terms:
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}
    marks = {"workflows.argoproj.io/node-name": "wf.train", "spotwright.dev/policy": '{"spot": "prefer"}'}
    pods = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Observed(Path(folder) / "state", config)
        try:
            for number in range(1, attempts + 1):
                new = pod(
                    f"p{number}",
                    workflow,
                    made=20.0 * number,
                    annotations=marks,
                    labels={"spotwright.dev/spot": "prefer"},
                )
                new |= {"apiVersion": "v1", "spec": copy.deepcopy(spec)}
                known = before(FolderHistories(StateFolder.open(cluster.folder)).of(workflow), "train", number)
                outcome = admit_pod(new, config, AdmissionContext(known), "refusal:1")
                assume(outcome.verdict == "pod is admitted")
                assert outcome.kept is not None
                made = apply_patch(new, outcome.patch)
                made["metadata"]["annotations"][PINNED] = json.dumps(outcome.kept.pinned)
                cluster.look(workflow, *pods, made)
                task = cluster.task("train")
                assert task is not None
                assert tuple(task.last.pools) == rung_of(made)
                pods.append(ended(made, "interrupted", rung_of(made)[0], number))
                cluster.look(workflow, *pods)
                task = cluster.task("train")
                assert task is not None
                if task.status is TaskStatus.FAILED:
                    return
                assert {*rung_of(made)} <= {name for rung in task.plan.ladder.rungs for name in rung.pools}
                following = task.plan.ladder.rungs[task.next_rung or 0].pools
                constraints = scheduling_of(spec)
                assert all(
                    any(
                        not constraints.refusal(labels, (), node_labels.unknown(config.pools[name]))
                        for labels in node_labels.known(config.pools[name])
                    )
                    for name in following
                ), "the journal announces a pool to which the pod never goes"
        finally:
            cluster.store.close()


MEMBERS = st.lists(
    st.tuples(st.sampled_from([3, 143, 137]), st.sampled_from([3, 143, 137]), st.booleans()), min_size=1, max_size=4
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_lookup, "_WAIT", 0.05)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(MEMBERS, st.integers(1, 3), st.booleans())
def test_all_pods_of_a_restart_have_one_rung_and_the_journal_has_it(
    quick: None, restarts: list[tuple[int, int, bool]], fall_back_after: int, has_deadline: bool
) -> None:
    policy: dict[str, Any] = {"spot": "prefer", "interruptions": {"max": 9}, "errors": {"retries": 9}}
    policy |= {"deadline": "8h"} if has_deadline else {"fall_back_after": fall_back_after}
    config = configuration.from_mapping(
        {"version": 1, "pools": watched_cluster.CONFIG["pools"], "policy": {"default": policy}}
    )
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder) / "state")
        cluster.store.close()
        cluster.store = stored(cluster, config)
        try:
            asyncio.run(restarted(RecordedSet(cluster), config, restarts))
        finally:
            cluster.store.close()


def stored(cluster: Cluster, config: Config) -> RunStore:
    return RunStore(FolderRecords(StateFolder.open(cluster.folder)), config)


async def restarted(gang: RecordedSet, config: Config, restarts: list[tuple[int, int, bool]]) -> None:
    """Let the workers of each restart be reviewed, run and end, the second one first where that was drawn."""
    annotations = {"spotwright.dev/policy": '{"spot": "prefer"}'}
    async with finding(gang.cluster, gang.job("workers")) as (finder, server):
        server.put(f"/apis/{API}/namespaces/team-a/jobsets", gang.uid, gang.uid, **gang.object)
        for restart, (one, other, is_turned) in enumerate(restarts):
            rungs = set()
            for index in (1, 0) if is_turned else (0, 1):
                new = {**gang.pod("workers", restart, index), "apiVersion": "v1"}
                new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
                new["metadata"]["annotations"] = {**new["metadata"]["annotations"], **annotations}
                del new["metadata"]["annotations"]["spotwright.dev/rung"]
                facts = await finder.find(AdmissionRequest(f"review-{restart}-{index}", "CREATE", "team-a", new))
                outcome = admit_pod(new, config, facts, "refusal:1")
                assert outcome.verdict == "pod is admitted"
                rungs.add(rung_of(apply_patch(new, outcome.patch)))
            [rung] = rungs
            decided = {
                task.plan.ladder.rungs[task.next_rung or 0].pools
                for path, task in (gang.run.state.tasks.items() if restart else ())
                if path.startswith("workers-")
            }
            assert len(rung) > 1 or not decided or {rung} == decided
            for index in range(2):
                gang.begin("workers", restart, index, rung=rung[0])
                assert gang.run.state.tasks[f"workers-{index}"].last.pools == rung[:1]
            for index, code in ((0, one), (1, other)):
                if code == 137:
                    interrupted(gang, restart, index, rung[0])
                else:
                    gang.end("workers", restart, index, exit_code=code, rung=rung[0])


def interrupted(gang: RecordedSet, restart: int, index: int, rung: str) -> None:
    """Let the node of a worker be lost."""
    made = gang.pod(
        "workers", restart, index, rung=rung, node={"gpu": "n3", "gpu-spot": "n1"}[rung], phase="Failed", exit_code=137
    )
    made["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"})
    gang.look("workers", made)
