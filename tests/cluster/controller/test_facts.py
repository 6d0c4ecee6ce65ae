"""The facts about a pod under review: journals that a watcher wrote, joined with the numbers that were given out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.cluster.admissions import admission_of
from tests.cluster.controller.findings import TASKS, finding
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import at, done, job, pod

from spotwright.cluster import attempt_lookup as module
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.attempt_numbers import PATIENCE, Asking, Given, Numbers
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.task_objects import Content, Token, admission_in
from spotwright.cluster.view import SeenPod
from spotwright.cluster.workloads import task_name, templates_of
from spotwright.model.attempts import Cause

PODS = "/api/v1/namespaces/team-a/pods"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def request(owner: dict[str, Any], review: str = "review", *, dry_run: bool = False, **labels: str) -> AdmissionRequest:
    """A review of a pod that has no name yet."""
    new = pod("", owner, labels=labels)
    new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return AdmissionRequest(review, "CREATE", "team-a", new, dry_run=dry_run)


def find(cluster: Cluster, root: dict[str, Any], *requests: AdmissionRequest) -> list[AdmissionContext]:
    async def scenario() -> list[AdmissionContext]:
        async with finding(cluster, root) as (finder, _):
            found = []
            for each in requests:
                facts = await finder.find(each)
                if facts.token:
                    assert await facts.keep(Admission(("gpu-spot",)), facts) is None
                found.append(facts)
            return found

    return asyncio.run(scenario())


def test_the_first_pod_of_a_workload_has_number_one_and_no_history(cluster: Cluster) -> None:
    [facts] = find(cluster, job(), request(job()))
    assert (facts.number, list(facts.history), facts.token.partition("/")[0]) == (1, [], "review")


def test_the_history_is_what_the_watcher_recorded(cluster: Cluster) -> None:
    cluster.look(job(), pod("one", job(), node="n1", phase="Failed", exit_code=3))
    [facts] = find(cluster, job(), request(job()))
    assert facts.number == 2
    assert [(past.cause, past.pool, past.has_ended) for past in facts.history] == [(Cause.FAILED, "gpu-spot", True)]


def test_what_is_recorded_while_a_review_waits_counts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT", 60.0)
    running = pod("one", job(), node="n1", phase="Running")
    cluster.look(job(), running)

    async def scenario() -> AdmissionContext:
        async with finding(cluster, job()) as (finder, server):
            asked = asyncio.create_task(finder.find(request(job())))
            while not server.asked:  # noqa: ASYNC110  # the review is under way once it asks for the owner
                await asyncio.sleep(0.01)
            cluster.look(job(), pod("one", job(), node="n1", phase="Failed", exit_code=3))
            return await asked

    assert [past.cause for past in asyncio.run(scenario()).history] == [Cause.FAILED]


def test_an_end_that_nobody_recorded_in_time_is_no_known_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.05)
    first, second = find(cluster, job(), request(job(), "one"), request(job(), "two"))
    assert (first.number, second.number) == (1, 2)
    assert [past.cause for past in second.history] == [None]
    assert (first.is_late, second.is_late) == (False, True)


def test_a_number_and_what_was_decided_with_it_are_noted_in_one_write(cluster: Cluster) -> None:
    owner = job(completionMode="Indexed", completions=40, parallelism=40)

    def of_index(index: int) -> AdmissionRequest:
        new = request(owner, f"review-{index}")
        new.data["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        return new

    async def scenario() -> tuple[list[str], int]:
        async with finding(cluster, owner) as (finder, server):
            for index in range(40):
                facts = await finder.find(of_index(index))
                assert (facts.number, await facts.keep(Admission(("gpu-spot",)), facts)) == (1, None)
            contents = [msgspec.convert(each["spec"], Content) for each in server.objects[TASKS].values()]
            return [line for line in server.asked if not line.startswith("GET")], sum(
                len(one.records) for one in contents
            )

    assert [len(found) if isinstance(found, list) else found for found in asyncio.run(scenario())] == [40, 40]


def test_a_pod_whose_number_another_replica_gives_out_meanwhile_is_decided_on_again(cluster: Cluster) -> None:
    owner = job(parallelism=2, completions=2)

    async def scenario() -> list[tuple[int, int]]:
        async with finding(cluster, owner) as (finder, server):
            first, second = await finder.find(request(owner, "one")), await finder.find(request(owner, "two"))
            other = Numbers(finder._api, lambda: server.clock[0])  # type: ignore[attr-defined]
            path = task_name(request(owner).data, [owner]).path
            taken = await other.number(Asking("of-another", "team-a", owner, path, 2))
            assert isinstance(taken, Given)
            assert first.number == second.number == taken.number == 1
            kept = [await each.keep(Admission(("gpu-spot",)), each) for each in (first, second)]
            await other.close()
            again = [each for each in kept if each is not None]
            assert [await each.keep(Admission(("gpu-spot",)), each) for each in again] == [None] * len(again)
            [content] = [msgspec.convert(each["spec"], Content) for each in server.objects[TASKS].values()]
            return sorted((one.slot, one.number) for task in content.tasks.values() for one in task.waiting.values())

    assert asyncio.run(scenario()) == [(0, 1), (1, 1), (1, 2)]


def test_a_dry_run_gives_out_no_number(cluster: Cluster) -> None:
    dry, real = find(cluster, job(), request(job(), "dry", dry_run=True), request(job(), "real"))
    assert (dry.number, dry.token) == (1, "")
    assert real.number == 1


def test_a_pod_whose_owner_cannot_be_read_is_not_known(cluster: Cluster) -> None:
    [facts] = find(cluster, job("another"), request(job()))
    assert not facts.is_known


def test_a_pod_that_nobody_makes_again_needs_no_history(cluster: Cluster) -> None:
    new = AdmissionRequest("token", "CREATE", "team-a", pod("bare"))
    [facts] = find(cluster, job(), new)
    assert facts == AdmissionContext(
        stays="a pod without a controller is not recreated", token="token/pods.0", keep=facts.keep
    )


def test_a_number_of_a_pod_that_a_quota_refused_is_given_out_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.05)

    async def scenario() -> list[int | None]:
        async with finding(cluster, job()) as (finder, server):
            numbers = []
            for token in ("refused", "refused too", "made", "next"):
                facts = await finder.find(request(job(), token))
                assert await facts.keep(Admission(("gpu-spot",)), facts) is None
                numbers.append(facts.number)
                server.clock[0] += PATIENCE + 1  # type: ignore[attr-defined]
                server.objects.setdefault(PODS, {})
                if token == "made":
                    server.put(PODS, "one", metadata={"annotations": {"spotwright.dev/admission": facts.token}})
            return numbers

    assert asyncio.run(scenario()) == [1, 1, 1, 2]


def test_pods_of_a_job_that_are_alike_get_tasks_of_their_own(cluster: Cluster) -> None:
    wide = job(completions=3, parallelism=3)
    numbers = [facts.number for facts in find(cluster, wide, *(request(wide, str(n)) for n in range(3)))]
    assert numbers == [1, 1, 1]


def test_a_job_that_has_ended_keeps_its_history(cluster: Cluster) -> None:
    ended = pod("one", job(), node="n1", phase="Failed", exit_code=3)
    cluster.look(job(), ended)
    cluster.look(job(status=done("Failed")), ended)
    [facts] = find(cluster, job(), request(job()))
    assert facts.number == 2


def a_gang() -> tuple[dict[str, Any], dict[str, Any]]:
    """A JobSet, and its Job of two pods."""
    meta = {"name": "gang", "namespace": "team-a", "uid": "set-uid", "creationTimestamp": at(0)}
    spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": job()}]}
    jobset = {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2", "metadata": meta, "spec": spec}
    child = job("gang-node-0", parallelism=2, completions=2, completionMode="Indexed")
    owner = {"apiVersion": jobset["apiVersion"], "kind": "JobSet", "name": "gang", "uid": "set-uid", "controller": True}
    child["metadata"] |= {"ownerReferences": [owner], "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"}}
    return jobset, child


def test_every_pod_of_a_restart_is_told_why_the_set_was_started_again(cluster: Cluster) -> None:
    jobset, child = a_gang()
    run = cluster.store.create(jobset, templates_of((child, jobset)), (), cluster.now)
    for index in range(2):
        labels = {"jobset.sigs.k8s.io/restart-attempt": "0", "batch.kubernetes.io/job-completion-index": str(index)}
        ended = pod(f"{index}", child, node="n1", phase="Failed", exit_code=3, labels=labels, annotations=labels)
        cluster.view.clock += 10.0
        PodReconciler(run, cluster.view, cluster.now, admission=admission_of).record(
            [SeenPod(ended, (child, jobset))], jobset, are_all=False
        )
    run.commit()

    async def scenario() -> list[AdmissionContext]:
        async with finding(cluster, child) as (finder, server):
            path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets"
            server.put(path, "gang", "set-uid", **jobset)
            found = []
            for index in range(2):
                labels = {
                    "jobset.sigs.k8s.io/restart-attempt": "1",
                    "batch.kubernetes.io/job-completion-index": f"{index}",
                }
                new = pod("", child, labels=labels, annotations=labels)
                new["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
                asked = AdmissionRequest(f"review-{index}", "CREATE", "team-a", new)
                found.append(await finder.find(asked))
                assert found[-1].agree is not None
                wanted = ("gpu-spot",) if index == 0 else ("gpu",)
                assert found[-1].agree([("gpu-spot",), ("gpu",)], wanted) == ("gpu-spot",)
                assert await found[-1].keep(Admission(("gpu-spot",)), found[-1]) is None
            return found

    first, second = asyncio.run(scenario())
    assert [past.cause for past in first.history] == [Cause.FAILED]
    assert list(second.history) == list(first.history)
    assert (first.has_begun, second.has_begun) == (False, True)


IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"podFailurePolicy": IGNORES}, ""),
        ({"podFailurePolicy": IGNORES, "parallelism": 4, "completions": 4}, ""),
        (
            {"podFailurePolicy": IGNORES, "parallelism": 5, "completions": 5},
            "creates no pods for 160 s after 5 of them",
        ),
        ({"podFailurePolicy": IGNORES, "parallelism": 9, "completions": 9, "backoffLimitPerIndex": 3}, ""),
        ({"backoffLimit": 3}, "would count it against backoffLimit 3"),
    ],
)
def test_why_a_pod_stays_is_read_off_its_owner(cluster: Cluster, spec: dict[str, Any], words: str) -> None:
    owner = job(**spec)
    [facts] = find(cluster, owner, request(owner))
    assert words in facts.stays
    assert bool(facts.stays) is bool(words)


def test_a_pod_that_forges_its_attempt_is_made_precise_like_any_other(cluster: Cluster) -> None:
    forged = request(job())
    marks = {"spotwright.dev/attempt": "9", "spotwright.dev/admission": "copied"}
    forged.data["metadata"]["annotations"] = marks
    [facts] = find(cluster, job(), forged)
    assert (facts.is_admitted, facts.number, facts.token.partition("/")[0]) == (False, 1, "review")


def test_a_review_that_comes_again_leaves_the_pod_as_the_first_one_made_it(cluster: Cluster) -> None:
    async def scenario() -> list[AdmissionContext]:
        async with finding(cluster, job()) as (finder, _):
            first = await finder.find(request(job()))
            assert await first.keep(Admission(("gpu-spot",)), first) is None
            again = request(job(), "a second review")
            again.data["metadata"]["annotations"] = {"spotwright.dev/admission": first.token}
            return [first, await finder.find(again)]

    first, second = asyncio.run(scenario())
    assert (first.is_admitted, second.is_admitted) == (False, True)


def test_what_was_decided_is_noted_before_the_answer_and_never_in_a_dry_run(cluster: Cluster) -> None:
    decided = Admission(("gpu-spot",), why="first attempt")

    async def scenario() -> None:
        async with finding(cluster, job()) as (finder, server):
            dry = await finder.find(request(job(), "dry", dry_run=True))
            assert await dry.keep(decided, dry) is None
            assert TASKS not in server.objects
            real = await finder.find(request(job(), "real"))
            assert await real.keep(decided, real) is None
            [found] = server.objects[TASKS].values()
            token = Token.parse(real.token, "team-a")
            assert token is not None
            assert found["metadata"]["name"] == token.place.name
            content = msgspec.convert(found["spec"], Content)
            assert admission_in(content, "real", "pod-uid") == decided

            async def refused(_request: web.Request) -> web.Response:
                return web.json_response({"message": "no such right"}, status=403)

            later = await finder.find(request(job(), "later"))
            server.pages[f"{TASKS}/{token.place.name}"] = refused
            assert await later.keep(decided, later) == replace(later, is_known=False)

    asyncio.run(scenario())


def test_after_a_loss_numbers_go_on_from_those_that_pods_carry(cluster: Cluster) -> None:
    cluster.look(job(), pod("one", job(), node="n1", phase="Failed", exit_code=3))

    async def scenario() -> AdmissionContext:
        async with finding(cluster, job()) as (finder, server):
            server.objects.setdefault(PODS, {})
            for name, number in (("one", "2"), ("forged", "9" * 30)):
                made = pod(
                    name, job(), annotations={"spotwright.dev/attempt": number, "spotwright.dev/admission": name}
                )
                made["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
                server.put(PODS, name, **made)
            return await finder.find(request(job(), "next"))

    assert asyncio.run(scenario()).number == 3


def test_a_job_of_two_billion_pods_costs_no_more_than_its_attempts(cluster: Cluster) -> None:
    wide = job(completions=2_000_000_000, parallelism=5)
    began = time.process_time()
    numbers = [facts.number for facts in find(cluster, wide, *(request(wide, str(n)) for n in range(5)))]
    assert numbers == [1] * 5
    assert time.process_time() - began < 5.0
