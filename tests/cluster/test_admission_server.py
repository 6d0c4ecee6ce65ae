"""The HTTPS server of the webhook, over real TLS on the loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.admitted_pods import a_pod, taken
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review
from tests.cluster.trainjobs import RUNTIME, TRAINJOB

from spotwright.cluster import admission_server
from spotwright.cluster.admission_server import AdmissionRequest, Webhook, start_server
from spotwright.cluster.admit_pods import PodFacts
from spotwright.cluster.certificates import ServedCertificate
from spotwright.cluster.configurations import Configurations


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come as late as a busy machine makes them; tests of late answers set their own limits."""
    for limit in ("ANSWER_AFTER", "LOOK_UP", "FACTS"):
        monkeypatch.setattr(admission_server, limit, 60.0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for the loopback, ``tls.crt``, and its key, ``tls.key``."""
    return a_certificate(tmp_path_factory.mktemp("tls"))


def a_certificate(folder: Path) -> Path:
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
    return folder


class Cluster:
    """What the webhook reads: objects by kind and name, and the facts of all pods; each answer takes ``delay`` seconds."""

    def __init__(self, *objects: dict[str, Any], facts: PodFacts | None = None, delay: float = 0.0) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.facts, self.delay = facts or PodFacts(), delay

    async def find_object(self, _version: str, kind: str, name: str, _namespace: str) -> Mapping[str, Any] | None:
        await asyncio.sleep(self.delay)
        return self.objects.get((kind, name))

    async def find_facts(self, _request: AdmissionRequest) -> PodFacts:
        await asyncio.sleep(self.delay)
        return self.facts


POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, errors: {retries: 1}}}"


@asynccontextmanager
async def serving(
    certificate: Path, cluster: Cluster | None = None, *, is_ready: bool = True
) -> AsyncIterator[tuple[ClientSession, str]]:
    """A client that trusts the certificate alone, and the server's address."""
    cluster = cluster or Cluster()
    configurations = Configurations("spotwright")
    configurations.apply("team-a", {"data": {"spotwright.yaml": a_config(POLICY).text}})
    webhook = Webhook(configurations, cluster.find_object, cluster.find_facts, lambda: is_ready, "refusal:1")
    served = ServedCertificate(certificate / "tls.crt", certificate / "tls.key")
    runner = await start_server(webhook, served.context(), host="127.0.0.1", port=0)
    context = ssl.create_default_context(cafile=certificate / "tls.crt")
    try:
        async with ClientSession(connector=TCPConnector(ssl=context)) as session:
            yield session, f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def mutate(session: ClientSession, address: str, data: dict[str, Any], **request: Any) -> dict[str, Any]:
    async with session.post(f"{address}/mutate", data=a_review(data, **request)) as response:
        assert response.status == 200
        answer: dict[str, Any] = (await response.json())["response"]
        return answer


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
            assert "had no time" in answer["warnings"][0]

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


def test_a_defect_in_what_is_looked_up_is_said_and_denies_nothing(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_cluster: Cluster, _request: AdmissionRequest) -> PodFacts:
        raise ValueError("a label that nobody has thought of")

    monkeypatch.setattr(Cluster, "find_facts", broken)

    async def scenario() -> None:
        async with serving(certificate) as (session, address):
            answer = await mutate(session, address, a_pod())
            assert (answer["allowed"], "patch" in answer) == (True, False)
            assert answer["warnings"] == [
                "spotwright: not placed: Spotwright has failed; see the log of its controller"
            ]

    asyncio.run(scenario())
    assert "a label that nobody has thought of" in caplog.text
