"""If API servers log in with certificates, reviews of other clients are refused, and probes are answered as before."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.reviews import a_review
from tests.cluster.webhook_servers import Cluster, a_certificate

from spotwright.cluster.admission_server import Webhook, start_server
from spotwright.cluster.certificates import ServedCertificate
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.webhook_process import _ask_for_certificates
from spotwright.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's own certificate, and two that sign themselves: that of the API server and a stranger's."""
    root = tmp_path_factory.mktemp("certificates")
    a_certificate(root)
    for name in ("apiserver", "stranger"):
        options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        files = ["-subj", f"/CN={name}", "-keyout", str(root / f"{name}.key"), "-out", str(root / f"{name}.crt")]
        subprocess.run(["openssl", "req", *options, *files], check=True, capture_output=True)
    return root


async def asked(folder: Path, verdicts: Counter[str], *clients: str) -> list[tuple[int, int]]:
    """The statuses of a review and of a probe for each client, by the name of its certificate; empty: it has none."""
    configurations, cluster = Configurations("spotwright"), Cluster()
    configurations.apply("team-a", {"data": {"spotwright.yaml": a_config().text}})
    webhook = Webhook(
        configurations,
        cluster.find_object,
        cluster.find_facts,
        lambda: True,
        "none",
        asks_for_certificates=True,
        verdicts=verdicts,
    )
    context = ServedCertificate(folder / "tls.crt", folder / "tls.key").context()
    _ask_for_certificates(context, folder / "apiserver.crt")
    runner = await start_server(webhook, context, host="127.0.0.1", port=0)
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    found = []
    try:
        for name in clients:
            client = ssl.create_default_context(cafile=str(folder / "tls.crt"))
            if name:
                client.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
            async with ClientSession(connector=TCPConnector(ssl=client)) as session:
                try:
                    async with session.post(f"{url}/mutate", data=a_review(a_job())) as review:
                        status = review.status
                    async with session.get(f"{url}/healthz") as probe:
                        found.append((status, probe.status))
                except OSError:  # the handshake is refused
                    found.append((0, 0))
    finally:
        await runner.cleanup()
    return found


def test_reviews_are_for_those_with_a_certificate_of_the_authority(folder: Path) -> None:
    verdicts = Counter[str]()
    statuses = asyncio.run(asked(folder, verdicts, "apiserver", "", "stranger"))
    assert statuses == [(200, 200), (403, 200), (0, 0)]
    assert sum(verdicts.values()) == 1


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "\u00e9"]
)
def test_a_file_without_an_authority_is_said(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a PEM authority of client certificates"):
        _ask_for_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), file)
    with pytest.raises(InputError, match=r"missing: cannot be read \(No such file or directory\)"):
        _ask_for_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path / "missing")
