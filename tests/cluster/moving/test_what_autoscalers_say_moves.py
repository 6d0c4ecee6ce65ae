"""A leader reads autoscalers: their orders stop the clock, and a pod whose pools cannot grow is moved at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cluster.moving.mover_bed import CONFIG, NODES, Bed, on_a_bed
from tests.cluster.watching.watched_objects import node
from tests.cluster.words import said

from spotwright import config as configuration
from spotwright.clouds.cluster_autoscaler import likely_group
from spotwright.cluster import descheduler
from spotwright.cluster.node_events import SUFFIX
from spotwright.engine.waits import CANNOT_GROW, NO_NODE, NO_SCALE_UP, NODE_ORDERED, ORDERS_UNKNOWN, in_vain_at
from spotwright.model.attempts import Cause

REGISTERED = "/apis/admissionregistration.k8s.io/v1"
EVENTS, MAPS = "/api/v1/events", "/api/v1/namespaces/kube-system/configmaps"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
STATUS = "cluster-autoscaler-status"
GROUPS = {name: likely_group(pool) for name, pool in configuration.from_mapping(CONFIG).pools.items()}
ON_KARPENTER = {**CONFIG, "pools": {name: {**one, "provider": "karpenter"} for name, one in CONFIG["pools"].items()}}
Scenario = Callable[[Bed], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descheduler, "_PAUSE", 0.02)
    monkeypatch.setattr(descheduler, "_LOOK_AGAIN", 0.1)
    monkeypatch.setattr(descheduler, "_ORDER_AGAIN", 0.1)


def group(pool: str, **more: Any) -> dict[str, Any]:
    return said.group(GROUPS[pool], since=time.time(), **more)


def put_status(bed: Bed, *groups: dict[str, Any]) -> None:
    bed.server.put(MAPS, STATUS, **said.status(*groups, when=time.time()))


def hear(bed: Bed, event: dict[str, Any]) -> None:
    meta = {"creationTimestamp": said.at(time.time()), **event["metadata"]}
    bed.server.put(EVENTS, event["metadata"]["name"], **{**event, "metadata": meta})


def prove_writers(bed: Bed) -> None:
    """Install the policy that proves who writes Events about nodes and NodePools, long before."""
    name, meta = f"spotwright{SUFFIX}", {"creationTimestamp": "2020-01-01T00:00:00Z"}
    bed.server.put(f"{REGISTERED}/validatingadmissionpolicies", name, metadata=meta, spec={})
    spec = {"policyName": name, "validationActions": ["Deny"]}
    bed.server.put(f"{REGISTERED}/validatingadmissionpolicybindings", name, metadata=meta, spec=spec)


def waits(bed: Bed, kind: str) -> bool:
    return any(attempt.waits.partition(":")[0] == kind for attempt in bed.attempts())


def taken_back(bed: Bed) -> bool:
    return any(attempt.cause is Cause.UNSCHEDULABLE for attempt in bed.attempts())


def newest_waits(bed: Bed, number: int) -> bool:
    """Whether there are so many attempts, and the newest one waits."""
    attempts = bed.attempts()
    return len(attempts) == number and bool(attempts[-1].waits)


async def stays(bed: Bed) -> None:
    """The pod waits for ten times as long as ``pending_timeout`` and is left where it is."""
    await asyncio.sleep(1.0)
    assert bed.asked == []


def karpenter(bed: Bed) -> None:
    bed.config = ON_KARPENTER
    bed.server.served["/apis/karpenter.sh/v1"] = ["nodeclaims"]
    bed.server.objects[CLAIMS] = {}


def claim(bed: Bed, name: str = "x", **more: Any) -> None:
    made = said.claim(name, pool="gpu-spot", made=time.time(), **more)
    bed.server.put(CLAIMS, name, **made)


def test_a_pod_whose_node_boots_longer_than_the_time_out_stays(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            await stays(bed)
            bed.pod("one", node="n1", phase="Running")
            await bed.until(lambda: bed.attempts()[0].bound_at)
        assert bed.attempts()[0].taken_back is None
        assert not bed.told.all

    on_a_bed(tmp_path, scenario)


def test_an_event_alone_stops_the_clock_where_there_is_no_status(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        hear(bed, said.triggered(time.time(), GROUPS["gpu-spot"]))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            await stays(bed)

    on_a_bed(tmp_path, scenario)


def test_a_group_that_gets_into_backoff_moves_its_pod_at_once_and_is_left_out(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.config = {**CONFIG, "policy": {"default": {"spot": "prefer", "pending_timeout": "10m"}}}
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            began = time.monotonic()
            put_status(bed, group("gpu-spot", state="Backoff", error="OUT_OF_RESOURCES"), group("gpu"))
            await bed.until(lambda: taken_back(bed))
            assert time.monotonic() - began < 5
        [attempt] = bed.attempts()
        assert attempt.cause_why.startswith("no node can come on gpu-spot: ")
        assert "OUT_OF_RESOURCES" in attempt.cause_why
        assert [one.pool for one in bed.told.all] == ["gpu-spot"]

    on_a_bed(tmp_path, scenario)


def test_what_is_said_of_a_pod_alone_moves_it_and_leaves_out_no_pool_for_others(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        hear(bed, said.not_triggered(time.time()))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: taken_back(bed))
        [attempt] = bed.attempts()
        assert attempt.waits.startswith(NO_SCALE_UP)
        assert not bed.told.all

    on_a_bed(tmp_path, scenario)


def test_a_pod_that_is_open_to_all_rungs_is_never_moved(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        put_status(bed, group("gpu-spot", state="Backoff"), group("gpu", state="Backoff"))
        marks = {
            "spotwright.dev/rung": "gpu-spot,gpu",
            "spotwright.dev/open": "the expander",
            "spotwright.dev/why": "open",
        }
        bed.pod("one", annotations=marks)
        async with bed.leader():
            await bed.until(lambda: waits(bed, CANNOT_GROW))
            await stays(bed)
        [attempt] = bed.attempts()
        assert (attempt.is_open, attempt.why, attempt.pools) == (True, "open", ("gpu-spot", "gpu"))

    on_a_bed(tmp_path, scenario)


def refuse(bed: Bed, path: str, only: str = "") -> None:
    """Answer 403 to every list request for a path; ``only`` if this is in the selector."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if only in request.query.get("fieldSelector", ""):
            return web.json_response({"kind": "Status", "message": "forbidden: you may not", "code": 403}, status=403)
        if request.query.get("watch") == "true":
            return await bed.server._watch(request)
        meta = {"resourceVersion": str(bed.server.version)}
        return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": []})

    bed.server.pages[path] = answer


