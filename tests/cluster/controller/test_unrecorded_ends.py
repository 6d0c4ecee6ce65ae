"""The next pod is created before the end of the previous one is recorded: the API server still shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.controller.findings import TASKS, finding
from tests.cluster.watching.small_api_server import SmallApiServer
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import SPOT, at, job, node, pod

from spotwright.cluster import attempt_lookup as module
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.attempt_numbers import Seen
from spotwright.model.attempts import Cause

PODS, NODES = "/api/v1/namespaces/team-a/pods", "/api/v1/nodes"
SHUT_DOWN = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
SHUT_DOWN |= {"message": "Pod was terminated in response to imminent node shutdown.", "lastTransitionTime": at(30)}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "lastTransitionTime": at(30),
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(module, "_WAIT", 0.05)
    monkeypatch.setattr(module, "_GONE", 0.05)
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def train(name: str, owner: dict[str, Any], *signs: dict[str, str], **how: Any) -> dict[str, Any]:
    made = pod(name, owner, node="n1", phase="Running", **how)
    made["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    made["status"]["conditions"] = [*made["status"]["conditions"], *signs]
    return made


def find(
    cluster: Cluster, there: Sequence[dict[str, Any]], *, nodes: Sequence[dict[str, Any]] = ()
) -> AdmissionContext:
    """The facts about the next pod of a Job while the API server has these pods and nodes."""

    async def scenario() -> AdmissionContext:
        async with finding(cluster, job()) as (finder, server):
            show(server, there, nodes)
            return await finder.find(review())

    return asyncio.run(scenario())


def show(server: SmallApiServer, pods: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]] = ()) -> None:
    for path, found in ((PODS, pods), (NODES, nodes)):
        server.objects.setdefault(path, {})
        for each in found:
            server.put(path, each["metadata"]["name"], each["metadata"]["uid"], **each)


def review(name: str = "review") -> AdmissionRequest:
    new = pod("", job(), labels={"batch.kubernetes.io/controller-uid": "job-uid"})
    new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return AdmissionRequest(name, "CREATE", "team-a", new)


def told(facts: AdmissionContext) -> list[tuple[Cause | None, bool]]:
    return [(past.cause, past.is_recorded) for past in facts.history]


def test_an_interruption_that_is_not_recorded_is_read_off_the_pod(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    facts = find(cluster, [train("one", job(), SHUT_DOWN)], nodes=[node("n1", **SPOT)])
    assert (facts.number, facts.is_late) == (2, True)
    assert told(facts) == [(Cause.INTERRUPTED, False)]


def test_a_drain_that_is_not_recorded_is_no_interruption(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    assert told(find(cluster, [train("one", job(), EVICTED)], nodes=[node("n1", **SPOT)])) == [(Cause.DISRUPTED, False)]


def test_a_drain_from_a_node_that_went_is_an_interruption(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    assert told(find(cluster, [train("one", job(), EVICTED)])) == [(Cause.INTERRUPTED, False)]


def test_a_pod_that_runs_on_has_no_end(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    assert told(find(cluster, [train("one", job())], nodes=[node("n1", **SPOT)])) == [(None, True)]


def test_an_attempt_whose_pod_is_gone_counts_as_lost(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    assert told(find(cluster, [])) == [(Cause.LOST, False)]


def test_another_pod_of_its_name_says_nothing_of_it(cluster: Cluster) -> None:
    cluster.look(job(), train("one", job()))
    assert told(find(cluster, [train("one", job(), EVICTED) | {"metadata": {"name": "one", "uid": "another"}}])) == [
        (Cause.LOST, False)
    ]


def test_what_is_recorded_while_a_review_waits_for_a_pod_that_is_gone_counts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GONE", 60.0)
    cluster.look(job(), train("one", job()))

    async def scenario() -> AdmissionContext:
        async with finding(cluster, job()) as (finder, server):
            show(server, [])
            asked = asyncio.create_task(finder.find(review()))
            while f"GET {PODS}/one" not in server.asked:  # noqa: ASYNC110  # the review knows that it is gone
                await asyncio.sleep(0.01)
            cluster.look(job(), pod("one", job(), node="n1", phase="Failed", exit_code=3))
            return await asked

    facts = asyncio.run(scenario())
    assert told(facts) == [(Cause.FAILED, True)]
    assert not facts.is_late


def later(cluster: Cluster, change: Callable[[dict[str, Any]], None], *, is_seen: bool = True) -> AdmissionContext:
    """The facts about the second pod of a Job whose first pod is not recorded at all; ``change`` applies to that first pod."""

    async def scenario() -> AdmissionContext:
        async with finding(cluster, job()) as (finder, server):
            show(server, [], [node("n1", **SPOT)])
            first = await finder.find(review("first"))
            assert await first.keep(Admission(("gpu-spot",)), first) is None
            made = train("one", job(), SHUT_DOWN)
            made["metadata"]["annotations"] = {
                "spotwright.dev/attempt": str(first.number),
                "spotwright.dev/admission": first.token,
            }
            change(made)
            if made["metadata"]["name"]:
                show(server, [made])
            if is_seen:
                server.numbers.confirm([Seen("team-a", first.token, "uid-one")])  # type: ignore[attr-defined]
                await until_seen(server)
            return await finder.find(review("second"))

    return asyncio.run(scenario())


async def until_seen(server: SmallApiServer) -> None:
    async with asyncio.timeout(20.0):
        while not any(  # noqa: ASYNC110  # the pod is noted in a moment
            task.get("seen") for each in server.objects[TASKS].values() for task in each["spec"]["tasks"].values()
        ):
            await asyncio.sleep(0.02)


def test_an_attempt_of_which_nothing_is_recorded_is_found_by_its_number(cluster: Cluster) -> None:
    facts = later(cluster, lambda _: None)
    assert facts.number == 2
    assert told(facts) == [(Cause.INTERRUPTED, False)]


def test_a_pod_of_another_workload_says_nothing(cluster: Cluster) -> None:
    def of_another(made: dict[str, Any]) -> None:
        made["metadata"]["ownerReferences"][0]["uid"] = "another"

    assert told(later(cluster, of_another, is_seen=False)) == [(None, True)]


def test_a_pod_that_was_seen_and_is_gone_counts_as_lost(cluster: Cluster) -> None:
    assert told(later(cluster, lambda made: made["metadata"].update(name=""))) == [(Cause.LOST, False)]


def test_a_pod_that_was_perhaps_never_made_counts_as_nothing(cluster: Cluster) -> None:
    assert told(later(cluster, lambda made: made["metadata"].update(name=""), is_seen=False)) == [(None, True)]
