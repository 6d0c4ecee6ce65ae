"""The webhook's server over real TLS on the loopback, and the little that it reads of a cluster."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_config
from tests.cluster.reviews import a_review

from spotwright.cluster.admission_server import AdmissionRequest, Webhook, start_server
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.certificates import ServedCertificate
from spotwright.cluster.configurations import Configurations


def a_certificate(folder: Path) -> Path:
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
    return folder


class Cluster:
    """The webhook's inputs: objects by kind and name, and the facts of all pods; each answer takes ``delay`` seconds."""

    def __init__(self, *objects: dict[str, Any], facts: AdmissionContext | None = None, delay: float = 0.0) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.facts, self.delay = facts or AdmissionContext(), delay

    async def find_object(self, _version: str, kind: str, name: str, _namespace: str) -> Mapping[str, Any] | None:
        await asyncio.sleep(self.delay)
        return self.objects.get((kind, name))

    async def find_facts(self, _request: AdmissionRequest) -> AdmissionContext:
        await asyncio.sleep(self.delay)
        return self.facts


POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, errors: {retries: 1}}}"


def a_webhook(cluster: Cluster | None = None, *, is_ready: bool = True) -> Webhook:
    """A webhook with a configuration for the namespace ``team-a``."""
    cluster, configurations = cluster or Cluster(), Configurations("spotwright")
    configurations.apply("team-a", {"data": {"spotwright.yaml": a_config(POLICY).text}})
    return Webhook(configurations, cluster.find_object, cluster.find_facts, lambda: is_ready, "refusal:1")


@asynccontextmanager
async def serving(
    certificate: Path, cluster: Cluster | None = None, *, is_ready: bool = True, webhook: Webhook | None = None
) -> AsyncIterator[tuple[ClientSession, str]]:
    """A client that trusts the certificate alone, and the server's address."""
    webhook = webhook or a_webhook(cluster, is_ready=is_ready)
    served = ServedCertificate(certificate / "tls.crt", certificate / "tls.key")
    runner = await start_server(webhook, served.context(), host="127.0.0.1", port=0)
    context = ssl.create_default_context(cafile=certificate / "tls.crt")
    try:
        async with ClientSession(connector=TCPConnector(ssl=context)) as session:
            yield session, f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def mutate(session: ClientSession, address: str, data: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The response of a webhook to the review of a new object."""
    async with session.post(f"{address}/mutate", data=a_review(data, **request)) as response:
        assert response.status == 200
        answer: dict[str, Any] = (await response.json())["response"]
        return answer