@pytest.mark.parametrize("is_set", [True, False])
def test_who_may_not_read_events_has_the_clock_alone_with_a_longer_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_set: bool
) -> None:
    async def scenario(bed: Bed) -> None:
        if not is_set:
            bed.config = {**CONFIG, "policy": {"default": {"spot": "prefer"}}}
        refuse(bed, EVENTS, "source=")
        refuse(bed, MAPS)
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, ORDERS_UNKNOWN))
            if is_set:
                await bed.until(lambda: taken_back(bed))
                return
            await stays(bed)
            run, [attempt] = bed.run(), bed.attempts()
            assert run is not None
            due = in_vain_at(run.tasks["train"], attempt)
            assert due is not None
            assert due - (attempt.waits_since or 0.0) == 960

    on_a_bed(tmp_path, scenario)
    assert "some autoscalers' status cannot be read" in caplog.text
    assert "docs/how-to/cluster/install.md has the rights" in caplog.text


def test_who_may_not_read_the_status_hears_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bed: Bed) -> None:
        refuse(bed, MAPS)
        hear(bed, said.triggered(time.time()))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))

    on_a_bed(tmp_path, scenario)
    assert "some autoscalers' status cannot be read" in caplog.text


def test_who_may_not_read_node_claims_hears_nominations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bed: Bed) -> None:
        karpenter(bed)
        refuse(bed, CLAIMS)
        hear(bed, said.of_karpenter("Nominated", "Pod should schedule on: nodeclaim/x", time.time()))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            await stays(bed)

    on_a_bed(tmp_path, scenario)
    assert "some autoscalers' status cannot be read" in caplog.text


