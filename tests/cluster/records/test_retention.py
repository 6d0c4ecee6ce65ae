"""Records of ended runs are deleted after a week, and earlier if a namespace exceeds its share; others do not pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.reading.recorded import looks_at_train
from tests.cluster.records.loops import in_a_loop
from tests.cluster.records.record_server import login, recording_server
from tests.cluster.watching.watched_cluster import Cluster

from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.retention import KeptRecord, Retention, to_delete
from spotwright.cluster.run_objects import AGE

NOW = 1_900_000_000.0
RECORDS = st.lists(
    st.builds(
        KeptRecord,
        st.sampled_from(["team-a", "team-b", "team-c"]),
        st.uuids().map(str),
        st.none() | st.floats(NOW - AGE, NOW),
        st.integers(0, 60),
    ),
    max_size=30,
)


def sizes(records: Sequence[KeptRecord]) -> dict[str, int]:
    return {
        name: sum(one.size for one in records if one.namespace == name) for name in {one.namespace for one in records}
    }


@given(RECORDS)
def test_only_whoever_has_too_much_pays_its_oldest_ended_runs_first_and_then_its_largest(
    records: list[KeptRecord],
) -> None:
    going = to_delete(records, NOW, of_one=100, of_all=200)
    gone = [one for one, _ in going.deleted]
    left = [one for one in records if one not in gone]
    cut = [namespace for namespace, _ in going.cut]
    assert all(one.ended_at is not None for one in gone)
    for one in gone:
        ended = [other.ended_at for other in left if other.namespace == one.namespace and other.ended_at is not None]
        assert one.ended_at is not None
        assert not [at for at in ended if at < one.ended_at]
    for name, size in sizes(left).items():
        has_ended = [one for one in left if one.namespace == name and one.ended_at is not None]
        assert size <= 100 or (not has_ended and name in cut)
    before = sizes(records)
    losers = {one.namespace for one in gone} | set(cut)
    if sum(before.values()) <= 200:
        assert losers == {name for name, size in before.items() if size > 100}
    assert all(before[name] > 100 or before[name] >= 200 / len(before) for name in losers)
    assert sum(sizes(left).values()) <= 200 or cut


def test_what_ended_a_week_ago_goes_and_says_so() -> None:
    old, young = KeptRecord("team-a", "old", NOW - AGE - 1, 1), KeptRecord("team-a", "young", NOW - AGE + 1, 1)
    assert to_delete([old, young], NOW).deleted == [(old, "it ended more than 7 days ago")]


@in_a_loop
async def test_a_run_goes_with_its_attempts_and_its_namespace_is_told(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes))
        for step in looks_at_train(cluster):
            await asyncio.to_thread(step)
        (run,) = server.kept("SpotRun")
        assert run["status"]["bytes"] > 1_000
        api = Api(connect(find_cluster(None, kubeconfig=str(kubeconfig))))
        try:
            retention = Retention(api, EventWriter(api))
            run["status"]["finishedAt"] = "2999-01-01T00:00:00Z"
            await retention.look()
            assert len(server.kept("SpotRun")) == 1
            run["status"]["finishedAt"] = "2020-01-01T00:00:00Z"
            await retention.look()
            assert server.kept("SpotRun") == []
        finally:
            await api.close()


def test_where_the_largest_namespace_can_lose_nothing_the_next_one_pays() -> None:
    left = KeptRecord("left-behind", "live", None, 60)
    ended = [KeptRecord(f"team-{number}", "old", NOW - 100 + number, 50) for number in range(4)]
    going = to_delete([left, *ended], NOW, of_one=100, of_all=200)
    assert (going.deleted, [name for name, _ in going.cut]) == ([], ["left-behind"])
    again = to_delete([left, *ended], NOW, of_one=100, of_all=200, uncut={"left-behind"})
    assert sum(one.size for one, _ in again.deleted) == 100
    assert again.cut == []
