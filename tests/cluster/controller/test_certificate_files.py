"""Certificates that somebody else makes: they are renewed, half written, ending or useless while the controller runs."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from tests.cluster.admission_objects import a_job
from tests.cluster.controller.authorities import ADDRESS, DAY, Files, Pair, an_authority, issued, signed
from tests.cluster.controller.controller_process import MAPS
from tests.cluster.controller.processes import a_cluster, recording, registered, review, running, until
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import certificates
from spotwright.cluster.certificates import Renewal, why_refused
from spotwright.errors import InputError

EVENTS = "/api/v1/namespaces/spotwright/events"


@pytest.fixture
def authority() -> Pair:
    return an_authority("first")


def controlled(
    folder: Path,
    files: Files,
    test: Callable[[SmallApiServer], Awaitable[None]],
    process: Callable[..., AbstractAsyncContextManager[Any]] = running,
    **settings: Any,
) -> None:
    """Run a test beside a process that serves these files."""

    async def run() -> None:
        async with serving(RecordServer) as server:
            a_cluster(server)
            async with process(server, folder / "authority", files=files.paths, **settings):
                await test(server)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_LOOK", 0.05)
    monkeypatch.setattr(certificates, "_LEARN", 0.05)


def bundle(server: SmallApiServer) -> list[x509.Certificate]:
    """The authorities that API servers trust."""
    client_config = registered(server)
    assert client_config is not None
    return x509.load_pem_x509_certificates(base64.b64decode(client_config["caBundle"]))


async def served(address: str) -> x509.Certificate:
    """The certificate that a new connection gets."""
    host, _, port = address.removeprefix("https://").partition(":")
    text = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    return x509.load_pem_x509_certificate(text.encode())


def address_of(caplog: pytest.LogCaptureFixture, words: str = "answered at") -> str:
    return next(line.split(" at ")[1] for line in caplog.messages if words in line)


def test_a_certificate_of_a_new_authority_is_served_once_api_servers_trust_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authority: Pair
) -> None:
    caplog.set_level("INFO")
    second = an_authority("second")
    files, new = Files(tmp_path / "tls").write(issued(authority), authority), issued(second)

    async def test(server: SmallApiServer) -> None:
        assert (await review(caplog, server, a_job()))["spec"]["template"]["spec"]["tolerations"]
        await until(lambda: [line for line in caplog.messages if "is registered as" in line])
        files.write(new, second)
        await until(lambda: [line for line in caplog.messages if "serving a new certificate" in line])
        told = [line for line in caplog.messages if "is registered as" in line or "serving a new certificate" in line]
        assert "serving" in told[2]
        assert await served(address_of(caplog)) == new.certificate
        assert bundle(server) == [second.certificate, authority.certificate]
        await review(caplog, server, a_job())

    controlled(tmp_path, files, test)


def test_readers_of_logs_know_the_new_authority_of_a_new_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authority: Pair
) -> None:
    caplog.set_level("INFO")
    second = an_authority("second")
    files, new = Files(tmp_path / "tls").write(issued(authority), authority), issued(second)

    async def test(server: SmallApiServer) -> None:
        await until(lambda: [line for line in caplog.messages if "logs are read at" in line])
        files.write(new, second)
        await until(lambda: [line for line in caplog.messages if "serving a new certificate" in line])
        assert await served(address_of(caplog, "logs are read at")) == new.certificate

        def is_published() -> bool:
            text = server.objects[MAPS]["spotwright-reading"]["data"]["ca.crt"].encode()
            return x509.load_pem_x509_certificates(text)[0] == second.certificate

        await until(is_published)  # the files are three, and may be read while they are written

    controlled(tmp_path, files, test, recording, read_port=0)


def test_a_certificate_whose_authority_is_not_there_yet_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authority: Pair
) -> None:
    """The files are replaced one after the other, and looked at in between."""
    caplog.set_level("INFO")
    second = an_authority("second")
    old, new = issued(authority), issued(second)
    files = Files(tmp_path / "tls").write(old, authority)

    async def test(server: SmallApiServer) -> None:
        await review(caplog, server, a_job())
        files.paths.key.write_bytes(new.key_pem)
        files.paths.certificate.write_bytes(new.pem)
        (event,) = (await until(lambda: server.objects.get(EVENTS))).values()
        assert "API servers would refuse the new certificate" in event["message"]
        assert "): the previous one is served until " in event["message"]
        assert await served(address_of(caplog)) == old.certificate
        await review(caplog, server, a_job())
        files.paths.authority.write_bytes(second.pem)
        await until(lambda: [line for line in caplog.messages if "serving a new certificate" in line])
        assert await served(address_of(caplog)) == new.certificate
        assert bundle(server)[0] == second.certificate
        await until(lambda: [line for line in caplog.messages if "the certificate is accepted until" in line])
        await review(caplog, server, a_job())

    controlled(tmp_path, files, test)


def test_a_certificate_whose_authority_never_comes_is_served_once_the_one_before_has_ended(
    tmp_path: Path, authority: Pair
) -> None:
    now = datetime.now(UTC)
    files = Files(tmp_path / "tls").write(issued(authority, ends=2 * DAY), authority)
    made = Renewal(files.paths, None, [ADDRESS], lambda: now)

    async def nothing(*_: object) -> None:
        return

    def looked() -> bool:
        asyncio.run(made.look(nothing, nothing))
        return not made.served.is_changed

    assert looked()
    new = issued(an_authority("second"))
    files.paths.key.write_bytes(new.key_pem)
    files.paths.certificate.write_bytes(new.pem)
    assert not looked()
    now += 3 * DAY
    assert looked()


def test_a_certificate_whose_key_is_not_there_yet_leaves_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authority: Pair
) -> None:
    caplog.set_level("INFO")
    old, new = issued(authority), issued(authority)
    files = Files(tmp_path / "tls").write(old, authority)

    async def test(server: SmallApiServer) -> None:
        await review(caplog, server, a_job())
        files.paths.certificate.write_bytes(new.pem)
        await until(lambda: [line for line in caplog.messages if "cannot be served with the key" in line])
        assert await served(address_of(caplog)) == old.certificate
        await review(caplog, server, a_job())
        files.paths.key.write_bytes(new.key_pem)
        await until(lambda: [line for line in caplog.messages if "serving a new certificate" in line])
        assert await served(address_of(caplog)) == new.certificate

    controlled(tmp_path, files, test)


@pytest.mark.parametrize(
    ("begins", "ends", "address", "reason", "words"),
    [
        (
            -10 * DAY,
            DAY,
            ADDRESS,
            "CertificateExpires",
            ", and has not been renewed: then new objects are not placed",
        ),
        (-9 * DAY, -DAY, ADDRESS, "CertificateRefused", "(certificate has expired, valid until "),
        (DAY, 9 * DAY, ADDRESS, "CertificateRefused", "(certificate is not yet valid"),
        (-DAY, 9 * DAY, "127.0.0.2", "CertificateRefused", "IP address mismatch, certificate is not valid for"),
    ],
)
def test_a_certificate_that_ends_or_is_refused_is_said_in_an_event(
    tmp_path: Path, authority: Pair, begins: timedelta, ends: timedelta, address: str, reason: str, words: str
) -> None:
    files = Files(tmp_path / "tls").write(issued(authority, begins, ends, address), authority)

    async def test(server: SmallApiServer) -> None:
        (event,) = (await until(lambda: server.objects.get(EVENTS))).values()
        assert (event["reason"], event["type"]) == (reason, "Warning")
        assert event["involvedObject"]["kind"] == "Namespace"
        assert words in event["message"]
        assert str(files.paths.certificate) in event["message"]

    controlled(tmp_path, files, test)


def test_an_expired_certificate_stops_no_recording(tmp_path: Path, authority: Pair) -> None:
    files = Files(tmp_path / "tls").write(issued(authority, -9 * DAY, -DAY), authority)

    async def test(server: SmallApiServer) -> None:
        await until(lambda: server.objects.get(EVENTS))
        await until(lambda: [line for line in server.asked if "involvedObject.kind" in line and "watch=true" in line])

    controlled(tmp_path, files, test, recording, read_port=0)


def test_a_new_certificate_ends_the_warning_of_one_that_has_expired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authority: Pair
) -> None:
    caplog.set_level("INFO")
    files = Files(tmp_path / "tls").write(issued(authority, -9 * DAY, -DAY), authority)

    async def test(server: SmallApiServer) -> None:
        await until(lambda: server.objects.get(EVENTS))
        with pytest.raises(OSError, match="certificate has expired"):
            await review(caplog, server, a_job())
        files.write(issued(authority), authority)
        await until(lambda: [line for line in caplog.messages if "the certificate is accepted until" in line])
        assert (await review(caplog, server, a_job()))["spec"]["template"]["spec"]["tolerations"]

    controlled(tmp_path, files, test)


def test_a_warning_is_said_again_after_half_a_day(tmp_path: Path, authority: Pair) -> None:
    files = Files(tmp_path / "tls").write(issued(authority, -10 * DAY, DAY), authority)
    said: list[str] = []
    now = datetime.now(UTC)

    async def publish(_authorities: bytes) -> None:
        return

    async def warn(reason: str, _text: str) -> None:
        said.append(reason)

    async def look(times: int) -> None:
        for _ in range(times):
            await made.look(publish, warn)

    made = Renewal(files.paths, None, [ADDRESS], lambda: now)
    asyncio.run(look(3))
    assert said == ["CertificateExpires"]
    now += timedelta(hours=12)
    asyncio.run(look(3))
    assert said == ["CertificateExpires"] * 2


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("ca.crt", "ca.crt: cannot be read (No such file or directory)"),
        ("tls.key", "tls.key: cannot be read (No such file or directory)"),
        ("tls.crt", "tls.crt: cannot be read (No such file or directory)"),
    ],
)
def test_a_file_that_is_missing_at_the_start_is_named(tmp_path: Path, authority: Pair, broken: str, words: str) -> None:
    files = Files(tmp_path / "tls").write(issued(authority), authority)
    (tmp_path / "tls" / broken).unlink()
    with pytest.raises(InputError) as raised:
        Renewal(files.paths, None, [ADDRESS])
    assert words in str(raised.value)


def test_files_without_certificates_and_keys_of_others_are_named_at_the_start(tmp_path: Path, authority: Pair) -> None:
    files = Files(tmp_path / "tls").write(issued(authority), authority)
    files.paths.key.write_bytes(issued(authority).key_pem)
    with pytest.raises(InputError, match=r"tls\.crt: cannot be served with the key .*tls\.key \(KEY_VALUES_MISMATCH\)"):
        Renewal(files.paths, None, [ADDRESS])
    files.paths.authority.write_text("no certificate")
    with pytest.raises(InputError, match=r"ca\.crt: expected certificates as PEM text"):
        Renewal(files.paths, None, [ADDRESS])


def test_a_key_that_no_client_takes_is_a_refusal_and_no_failure(tmp_path: Path, authority: Pair) -> None:
    names = x509.SubjectAlternativeName([x509.DNSName("a.svc")])
    pair = signed("a.svc", authority, timedelta(days=-1), timedelta(days=1), names, ec.SECP256K1())
    files = Files(tmp_path).write(pair, authority).paths
    assert why_refused(files.certificate, files.key, authority.pem, ["a.svc"]) == "no shared cipher"