def test_a_node_claim_stops_the_clock_until_it_is_deleted(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        karpenter(bed)
        claim(bed)
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            await stays(bed)
            bed.server.delete(CLAIMS, "x")  # its NodePool is deleted, and with it its claims
            await bed.until(lambda: taken_back(bed))
        assert bed.attempts()[0].cause_why.startswith("no node on gpu-spot for ")

    on_a_bed(tmp_path, scenario)


def test_a_node_pool_without_offerings_moves_its_pod_at_once(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        karpenter(bed)
        prove_writers(bed)
        bed.config = {**ON_KARPENTER, "policy": {"default": {"spot": "prefer", "pending_timeout": "10m"}}}
        claim(bed)
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            bed.server.delete(CLAIMS, "x")
            await bed.until(lambda: waits(bed, NO_NODE))
            event = said.no_offering("gpu-spot", time.time())
            hear(bed, event)
            hear(bed, said.of_karpenter("FailedScheduling", "incompatible requirements", time.time()))
            await bed.until(lambda: taken_back(bed))
        assert "NoCompatibleInstanceTypes" in bed.attempts()[0].cause_why
        assert [one.pool for one in bed.told.all] == ["gpu-spot"]

    on_a_bed(tmp_path, scenario)


def test_a_pod_whose_ordered_node_never_comes_is_moved_after_the_limit(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        bed.config = {**CONFIG, "policy": {"default": {"spot": "prefer", "pending_timeout": "10m"}}}
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one")
        async with bed.leader(order_limit=0.5):
            await bed.until(lambda: taken_back(bed))
        assert "is on its way for 0.5s, without success" in bed.attempts()[0].cause_why
        assert [one.pool for one in bed.told.all] == ["gpu-spot"]

    on_a_bed(tmp_path, scenario)


OPEN = {"spotwright.dev/rung": "gpu-spot,gpu", "spotwright.dev/open": "open to all its rungs"}


def test_an_open_pod_is_moved_where_karpenter_orders_the_same_node_for_ever(tmp_path: Path) -> None:
    """It orders the same NodePool again and again. The next attempt is pinned; no pool is left out for others."""

    async def scenario(bed: Bed) -> None:
        karpenter(bed)
        claim(bed)
        bed.pod("one", annotations=OPEN)
        async with bed.leader(order_limit=0.5):
            await bed.until(lambda: taken_back(bed))
        assert bed.attempts()[0].is_open
        assert not bed.told.all

    on_a_bed(tmp_path, scenario)


def test_an_open_pod_is_left_to_a_cluster_autoscaler_that_goes_on_by_itself(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one", annotations=OPEN)
        async with bed.leader(order_limit=0.2):
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            await stays(bed)

    on_a_bed(tmp_path, scenario)


def test_a_group_that_is_deleted_while_a_node_of_it_is_ordered_leaves_the_clock(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
            put_status(bed, group("gpu"))
            await bed.until(lambda: taken_back(bed))
        assert "and none on its way" in bed.attempts()[0].cause_why

    on_a_bed(tmp_path, scenario)


@pytest.mark.parametrize("has_failed", [True, False])
def test_an_order_that_goes_on_or_ends_while_no_controller_watches_is_seen_afterwards(
    tmp_path: Path, has_failed: bool
) -> None:
    async def scenario(bed: Bed) -> None:
        put_status(bed, group("gpu-spot", target=1, state="InProgress"), group("gpu"))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: waits(bed, NODE_ORDERED))
        if has_failed:
            put_status(bed, group("gpu-spot", state="Backoff"), group("gpu"))
        async with bed.leader():
            if has_failed:
                await bed.until(lambda: taken_back(bed))
            else:
                await stays(bed)

    on_a_bed(tmp_path, scenario)


def test_pools_of_nodes_that_nobody_described_are_no_rungs_also_after_a_restart(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        system = {"kubernetes.azure.com/agentpool": "system", "kubernetes.azure.com/mode": "system"}
        bed.put(NODES, node("sys-1", **system))
        bed.put(NODES, node("bare"))
        bed.pod("one")
        async with bed.leader():
            await bed.until(lambda: len(bed.asked) == 1)
            await bed.until(lambda: taken_back(bed))
        for number, name in enumerate(("two", "three"), 2):
            bed.pod(name, annotations={"spotwright.dev/rung": "gpu"})
            async with bed.leader():
                await bed.until(partial(newest_waits, bed, number))
                await asyncio.sleep(0.5)
                run = bed.run()
                assert run is not None
                assert [rung.pools for rung in run.tasks["train"].plan.ladder.rungs] == [("gpu-spot",), ("gpu",)]
                assert set(run.plan.config.pools) > {"gpu-spot", "gpu"}
        assert all(attempt.pools in (("gpu-spot",), ("gpu",)) for attempt in bed.attempts())
        decided = [attempt.taken_back for attempt in bed.attempts() if attempt.taken_back is not None]
        assert {tuple(one.pools) for one in decided} <= {("gpu-spot",), ("gpu",)}

    on_a_bed(tmp_path, scenario)
