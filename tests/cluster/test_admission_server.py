"""The HTTPS server of the webhook, over real TLS on the loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cluster.admission_objects import a_job
from tests.cluster.admitted_pods import a_pod, taken
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review
from tests.cluster.trainjobs import RUNTIME, TRAINJOB
from tests.cluster.webhook_servers import Cluster, a_certificate, a_webhook, mutate, serving

from spotwright.cluster import admission_server
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.metrics import Metrics


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come as late as a busy machine makes them; tests of late answers set their own limits."""
    for limit in ("ANSWER_AFTER", "LOOK_UP", "FACTS"):
        monkeypatch.setattr(admission_server, limit, 60.0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for the loopback, ``tls.crt``, and its key, ``tls.key``."""
    return a_certificate(tmp_path_factory.mktemp("tls"))


def patched(data: dict[str, Any], answer: Mapping[str, Any]) -> Any:
    return apply_patch(data, json.loads(base64.b64decode(answer["patch"])))


def test_an_object_is_placed_over_tls(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(certificate) as (session, address):
            answer = await mutate(session, address, a_job())
            assert answer["allowed"] is True
            assert patched(a_job(), answer)["spec"]["template"]["spec"]["tolerations"]

    asyncio.run(scenario())


def test_what_an_object_refers_to_is_read_from_the_cluster(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(certificate, Cluster(RUNTIME)) as (session, address):
            assert "patch" in await mutate(session, address, TRAINJOB)
        async with serving(certificate) as (session, address):
            assert "patch" not in await mutate(session, address, TRAINJOB)

    asyncio.run(scenario())


def test_a_pod_gets_the_rung_that_its_history_leads_to(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(certificate, Cluster(facts=taken("spot-a"))) as (session, address):
            pod = patched(a_pod(), await mutate(session, address, a_pod()))
            assert pod["metadata"]["annotations"]["spotwright.dev/rung"] == "spot-b"

    asyncio.run(scenario())


def test_facts_that_do_not_come_in_time_leave_the_pod_as_its_object_was_placed(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "FACTS", 0.05)

    async def scenario() -> None:
        async with serving(certificate, Cluster(facts=taken("spot-a"), delay=600)) as (session, address):
            answer = await mutate(session, address, a_pod())
            assert (answer["allowed"], "patch" in answer) == (True, False)

    asyncio.run(scenario())


def test_an_answer_that_would_be_late_allows_the_object_unchanged(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "ANSWER_AFTER", 0.05)

    async def scenario() -> None:
        async with serving(certificate, Cluster(RUNTIME, delay=600)) as (session, address):
            answer = await mutate(session, address, TRAINJOB)
            assert (answer["allowed"], "patch" in answer) == (True, False)
            assert "the review timed out" in answer["warnings"][0]

    asyncio.run(scenario())


def test_many_at_once_are_all_answered_with_their_own_uid(certificate: Path) -> None:
    async def scenario() -> None:
        async with serving(certificate) as (session, address):
            uids = [str(number) for number in range(60)]
            answers = await asyncio.gather(*(mutate(session, address, a_job(), uid=uid) for uid in uids))
            assert [answer["uid"] for answer in answers if "patch" in answer] == uids

    asyncio.run(scenario())


def test_a_body_that_is_no_review_is_a_bad_request(certificate: Path) -> None:
    async def scenario() -> None:
        async with (
            serving(certificate) as (session, address),
            session.post(f"{address}/mutate", data=b"{}") as response,
        ):
            assert response.status == 400

    asyncio.run(scenario())


@pytest.mark.parametrize(("is_ready", "status"), [(True, 200), (False, 503)])
def test_it_is_alive_before_it_is_ready(certificate: Path, is_ready: bool, status: int) -> None:
    async def scenario() -> None:
        async with serving(certificate, is_ready=is_ready) as (session, address):
            async with session.get(f"{address}/healthz") as response:
                assert response.status == 200
            async with session.get(f"{address}/readyz") as response:
                assert response.status == status

    asyncio.run(scenario())


@pytest.mark.parametrize("part", ["look-up", "decision"])
def test_a_defect_is_logged_warned_about_and_counted_and_denies_nothing(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    def broken(*_arguments: Any, **_options: Any) -> Any:
        raise ValueError("a missing library")

    async def broken_look_up(_cluster: Cluster, _request: AdmissionRequest) -> AdmissionContext:
        raise ValueError("a missing library")

    if part == "look-up":
        monkeypatch.setattr(Cluster, "find_facts", broken_look_up)
    else:
        monkeypatch.setattr(admission_server, "admit_pod", broken)
    webhook = a_webhook()

    async def scenario() -> None:
        async with serving(certificate, webhook=webhook) as (session, address):
            answer = await mutate(session, address, a_pod())
            assert (answer["allowed"], "patch" in answer) == (True, False)
            assert answer["warnings"] == [
                "spotwright: not placed: Spotwright has failed; see the log of its controller"
            ]

    asyncio.run(scenario())
    assert "a missing library" in caplog.text
    text = Metrics(pauses=tuple, verdicts=lambda: webhook.verdicts).text()
    assert 'spotwright_reviews_total{verdict="defect"} 1' in text.splitlines()


def test_a_server_that_ends_answers_what_comes_and_closes_each_connection_with_its_answer(certificate: Path) -> None:
    async def scenario() -> tuple[float, list[str]]:
        webhook = a_webhook()
        async with serving(certificate, webhook=webhook) as (session, address):
            await mutate(session, address, a_job())
            draining = asyncio.create_task(webhook.drain())
            await asyncio.sleep(0)
            said = []
            for _ in range(5):
                async with session.post(f"{address}/mutate", data=a_review(a_job())) as response:
                    assert (await response.json())["response"]["patch"]
                    said.append(response.headers["Connection"])
                assert not draining.done()
                await asyncio.sleep(0.05)
            began = time.monotonic()
            await draining
            return time.monotonic() - began, said

    waited, said = asyncio.run(scenario())
    assert said == ["close"] * 5
    assert waited < 2


def test_a_server_that_ends_answers_a_review_whose_facts_take_longer_than_the_pause_between_two(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "_QUIET", 2)
    is_there = asyncio.Event()
    was_asked = asyncio.Event()

    async def late(_cluster: Cluster, _request: AdmissionRequest) -> AdmissionContext:
        was_asked.set()
        await is_there.wait()
        return AdmissionContext()

    monkeypatch.setattr(Cluster, "find_facts", late)

    async def scenario() -> dict[str, Any]:
        webhook = a_webhook()
        async with serving(certificate, webhook=webhook) as (session, address):
            asking = asyncio.create_task(mutate(session, address, a_pod()))
            await was_asked.wait()
            draining = asyncio.create_task(webhook.drain())
            done, _ = await asyncio.wait([draining], timeout=0.5)
            assert not done
            is_there.set()
            await draining
            return await asking

    assert asyncio.run(scenario())["allowed"]


def test_a_server_that_ends_answers_what_came_while_it_got_no_processor(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "_QUIET", 4)
    is_connected, is_frozen = threading.Event(), threading.Event()

    def ask(address: str) -> int:
        place = urlsplit(address)
        connection = HTTPSConnection(str(place.hostname), place.port, context=ssl._create_unverified_context())  # noqa: S323
        with contextlib.closing(connection):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            is_connected.set()
            is_frozen.wait()
            connection.request("POST", "/mutate", a_review(a_job()))
            return connection.getresponse().status

    def freeze() -> None:
        is_frozen.set()
        time.sleep(1.0)

    async def scenario() -> int:
        webhook = a_webhook()
        async with serving(certificate, webhook=webhook) as (session, address):
            asking = asyncio.create_task(asyncio.to_thread(ask, address))
            await asyncio.to_thread(is_connected.wait)
            await mutate(session, address, a_job())
            draining = asyncio.create_task(webhook.drain())
            await asyncio.sleep(0.1)
            freeze()
            await draining
        return await asking

    assert asyncio.run(scenario()) == 200


def test_a_server_that_nobody_asks_ends_at_once_and_one_that_is_asked_for_ever_ends_too(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "_DRAIN", 1.0)

    async def ends_after(*, is_asked: bool) -> float:
        webhook = a_webhook()
        async with serving(certificate, webhook=webhook) as (session, address):

            async def ask() -> None:
                while True:
                    await mutate(session, address, a_job())

            asking = asyncio.create_task(ask()) if is_asked else None
            await asyncio.sleep(0.3 if is_asked else 0)
            began = time.monotonic()
            await webhook.drain()
            took = time.monotonic() - began
            if asking is not None:
                asking.cancel()
            return took

    assert asyncio.run(ends_after(is_asked=False)) < 0.1
    assert 0.9 < asyncio.run(ends_after(is_asked=True)) < 5


def test_a_pod_of_which_nothing_can_be_noted_stays_as_its_object_was_placed(certificate: Path) -> None:
    asked: list[Admission] = []

    async def refused(admission: Admission, facts: AdmissionContext) -> AdmissionContext:
        asked.append(admission)
        return replace(facts, is_known=False)

    async def scenario() -> None:
        async with serving(certificate, Cluster(facts=replace(taken("spot-a"), keep=refused))) as (session, address):
            assert "patch" not in await mutate(session, address, a_pod())

    asyncio.run(scenario())
    assert [one.pools for one in asked] == [("spot-b",)]


def test_a_pod_whose_gang_has_agreed_otherwise_meanwhile_is_decided_again(certificate: Path) -> None:
    agreed, kept = [("spot-a",)], []

    async def keep(admission: Admission, facts: AdmissionContext) -> AdmissionContext | None:
        kept.append(admission.pools)
        agreed[0] = ("spot-b",)
        return None if admission.pools == agreed[0] else facts

    async def scenario() -> None:
        facts = AdmissionContext(agree=lambda *_: agreed[0], keep=keep)
        async with serving(certificate, Cluster(facts=facts)) as (session, address):
            pod = patched(a_pod(), await mutate(session, address, a_pod()))
            assert pod["metadata"]["annotations"]["spotwright.dev/rung"] == "spot-b"

    asyncio.run(scenario())
    assert kept == [("spot-a",), ("spot-b",)]
