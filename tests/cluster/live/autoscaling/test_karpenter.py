"""On the test bed with Karpenter: work behind the controller is never slower and never dearer than work without it.

``TESTBED_NODES=0 TESTBED_CONTROLLERS=kwok,karpenter`` starts such a bed. Elsewhere these tests are skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.autoscaling.karpenter_pools import (
    Trouble,
    capacity_is_back,
    configuration,
    group,
    node_pools,
    pool,
)
from tests.cluster.live.autoscaling.scenarios import Case, Deed, Outcome, Play, job_of, play
from tests.cluster.live.kube import Kube, Object

pytestmark = pytest.mark.cluster

SLOWER, MORE = 1.1, 5.0  # with the controller at most so many times as long, and so many seconds more
PENDING = 30.0  # seconds of pending_timeout: less than the slow boot, more than Karpenter needs to change the NodePool
SLOW = 45.0  # seconds
NEVER = 86400.0  # seconds
CPU = {"cpu": "3", "memory": "4Gi"}  # one pod on a node
GPU = {"machine": "g5.xlarge", "node": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}}
GPU_TAINT = "nvidia.com/gpu=true:NoSchedule"
POOLS: Mapping[str, Object] = {"cpu-spot": pool("spot", 0.07), "cpu": pool("on-demand", 0.192)}
GPU_POOLS: Mapping[str, Object] = {
    "gpu-spot": {**pool("spot", 0.4, **GPU), "taints": ["spot=true:NoSchedule", GPU_TAINT]},
    "gpu": {**pool("on-demand", 1.006, **GPU), "taints": [GPU_TAINT]},
}
BOTH: Mapping[str, Object] = {  # one NodePool, so its nodes have the same taints: none
    "both-spot": {**pool("spot", 0.07), "labels": {"karpenter.sh/nodepool": "both"}, "taints": []},
    "both-on-demand": {**pool("on-demand", 0.192), "labels": {"karpenter.sh/nodepool": "both"}},
}
ALIKE = {
    "weight": 10
}  # of all NodePools: nothing keeps the order of the ladder, so a pod is sent to its first rung alone
NEXT = 30.0  # seconds from the eviction to the pod on the next rung: 10 to 20 until the Job makes it again, 5 until it is bound
UNDERUTILIZED = {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10s"}}


@dataclass(frozen=True)
class Scenario:
    """A situation of NodePools, the work, and the nodes that Karpenter makes for it."""

    made: Mapping[str, int]
    pools: Mapping[str, Object] = field(default_factory=lambda: POOLS)
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    work: Sequence[Object] = (job_of("train", CPU),)

    @property
    def pods(self) -> int:
        """How many pods are to run."""
        return sum(one["spec"]["parallelism"] for one in self.work)


SCENARIOS: Mapping[str, Scenario] = {
    "from zero": Scenario(
        {"cpu-spot/spot": 1, "gpu-spot/spot": 1},
        {**POOLS, **GPU_POOLS},
        work=(job_of("train", CPU), job_of("train-gpu", {**CPU, "nvidia.com/gpu": "1"})),
    ),
    "spot at its limit": Scenario(
        {"cpu-spot/spot": 2, "cpu/on-demand": 4},
        {**POOLS, "cpu-spot": pool("spot", 0.07, max_nodes=2)},
        work=(job_of("burst", CPU, 6),),
    ),
    "a hundred pods, spot at its limit": Scenario(
        {"cpu-spot/spot": 20, "cpu/on-demand": 80},
        {"cpu-spot": pool("spot", 0.07, max_nodes=20), "cpu": pool("on-demand", 0.192, max_nodes=100)},
        work=(job_of("burst", CPU, 100),),
    ),
    "the weights of three": Scenario(
        {"other-spot/spot": 1},
        {"cpu-spot": pool("spot", 0.07), "other-spot": pool("spot", 0.08), "cpu": pool("on-demand", 0.192)},
        {"cpu-spot": Trouble(sold_out="spot")},
    ),
    "no capacity": Scenario({"cpu/on-demand": 1}, troubles={"cpu-spot": Trouble(sold_out="spot")}),
    "no capacity in one NodePool of both": Scenario(
        {"both/on-demand": 1}, BOTH, {name: Trouble(sold_out="spot") for name in BOTH}
    ),
    "a boot slower than pending_timeout": Scenario({"cpu-spot/spot": 1}, troubles={"cpu-spot": Trouble(boot=SLOW)}),
    "a slow boot on the last rung": Scenario(
        {"cpu/on-demand": 1}, troubles={"cpu-spot": Trouble(sold_out="spot"), "cpu": Trouble(boot=SLOW)}
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_the_controller_it_is_as_fast_and_as_cheap_as_without(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path, name: str
) -> None:
    require("nodepools.karpenter.sh")
    scenario = SCENARIOS[name]
    without, beside = (
        _play(kube, bed, tmp_path, name, scenario, controlled=controlled) for controlled in (False, True)
    )
    for outcome in (without, beside):
        assert outcome.seconds is not None, outcome.text()
        measured(f"{outcome.name}: until all pods run", outcome.seconds)
        assert outcome.made == scenario.made, outcome.text()
        assert outcome.running == scenario.made, outcome.text()
        assert (outcome.taken_back, outcome.ended) == (0, 0), outcome.text()
    assert without.seconds is not None
    assert beside.seconds is not None
    assert beside.seconds <= SLOWER * without.seconds + MORE, beside.text()


@pytest.mark.parametrize("controlled", [False, True], ids=["without", "with"])
def test_what_runs_is_not_moved_when_spot_is_cheaper_again(
    kube: Kube, bed: Settings, require: Require, tmp_path: Path, controlled: bool
) -> None:
    require("nodepools.karpenter.sh")
    troubles = {"cpu-spot": Trouble(sold_out="spot", spec=UNDERUTILIZED), "cpu": Trouble(spec=UNDERUTILIZED)}
    scenario = Scenario({"cpu/on-demand": 1}, troubles=troubles)
    deeds = [(25.0, lambda playing: capacity_is_back(playing.kube, "cpu-spot"))]
    outcome = _play(kube, bed, tmp_path, "consolidation", scenario, controlled=controlled, settle=75, deeds=deeds)
    assert outcome.seconds is not None, outcome.text()
    assert outcome.made == outcome.running == {"cpu/on-demand": 1}, outcome.text()
    assert (outcome.taken_back, outcome.ended, outcome.removed) == (0, 0, {}), outcome.text()


def test_without_the_annotation_karpenter_moves_it(kube: Kube, bed: Settings, require: Require, tmp_path: Path) -> None:
    require("nodepools.karpenter.sh")

    def bare(playing: Play) -> None:
        capacity_is_back(playing.kube, "cpu-spot")
        playing.kube.run("annotate", "pods", "--all", "-n", playing.namespace, "karpenter.sh/do-not-disrupt-")

    troubles = {"cpu-spot": Trouble(sold_out="spot", spec=UNDERUTILIZED), "cpu": Trouble(spec=UNDERUTILIZED)}
    scenario = Scenario({"cpu/on-demand": 1}, troubles=troubles)
    outcome = _play(kube, bed, tmp_path, "moved", scenario, controlled=False, settle=75, deeds=[(25.0, bare)])
    assert outcome.ended == 1, outcome.text()
    assert outcome.made == {"cpu/on-demand": 1, "cpu-spot/spot": 1}, outcome.text()


def _alike(**more: Trouble) -> dict[str, Trouble]:
    return {name: dataclasses.replace(more.get(name.replace("-", "_"), Trouble()), spec=ALIKE) for name in POOLS}


def test_what_is_pinned_moves_as_soon_as_karpenter_has_no_capacity(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path
) -> None:
    require("nodepools.karpenter.sh")
    scenario = Scenario({"cpu/on-demand": 1}, troubles=_alike(cpu_spot=Trouble(sold_out="spot")))
    outcome = _play(kube, bed, tmp_path, "pinned no capacity", scenario, controlled=True, pending_timeout="10m")
    assert outcome.seconds is not None, outcome.text()
    measured("pinned to spot that is sold out: until it runs on on-demand", outcome.seconds)
    assert outcome.made == outcome.running == scenario.made, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (1, 0), outcome.text()
    said = next(float(line.split()[0]) for line in outcome.timeline if "NoCompatibleInstanceTypes" in line)
    assert outcome.seconds <= said + NEXT + MORE, outcome.text()


def test_what_is_pinned_stays_while_its_nodes_boot(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path
) -> None:
    """Karpenter nominates at most ten pods at once, and does not mention the others."""
    require("nodepools.karpenter.sh")
    pools = {**POOLS, "cpu-spot": pool("spot", 0.07, max_nodes=40)}
    work = [job_of("burst", CPU, 40)]
    scenario = Scenario({"cpu-spot/spot": 40}, pools, _alike(cpu_spot=Trouble(boot=SLOW)), work)
    outcome = _play(kube, bed, tmp_path, "pinned slow boot", scenario, controlled=True)
    assert outcome.seconds is not None, outcome.text()
    measured("40 pods pinned to spot that boots in 45 s: until all run", outcome.seconds)
    assert outcome.made == outcome.running == scenario.made, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (0, 0), outcome.text()


def test_what_is_pinned_beyond_the_limit_moves_and_the_rest_stays(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path
) -> None:
    require("nodepools.karpenter.sh")
    pools = {**POOLS, "cpu-spot": pool("spot", 0.07, max_nodes=2)}
    scenario = Scenario({"cpu-spot/spot": 2, "cpu/on-demand": 2}, pools, _alike(), [job_of("burst", CPU, 4)])
    outcome = _play(kube, bed, tmp_path, "pinned limit", scenario, controlled=True, seconds=240)
    assert outcome.seconds is not None, outcome.text()
    measured("4 pods pinned to spot of at most 2 nodes: until all run", outcome.seconds)
    assert outcome.made == outcome.running == scenario.made, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (2, 0), outcome.text()


def test_what_is_pinned_beyond_the_limit_does_not_wait_for_the_nodes_of_others(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path
) -> None:
    require("nodepools.karpenter.sh")
    pools = {**POOLS, "cpu-spot": pool("spot", 0.07, max_nodes=1)}
    troubles = _alike(cpu_spot=Trouble(boot=SLOW))
    scenario = Scenario({"cpu-spot/spot": 1, "cpu/on-demand": 1}, pools, troubles, [job_of("burst", CPU, 2)])
    outcome = _play(kube, bed, tmp_path, "pinned limit and slow boot", scenario, controlled=True, pending_timeout="10m")
    assert outcome.seconds is not None, outcome.text()
    measured("2 pods pinned to spot of 1 node that boots in 45 s: until both run", outcome.seconds)
    assert outcome.made == outcome.running == scenario.made, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (1, 0), outcome.text()
    moved = min(
        float(line.split()[0]) for line in outcome.timeline if "Running on" in line and "rung=cpu" in line.split()
    )
    assert moved <= NEXT + MORE, outcome.text()


def test_a_word_that_is_older_than_the_pod_moves_nobody(
    kube: Kube, bed: Settings, require: Require, tmp_path: Path
) -> None:
    """Karpenter has said that spot has no capacity, then it is back: a pod that comes now is pinned to spot, and gets it."""
    require("nodepools.karpenter.sh")
    only = {"cpu-spot": POOLS["cpu-spot"]}
    asked = Case("spot is asked for", configuration(only), [job_of("train", CPU)], pods=1, seconds=15)
    case = Case("the word is old", configuration(POOLS), [job_of("train", CPU)], pods=1)
    with node_pools(kube, tmp_path / "pools", case.config, _alike(cpu_spot=Trouble(sold_out="spot"))):
        refused = play(kube, bed, tmp_path, asked, controlled=False, group_of=group)
        assert any("NoCompatibleInstanceTypes NodePool/cpu-spot" in line for line in refused.timeline), refused.text()
        capacity_is_back(kube, "cpu-spot")
        outcome = play(kube, bed, tmp_path, case, controlled=True, group_of=group)
    assert outcome.made == outcome.running == {"cpu-spot/spot": 1}, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (0, 0), outcome.text()


@pytest.mark.parametrize("kind", ["pinned", "open"])
def test_what_waits_for_a_node_that_was_ordered_and_never_comes_moves_after_the_limit(
    kube: Kube, bed: Settings, require: Require, measured: Measured, tmp_path: Path, kind: str
) -> None:
    """Karpenter keeps to its chosen NodePool, so a pod that is open to all of them is moved as well."""
    require("nodepools.karpenter.sh")
    trouble = Trouble(boot=NEVER)
    scenario = Scenario(
        {"cpu/on-demand": 1}, troubles=_alike(cpu_spot=trouble) if kind == "pinned" else {"cpu-spot": trouble}
    )
    options = ("--max-node-provision-time", f"{SLOW:.0f}s")
    named = f"{kind} never registers"
    outcome = _play(
        kube, bed, tmp_path, named, scenario, controlled=True, seconds=240, options=options, pending_timeout="10m"
    )
    assert outcome.seconds is not None, outcome.text()
    measured(f"{kind} with spot that never comes, given up after 45 s: until it runs", outcome.seconds)
    assert outcome.made == outcome.running == scenario.made, outcome.text()
    assert (outcome.taken_back, outcome.ended) == (1, 0), outcome.text()
    assert SLOW <= outcome.seconds <= SLOW + NEXT + MORE, outcome.text()


def _play(
    kube: Kube,
    bed: Settings,
    folder: Path,
    name: str,
    scenario: Scenario,
    *,
    controlled: bool,
    seconds: float = 120.0,
    settle: float = 5.0,
    deeds: Sequence[Deed] = (),
    options: Sequence[str] = (),
    pending_timeout: str = f"{PENDING:.0f}s",
) -> Outcome:
    config = configuration(scenario.pools, pending_timeout)
    named = name.replace(" ", "-").replace(",", "")
    case = Case(named, config, scenario.work, scenario.pods, seconds=seconds, settle=settle)
    with node_pools(kube, folder / "pools", config, scenario.troubles):
        return play(kube, bed, folder, case, controlled=controlled, options=options, deeds=deeds, group_of=group)
