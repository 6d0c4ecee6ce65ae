"""The watcher and the webhook have one ladder: pools that were only found on nodes are rungs of neither."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.cluster.admission_objects import a_job, admitted
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_objects import at, node

from spotwright import config as configuration
from spotwright.cluster.admit_pods import _policy_and_ladder
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.view import strange_pools
from spotwright.cluster.workloads import templates_of
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.ladder import Ladder

NAMES = ("a-spot", "b-spot", "c-od", "d-od", "e-gpu")
PROVIDERS = ("aks", "eks", "gke", "oke", "karpenter", "generic")
FOREIGN: tuple[dict[str, str], ...] = (
    {"kubernetes.azure.com/agentpool": "system", "kubernetes.azure.com/mode": "system"},
    {"kubernetes.azure.com/agentpool": "other", "kubernetes.azure.com/scalesetpriority": "spot"},
    {"cloud.google.com/gke-nodepool": "default-pool"},
    {"karpenter.sh/nodepool": "theirs", "karpenter.sh/capacity-type": "spot"},
    {"eks.amazonaws.com/nodegroup": "ops", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
    {},
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Pools of one provider or of several, and a policy about spot."""
    pools: dict[str, dict[str, Any]] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)):
        capacity = "spot" if "spot" in name or (name == "e-gpu" and draw(st.booleans())) else "on-demand"
        pools[name] = {"capacity": capacity, "provider": draw(st.sampled_from(PROVIDERS))}
        if draw(st.booleans()):
            pools[name]["node"] = {"cpu": draw(st.integers(1, 8))}
        if draw(st.booleans()):
            pools[name]["labels"] = {"disk": draw(st.sampled_from(["ssd", "hdd"]))}
        if pools[name]["provider"] == "generic":
            pools[name].setdefault("labels", {})["pool"] = name
    policy: dict[str, Any] = {"spot": draw(st.sampled_from(["prefer", "require", "never"]))}
    if draw(st.booleans()):
        policy["ladder"] = list(draw(st.permutations(list(pools))))
    try:
        return configuration.from_mapping({"pools": pools, "policy": {"default": policy}})
    except InputError:
        reject()  # there is no pool for such a policy


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Jobs that ask for CPUs and nodes of some kind."""
    job = a_job()
    job["metadata"] |= {"uid": "job-uid", "creationTimestamp": at(0)}
    spec = job["spec"]["template"]["spec"]
    if draw(st.booleans()):
        spec["containers"][0]["resources"] = {"requests": {"cpu": str(draw(st.integers(1, 10)))}}
    if draw(st.booleans()):
        spec["nodeSelector"] = {"disk": draw(st.sampled_from(["ssd", "hdd"]))}
    if draw(st.booleans()):
        spec["tolerations"] = [{"operator": "Exists"}]
    return job


def of_webhook(job: dict[str, Any], config: Config) -> Ladder:
    """The ladder of a pod of this Job, as the webhook has it before it admits the pod."""
    template = job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
    meta = {**template["metadata"], "name": "train-x", "namespace": "team-a", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
    return _policy_and_ladder(pod, config)[1]


def of_watcher(job: dict[str, Any], config: Config, labels: list[dict[str, str]]) -> list[Ladder]:
    """The ladder in the run of this Job: when it begins, when another node is found, and after a restart."""
    folder = Path(tempfile.mkdtemp())
    try:
        nodes = [node(f"n{number}", **each) for number, each in enumerate(labels)]
        unique = strange_pools(nodes, config.pools)
        store = RunStore(FolderRecords(StateFolder.open(folder)), config)
        run = store.create(job, templates_of([job]), unique[:-1], 1_900_000_000.0)
        ladders = [run.state.plan.instance("train", "train").ladder]
        if unique:
            run.add_pool(1_900_000_001.0, unique[-1])
            run.commit()
            ladders.append(run.state.plan.instance("train", "train").ladder)
        store.close()
        again = RunStore(FolderRecords(StateFolder.open(folder)), config)
        assert list(again.open_unfinished(1_900_000_002.0)) == []
        [(_, taken_up)] = again.runs_of("team-a")
        ladders.append(taken_up.state.plan.instance("train", "train").ladder)
        again.close()
        return ladders
    finally:
        shutil.rmtree(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs(), jobs(), st.lists(st.sampled_from(FOREIGN), max_size=4))
def test_the_watcher_and_the_webhook_have_the_same_rungs(
    config: Config, job: dict[str, Any], labels: list[dict[str, str]]
) -> None:
    placed, _ = admitted(job, config)
    try:
        expected = of_webhook(placed, config)
    except InputError:
        return
    if not expected.rungs:
        return  # nobody places it: it runs where it may
    for ladder in of_watcher(placed, config, labels):
        assert [rung.pools for rung in ladder.rungs] == [rung.pools for rung in expected.rungs]
