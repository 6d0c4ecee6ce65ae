"""One namespace whose objects cost seconds beside a quiet one, through the real server: the quiet one does not notice."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_job
from tests.cluster.reviews import a_review
from tests.cluster.webhook_servers import a_certificate, a_webhook, serving

from spotwright.cluster import admission_server
from spotwright.cluster.admit_objects import Outcome
from spotwright.cluster.namespace_costs import ANSWER, NamespaceCosts


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Objects with this label take a third of a second of the processor, as those of no real release should; each is noted."""
    real, ended = admission_server.admit, list[float]()

    def admit(data: Mapping[str, Any], *given: Any, **more: Any) -> Outcome:
        if "costly" in (data["metadata"].get("labels") or {}):
            until = time.thread_time() + 0.33
            while time.thread_time() < until:
                sum(range(200))
            ended.append(time.monotonic())
        return real(data, *given, **more)

    monkeypatch.setattr(admission_server, "admit", admit)
    return ended


async def mutate(session: ClientSession, address: str, namespace: str, data: dict[str, Any]) -> dict[str, Any]:
    async with session.post(f"{address}/mutate", data=a_review(data, namespace=namespace)) as response:
        answer: dict[str, Any] = (await response.json())["response"]
        return answer


def a_costly_job() -> dict[str, Any]:
    job = a_job()
    return {**job, "metadata": {**job["metadata"], "labels": {"costly": ""}}}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_server, "ANSWER_AFTER", 60.0)  # of a busy machine


def test_a_quiet_namespace_waits_for_few_objects_of_one_that_costs_too_much(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, slow: list[float]
) -> None:
    costs = NamespaceCosts(ANSWER)
    monkeypatch.setattr(admission_server, "NamespaceCosts", lambda _allowed: costs)

    async def scenario() -> None:
        async with serving(certificate) as (session, address):

            async def costly() -> dict[str, Any]:
                return await mutate(session, address, "hostile", a_costly_job())

            burst = [asyncio.create_task(costly()) for _ in range(40)]
            waited_for = []
            while len(slow) < 12:
                before = len(slow)
                assert "patch" in await mutate(session, address, "team-a", a_job()), "it is placed all the same"
                waited_for.append(len(slow) - before)
                await asyncio.sleep(0.05)
            assert sorted(waited_for)[len(waited_for) // 2] <= 2, "two work at once at most; in a queue it would be all"
            assert max(waited_for) <= 8, waited_for
            assert all(answer["allowed"] for answer in await asyncio.gather(*burst))
            while not costs.aside:
                await costly()
            ((namespace, _),) = costs.aside
            assert namespace == "hostile"
            assert len(slow) < 40, "the last of the burst were answered without a look at them"
            answer = await mutate(session, address, "hostile", a_job())
            assert (answer["allowed"], "patch" in answer) == (True, False)
            assert "this namespace is set aside for 5 minutes" in answer["warnings"][0]
            assert "patch" in await mutate(session, address, "team-a", a_job())

    asyncio.run(scenario())


def test_a_namespace_that_was_set_aside_is_placed_again_afterwards(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    costs = NamespaceCosts(ANSWER, lambda: clock)
    monkeypatch.setattr(admission_server, "NamespaceCosts", lambda _allowed: costs)

    async def scenario() -> None:
        nonlocal clock
        async with serving(certificate) as (session, address):
            costs.spent(("team-a", "127.0.0.1"), 60.0)
            assert "patch" not in await mutate(session, address, "team-a", a_job())
            clock += 300.0
            assert "patch" in await mutate(session, address, "team-a", a_job())

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow")
def test_a_review_counts_as_too_late_where_its_asker_has_gone_on(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = a_webhook()
    caplog.set_level(logging.INFO, "spotwright.cluster.admission_server")

    async def scenario() -> None:
        async with serving(certificate, webhook=webhook) as (session, address):
            await mutate(session, address, "team-a", a_job())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await mutate(session, address, "team-a", a_costly_job())
            async with asyncio.timeout(60):
                while webhook.verdicts.total() < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert webhook.verdicts == {"placed": 1, "too late": 1}
    assert [said.rpartition(": ")[2] for said in caplog.messages] == ["placed", "too late"]


def test_reviews_of_one_address_that_take_long_to_read_hold_up_no_other_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that reaches the port may send hundreds at once; the API server has another address."""
    real, read = admission_server.parse_review, list[str]()

    def parse(body: bytes | bytearray) -> admission_server.AdmissionRequest:
        asked = real(body)
        until = time.thread_time() + (0.04 if asked.namespace == "hostile" else 0.0)
        while time.thread_time() < until:
            sum(range(200))
        read.append(asked.namespace)
        return asked

    monkeypatch.setattr(admission_server, "parse_review", parse)

    async def scenario() -> None:
        async with serving(certificate) as (session, address):
            assert "patch" in await mutate(session, address, "team-a", a_job())
            context = ssl.create_default_context(cafile=certificate / "tls.crt")
            pod = TCPConnector(ssl=context, local_addr=("127.0.0.2", 0), limit=200)
            async with ClientSession(connector=pod) as hostile:
                burst = [asyncio.create_task(mutate(hostile, address, "hostile", a_job())) for _ in range(100)]
                while not read.count("hostile"):  # noqa: ASYNC110  # the server's own code writes it
                    await asyncio.sleep(0.001)
                before = len(read)
                assert "patch" in await mutate(session, address, "team-a", a_job())
                assert read.index("team-a", before) - before <= 8, "in one queue it would be nearly all"
                await asyncio.gather(*burst, return_exceptions=True)

    asyncio.run(scenario())
