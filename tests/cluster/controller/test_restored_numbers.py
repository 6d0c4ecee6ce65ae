"""After the objects with numbers were deleted: they are read off pods in pages, beside the reviews, however many there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from aiohttp import web
from tests.cluster.controller.findings import finding
from tests.cluster.watching.small_api_server import serving
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import pod

from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.marked_pods import MarkedPod, marked_pods

PODS = "/api/v1/namespaces/team-a/pods"
TRAINING = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
OWNER: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "train", "namespace": "team-a", "uid": "uid-train"},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def carrying(name: str, token: str, number: str, owner: str = "train", **annotations: str) -> dict[str, Any]:
    """The number on a pod of a PyTorchJob."""
    reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": owner,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    marks = {"spotwright.dev/admission": token, "spotwright.dev/attempt": number, **annotations}
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    return {"name": name, "annotations": marks, "labels": labels, "ownerReferences": [reference]}


def review(token: str, owner: str = "train") -> AdmissionRequest:
    meta = carrying("", "", "", owner)
    meta["annotations"] = {}
    made = pod("")
    return AdmissionRequest(token, "CREATE", "team-a", {**made, "metadata": {**made["metadata"], **meta}})


def numbers(cluster: Cluster, prepare: Any, *requests: AdmissionRequest) -> tuple[list[int | None], list[str]]:
    """The numbers of pods under review, of tasks that have one attempt, and the requests to the API server."""
    for owner in ("train", "other"):
        root = {**OWNER, "metadata": {**OWNER["metadata"], "name": owner, "uid": f"uid-{owner}"}}
        meta = carrying(f"{owner}-of-before", "token", "1", owner)
        made = pod(meta["name"], node="n1", phase="Failed", exit_code=3)
        cluster.look(root, {**made, "metadata": {**made["metadata"], **meta}})

    async def scenario() -> tuple[list[int | None], list[str]]:
        async with finding(cluster) as (finder, server):
            for name in ("train", "other"):
                server.put(TRAINING, name, f"uid-{name}", **{**OWNER, "metadata": {}})
            prepare(server)
            found = [(await finder.find(request)).number for request in requests]
            return found, server.asked

    return asyncio.run(scenario())


def test_pods_without_a_label_of_their_job_are_read_in_pages_and_once_for_all_reviews(cluster: Cluster) -> None:
    def prepare(server: Any) -> None:
        for number in range(400):
            meta = carrying(f"p{number:03}", f"token-{number}", "1", f"stranger-{number}")
            server.put(PODS, meta.pop("name"), metadata=meta)
        meta = carrying("train-0", "token", "6")
        server.put(PODS, meta.pop("name"), metadata=meta)

    found, asked = numbers(cluster, prepare, review("one"), review("two", "other"))
    assert found == [7, 2]
    assert not [line for line in asked if "stranger" in line]
    pages = [parse_qs(urlsplit(line).query) for line in asked if line.startswith(f"GET {PODS}")]
    assert len(pages) == 5
    assert all(int(page["limit"][0]) <= 100 for page in pages)


def test_a_server_that_takes_its_time_holds_no_review_up(cluster: Cluster) -> None:
    def prepare(server: Any) -> None:
        async def late(_request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(3.0)
            return web.json_response({"items": [], "metadata": {}})

        server.pages[PODS] = late

    began = time.monotonic()
    found, _ = numbers(cluster, prepare, review("one"))
    assert found == [2]
    assert time.monotonic() - began < 3.0


def test_a_pod_that_says_odd_things_of_itself_is_left_out(cluster: Cluster) -> None:
    def prepare(server: Any) -> None:
        odd = [
            carrying("a", "t" * 101, "5"),
            carrying("b", "token-b", "five"),
            carrying("c", "token-c", "9" * 50),
            carrying("d", "token-d", "5", note="x" * 5_000),
            carrying("e", "token-e", "2"),
        ]
        for meta in odd:
            server.put(PODS, meta.pop("name"), metadata=meta)

    assert numbers(cluster, prepare, review("one"))[0] == [3]


def read(most_bytes: int, *pods: dict[str, Any]) -> tuple[list[MarkedPod], list[str]]:
    async def scenario() -> tuple[list[MarkedPod], list[str]]:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            for meta in pods:
                spec = {"padding": meta.pop("padding", "")}
                server.put(PODS, meta.pop("name"), metadata=meta, spec=spec)
            found = [each async for each in marked_pods(Api(client), "team-a", most_bytes=most_bytes)]
            return found, server.asked

    return asyncio.run(scenario())


def test_large_pods_are_read_a_few_at_a_time_and_up_to_a_limit() -> None:
    large = [{**carrying(f"p{n}", f"token-{n}", "1"), "padding": "x" * 400_000} for n in range(12)]
    found, asked = read(8_000_000, *[dict(each) for each in large])
    assert [each.token for each in found] == sorted(f"token-{n}" for n in range(12))
    assert {parse_qs(urlsplit(line).query)["limit"][0] for line in asked} == {"100", "12", "1"}
    with pytest.raises(ApiFailed, match="larger than"):
        read(2_000_000, *[dict(each) for each in large])
