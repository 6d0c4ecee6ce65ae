"""Names written by tenants never redirect a request of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.attempt_lookup import Lookups
from spotwright.cluster.descheduler import Eviction, EvictionJournal
from spotwright.cluster.workloads import MOST_OWNERS

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
ELSEWHERE = [
    "../../team-b/jobs/x",
    "../../../../api/v1/pods",
    "x/log",
    "x?watch=true",
    "x#y",
    "%2e%2e",
    "..",
    ".",
    "x..y",
    "x\n",
    " x",
    "X",
    "x\x00",
    "a" * 254,
    "-x",
    "\uff58",
]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_that_no_object_has_makes_no_path(name: str) -> None:
    with pytest.raises(ApiFailed, match="not a possible name"):
        object_path("batch/v1", "Job", name, "team-a")
    with pytest.raises(ApiFailed, match="not a possible name"):
        object_path("batch/v1", "Job", "train", name)


def test_a_name_may_be_as_long_as_kubernetes_allows() -> None:
    assert object_path("batch/v1", "Job", "a" * 253, "n" * 63).endswith("a" * 253)
    with pytest.raises(ApiFailed, match="not a possible name"):
        object_path("batch/v1", "Job", "train", "n" * 64)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "Secret"),
        ("v1", "Job"),
        ("evil.io/v1", "Job"),
        ("batch/v1/namespaces/team-b", "Job"),
        ("../../api/v1", "Pod"),
        ("batch/..", "Job"),
        ("batch/v1", "job"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("", ""),
    ],
)
def test_a_kind_that_is_not_placed_makes_no_path(api_version: str, kind: str) -> None:
    with pytest.raises(ApiFailed, match="Spotwright does not read this kind"):
        object_path(api_version, kind, "x", "team-a")


def test_an_object_without_a_name_is_not_a_list_of_all() -> None:
    with pytest.raises(ApiFailed, match="not a possible name"):
        object_path("batch/v1", "Job", "", "team-a")


def test_paths_are_those_of_the_api() -> None:
    assert object_path("batch/v1", "Job", "train.v2", "team-a") == f"{JOBS}/train.v2"
    assert object_path("v1", "Pod", namespace="team-a") == "/api/v1/namespaces/team-a/pods"
    assert object_path("v1", "Node", "n1") == "/api/v1/nodes/n1"
    version = "trainer.kubeflow.org/v1alpha1"
    assert object_path(version, "ClusterTrainingRuntime", "torch") == f"/apis/{version}/clustertrainingruntimes/torch"


def an_owned_pod(**reference: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True, **reference}
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "team-a", "ownerReferences": [owner]}}


async def looked_up(server: SmallApiServer, *pods: dict[str, Any]) -> list[bool]:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        lookups = Lookups(Api(client))
        return [(await lookups.owners(pod)).is_complete for pod in pods]


def test_nothing_is_asked_for_an_owner_with_a_name_that_leads_elsewhere() -> None:
    async def scenario() -> None:
        async with serving() as server:
            pods = [an_owned_pod(name=name) for name in ELSEWHERE]
            pods += [an_owned_pod(apiVersion=version) for version in ("../../api/v1", "v1", "batch/v1/namespaces/b")]
            assert not any(await looked_up(server, *pods))
            assert server.asked == []

    asyncio.run(scenario())


def test_an_object_that_is_referred_to_is_read_only_if_its_kind_is_placed() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            lookups = Lookups(Api(client))
            for version, kind, name in (
                ("v1", "Secret", "token"),
                ("batch/v1", "Job", "../../team-b/jobs/x"),
                ("batch/v1/namespaces/team-b", "Job", "x"),
            ):
                assert await lookups.find_object(version, kind, name, "team-a") is None
            assert server.asked == []

    asyncio.run(scenario())


def test_an_owner_of_another_namespace_with_the_same_uid_is_not_taken() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.put(JOBS, "train", "u", apiVersion="batch/v1", kind="Job")
            other = an_owned_pod()
            other["metadata"]["namespace"] = "team-b"
            assert await looked_up(server, an_owned_pod(), other) == [True, False]

    asyncio.run(scenario())


def test_a_long_row_of_owners_is_not_followed_to_its_end() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for number in range(60):
                above = an_owned_pod(name=f"j{number + 1}", uid=f"u{number + 1}")["metadata"]["ownerReferences"]
                server.put(
                    JOBS,
                    f"j{number}",
                    f"u{number}",
                    apiVersion="batch/v1",
                    kind="Job",
                    metadata={"ownerReferences": above},
                )
            assert await looked_up(server, an_owned_pod(name="j0", uid="u0")) == [False]
            assert len(server.asked) <= MOST_OWNERS + 1

    asyncio.run(scenario())


def test_an_object_of_megabytes_is_not_taken() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            version, path = "argoproj.io/v1alpha1", "/apis/argoproj.io/v1alpha1/namespaces/team-a/workflowtemplates"
            server.put(path, "large", apiVersion=version, kind="WorkflowTemplate", spec={"text": "x" * 600_000})
            server.put(path, "small", apiVersion=version, kind="WorkflowTemplate")
            lookups = Lookups(Api(client))
            assert await lookups.find_object(version, "WorkflowTemplate", "large", "team-a") is None
            assert await lookups.find_object(version, "WorkflowTemplate", "small", "team-a") is not None

    asyncio.run(scenario())


def test_a_pod_with_a_name_that_leads_elsewhere_is_neither_evicted_nor_deleted() -> None:
    async def scenario() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            evictions = EvictionJournal(Api(client))
            for name in ELSEWHERE:
                evictions.want(Eviction("delete", "team-a", name, f"uid-{name}", "1", "why"))
            await evictions.do(0.0)
            assert server.asked == []

    asyncio.run(scenario())
