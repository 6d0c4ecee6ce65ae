"""The scope of a pool's pause: a tenant of one namespace cannot change it for another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.folder_records import FolderRecord, FolderRecords
from tests.cluster.left_out_pools import ToldPools

from spotwright import config as configuration
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.unavailable_pools import (
    CapacityBackoff,
    Finding,
    PoolsLeftOut,
    definition_of,
    in_force,
)
from spotwright.engine.events import AttemptBound, AttemptRecalled
from spotwright.model.pools import Capacity, Pool
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import Pause

POOLS = {"spot": Pool("spot", Capacity.SPOT, "aks"), "gpu": Pool("gpu", Capacity.SPOT, "aks")}
RENAMED = {"mine": Pool("mine", Capacity.SPOT, "aks", labels={"kubernetes.azure.com/agentpool": "spot"})}


@pytest.fixture
def said() -> ToldPools:
    return ToldPools()


@pytest.fixture
def pauses(said: ToldPools) -> CapacityBackoff:
    return CapacityBackoff(said.write)


def take_back(at: float, *, until: float = 1000.0, is_said: bool = False, pool: str = "spot") -> AttemptRecalled:
    left_out = {pool: (until, 1)}
    return AttemptRecalled(at, "train", 1, rung=1, pools=("gpu",), why="", left_out=left_out, is_said=is_said)


def bound(at: float) -> AttemptBound:
    return AttemptBound(at, "train", 1, node="n1", pool="spot")


def test_what_one_namespace_finds_holds_for_it_alone(pauses: CapacityBackoff) -> None:
    pauses.take("team-a", POOLS, take_back(10.0))
    assert [list(pauses.of(name, POOLS)) for name in ("team-a", "team-b")] == [["spot"], []]


def test_two_namespaces_decide_for_all_until_the_second_pause_is_over(pauses: CapacityBackoff) -> None:
    pauses.take("team-a", POOLS, take_back(10.0, until=900.0))
    pauses.take("team-b", POOLS, take_back(20.0, until=500.0))
    assert pauses.of("team-c", POOLS)["spot"].until == 500.0
    assert pauses.of("team-a", POOLS)["spot"].until == 900.0


def test_one_namespace_that_finds_it_many_times_is_one(pauses: CapacityBackoff) -> None:
    for at in range(10, 100, 10):
        pauses.take("team-a", POOLS, take_back(float(at), until=900.0 + at))
    assert pauses.of("team-b", POOLS) == {}


def test_the_provider_s_own_word_decides_for_all(pauses: CapacityBackoff) -> None:
    pauses.take("team-a", POOLS, take_back(10.0, is_said=True))
    assert list(pauses.of("team-b", POOLS)) == ["spot"]


def test_a_pool_is_known_by_what_defines_it(pauses: CapacityBackoff) -> None:
    pauses.take("team-a", POOLS, take_back(10.0))
    pauses.take("team-b", RENAMED, take_back(20.0, pool="mine"))
    assert list(pauses.of("team-c", {**POOLS, **RENAMED})) == ["spot", "mine"]


@pytest.mark.parametrize(
    "other",
    [
        Pool("spot", Capacity.ON_DEMAND, "aks"),
        Pool("spot", Capacity.SPOT, "gke"),
        Pool("spot", Capacity.SPOT, "aks", labels={"kubernetes.azure.com/agentpool": "gpu"}),
        Pool("spot", Capacity.SPOT, "aks", zones=("eastus-1",)),
    ],
)
def test_a_pool_of_the_same_name_is_another_pool(pauses: CapacityBackoff, other: Pool) -> None:
    for name in ("team-a", "team-b"):
        pauses.take(name, {"spot": other}, take_back(10.0, is_said=True))
    assert definition_of(other) != definition_of(POOLS["spot"])
    assert "spot" not in pauses.of("team-c", POOLS)


def test_a_node_for_one_namespace_ends_its_own_pause_alone(pauses: CapacityBackoff) -> None:
    for name in ("team-a", "team-b", "team-c"):
        pauses.take(name, POOLS, take_back(10.0))
    pauses.take("team-d", POOLS, bound(20.0))
    assert list(pauses.of("team-a", POOLS)) == ["spot"]
    pauses.take("team-a", POOLS, bound(20.0))
    assert list(pauses.of("team-a", POOLS)) == []
    assert pauses.own("team-a", POOLS) == {}


def test_nodes_for_two_namespaces_end_it_for_all(pauses: CapacityBackoff) -> None:
    for name in ("team-a", "team-b"):
        pauses.take(name, POOLS, take_back(10.0))
    for name in ("team-c", "team-d"):
        pauses.take(name, POOLS, bound(20.0))
    assert [pauses.of(name, POOLS) for name in ("team-a", "team-b", "team-c")] == [{}, {}, {}]


def test_a_node_for_one_namespace_says_nothing_of_the_pool_to_another(pauses: CapacityBackoff) -> None:
    pauses.take("team-b", POOLS, bound(20.0))
    assert pauses.taken("team-a", POOLS)["spot"] == 0.0
    pauses.take("team-c", POOLS, bound(30.0))
    assert pauses.taken("team-a", POOLS)["spot"] == 20.0
    assert pauses.taken("team-b", POOLS)["spot"] == 20.0


def test_definitions_that_count_no_more_are_forgotten(pauses: CapacityBackoff) -> None:
    for number in range(50):
        pools = {"spot": Pool(f"spot-{number}", Capacity.SPOT, "aks")}
        pauses.take("team-a", pools, take_back(10.0))
        pauses.take("team-a", pools, bound(5.0))
    pauses.take("team-b", POOLS, bound(10_000_000.0))
    assert len(pauses._found) + len(pauses._taken) == 1


def test_readers_are_told_names_of_namespaces_that_they_may_read(pauses: CapacityBackoff, said: ToldPools) -> None:
    pauses.take("team-a", POOLS, take_back(10.0))
    pauses.take("team-b", RENAMED, take_back(20.0, pool="mine"))
    pauses.take("team-b", {**RENAMED, "own": POOLS["gpu"]}, take_back(30.0, pool="own"))
    told = PoolsLeftOut(said.read)

    def names(*namespaces: str) -> list[tuple[str, str]]:
        return [(one.namespace, one.pool) for one in told.all(100.0, namespaces)]

    assert names("team-a") == [("", "spot")]
    assert names("team-b") == [("", "mine"), ("team-b", "own")]
    assert names("team-c") == [("", "")]


def test_a_namespace_of_the_same_name_with_another_owner_inherits_nothing(
    pauses: CapacityBackoff, said: ToldPools
) -> None:
    told = PoolsLeftOut(said.read)
    pauses.know({"team-a": "uid-1", "team-b": "uid-2"})
    pauses.take("team-a", POOLS, take_back(10.0))
    pauses.take("team-b", POOLS, take_back(20.0))
    pauses.take("team-b", POOLS, bound(5.0))
    pauses.know({"team-a": "uid-1", "team-b": "uid-2"})
    assert list(told.of("team-c", POOLS, 30.0)) == ["spot"]
    pauses.know({"team-a": "uid-3"})  # what is watched no more is not named
    assert [list(told.of(name, POOLS, 30.0)) for name in ("team-a", "team-b", "team-c")] == [[], ["spot"], []]
    pauses.know({"team-b": "uid-4"})
    assert pauses.taken("team-b", POOLS) == {"spot": 0.0, "gpu": 0.0}
    assert told.all(30.0) == []


def test_two_owners_of_one_name_are_no_two_namespaces(pauses: CapacityBackoff) -> None:
    for uid in ("uid-1", "uid-2"):
        pauses.know({"team-a": uid})
        pauses.take("team-a", POOLS, take_back(10.0))
    assert pauses.of("team-b", POOLS) == {}


def test_a_leader_that_begins_counts_the_last_owner_of_a_name(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path)
    for uid, team, at in (("uid-1", "team-a", 10.0), ("uid-2", "team-b", 20.0), ("uid-3", "team-a", 30.0)):
        record(state, team, uid, take_back(at, until=at + 900.0))
    pauses = CapacityBackoff(ToldPools().write)
    pauses.begin(FolderRecords(state), 100.0)
    assert [pauses.of(name, POOLS)["spot"].until for name in ("team-a", "team-c")] == [930.0, 920.0]
    pauses.know({"team-a": "uid-5", "team-b": "uid-2"})
    assert [list(pauses.of(name, POOLS)) for name in ("team-a", "team-b")] == [[], ["spot"]]


def test_a_run_whose_records_cannot_be_read_is_counted_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder.open(tmp_path)
    record(state, "team-a", "uid-1", take_back(10.0, until=910.0))
    record(state, "team-b", "uid-2", take_back(10.0, until=910.0))
    records = FolderRecords(state)
    broken = next(iter(records.recent(0.0))).folder.name
    read = FolderRecord.facts

    def facts(one: FolderRecord, *arguments: Any) -> Any:
        if one.folder.name == broken:
            raise ValueError("a record of another release")
        return read(one, *arguments)

    monkeypatch.setattr(FolderRecord, "facts", facts)
    pauses = CapacityBackoff(ToldPools().write)
    assert pauses.begin(records, 100.0) == 1
    assert sum("spot" in pauses.of(team, POOLS) for team in ("team-a", "team-b")) == 1


def record(state: StateFolder, namespace: str, uid: str, event: AttemptRecalled) -> None:
    """A run of a namespace with this UID, in which this was recorded."""
    pools = {name: {"capacity": "spot", "provider": "aks"} for name in ("spot", "gpu")}
    store = RunStore(FolderRecords(state), configuration.from_mapping({"pools": pools}))
    root = {"kind": "Job", "metadata": {"name": "train", "namespace": namespace, "uid": f"of-{uid}"}}
    run = store.create(root, (), (), 1.0, uid)
    run.record.append([event], run.state)
    store.close()


def test_what_holds_for_all_is_the_second_latest_of_three() -> None:
    found = {f"team-{until}": Finding("spot", Pause(1, 0.0, until)) for until in (100.0, 200.0, 300.0)}
    holds = in_force(found, "")
    assert holds is not None
    assert holds.pause.until == 200.0
