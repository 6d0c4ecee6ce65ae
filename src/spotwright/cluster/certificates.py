"""Makes a process's certificate authority and serving certificates, publishes the authority, and renews both in time.

An API server accepts a webhook whose certificate is signed by an authority in its registration. Each process has its own
authority, in a folder that survives a restart of its container, and a serving certificate that other processes cannot read.
Both are short-lived and renewed after two thirds of their lifetime. A new authority is published beside the old one until the
old one expires. A server loads a renewed certificate without a restart, and warns before one expires.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.controller_settings import CertificateFiles
from spotwright.errors import InputError, SpotwrightError, StateError
from spotwright.model.quantities import format_duration

__all__ = [
    "API_SERVERS",
    "READERS",
    "Authority",
    "Callers",
    "Publish",
    "Renewal",
    "ServedCertificate",
    "Warn",
    "are_same",
    "make_serving_certificate",
    "read_certificates",
    "united",
    "valid_between",
    "why_refused",
]


_AUTHORITY_LASTS = timedelta(days=30)
_SERVING_LASTS = timedelta(days=7)
_BEFORE = timedelta(hours=1)  # clocks of API servers may be behind ours
_NAME = "Spotwright webhook"
_AGAIN = "remove it, and the controller makes a new one"
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """The certificate authority in a folder. ``now`` is a function, for tests.

    Raises :class:`StateError` if the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._certificates, self._key, self._lock = (
            folder / name for name in ("authority.pem", "authority.key", "authority.lock")
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{folder}: cannot be created ({error.strerror})") from error

    def renew(self, now: datetime | None = None) -> bytes:
        """Make an authority if none exists or the newest has used two thirds of its lifetime.

        Returns all unexpired certificates, newest first, as PEM text.
        """
        moment = now or datetime.now(UTC)
        with self._locked():
            kept = [one for one in self._read() if one.not_valid_after_utc > moment]
            if not kept or not self._key.exists() or _is_due(kept[0], moment):
                key = ec.generate_private_key(ec.SECP256R1())
                kept = [_authority(key, moment), *kept]
                _write(self._key, _pem_of_key(key))
                _write(self._certificates, b"".join(map(_pem, kept)))
        return b"".join(map(_pem, kept))

    def issue(self, names: Sequence[str], now: datetime | None = None) -> tuple[bytes, bytes]:
        """A new serving certificate for host names and addresses, and its key, as PEM texts."""
        moment = now or datetime.now(UTC)
        with self._locked():
            authority, signer = self._read()[0], self._read_key()
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise StateError(f"{self._key}: not a key made by the controller; {_AGAIN}")
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(moment + _SERVING_LASTS, authority.not_valid_after_utc)
        made = (
            _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} server")]), key, moment, ends)
            .issuer_name(authority.subject)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        return _pem(made.sign(signer, hashes.SHA256())), _pem_of_key(key)

    def _read(self) -> list[x509.Certificate]:
        if not self._certificates.exists():
            return []
        try:
            return x509.load_pem_x509_certificates(self._certificates.read_bytes())
        except (OSError, ValueError) as error:
            raise StateError(f"{self._certificates}: cannot be read; {_AGAIN}") from error

    def _read_key(self) -> object:
        try:
            return serialization.load_pem_private_key(self._key.read_bytes(), None)
        except ValueError as error:  # a power loss may leave an empty file
            raise StateError(f"{self._key}: not a key; {_AGAIN}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise StateError(f"{self._lock.parent}: cannot be written ({error.strerror or error})") from error


def make_serving_certificate(authority: Authority, names: Sequence[str], folder: Path) -> datetime:
    """Write a new serving certificate into a folder of this process, ``tls.crt`` and ``tls.key``. Returns when to renew it."""
    certificate, key = authority.issue(names)
    _write(folder / "tls.key", key)
    _write(folder / "tls.crt", certificate)  # last: the server looks at both when one has changed
    made = x509.load_pem_x509_certificate(certificate)
    return made.not_valid_before_utc + (made.not_valid_after_utc - made.not_valid_before_utc) * 2 / 3


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + lasts * 2 / 3


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, _NAME),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{x509.random_serial_number():x}"[:16]),
        ]
    )
    made = (
        _builder(name, key, now, now + _AUTHORITY_LASTS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return made.sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(ends)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.touch(mode=0o600)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a power loss may leave an empty file under the name
        partial.replace(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be written ({error.strerror})") from error


_TURNS = 8  # more than a handshake has flights


class ServedCertificate:
    """A certificate with its key, for the contexts of several servers. Both are PEM files.

    Raises :class:`InputError` for files that cannot be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._contexts: list[ssl.SSLContext] = []
        self._loaded = self._stamps()
        self._try()

    def context(self) -> ssl.SSLContext:
        """A new context for a server."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self._certificate, self._key)
        self._contexts.append(made)
        return made

    @property
    def is_changed(self) -> bool:
        """Whether the files differ from the served ones. Raises :class:`InputError` if they cannot be read."""
        return self._stamps() != self._loaded

    def reload(self) -> bool:
        """Reload the files if they have changed; new connections get the new certificate. Returns whether they had.

        Raises :class:`InputError` for unusable files: the old certificate stays.
        """
        stamps = self._stamps()
        if stamps == self._loaded:
            return False
        self._try()
        for context in self._contexts:
            context.load_cert_chain(self._certificate, self._key)
        self._loaded = stamps
        return True

    def _try(self) -> None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise InputError(f"{self._certificate}: cannot be served with the key {self._key} ({why})") from error

    def _stamps(self) -> list[tuple[int, int]]:
        try:
            return [(stat.st_mtime_ns, stat.st_ino) for stat in (self._certificate.stat(), self._key.stat())]
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def read_certificates(path: Path) -> bytes:
    """The text of a PEM file with at least one certificate. Raises :class:`InputError`."""
    try:
        text = path.read_bytes()
        x509.load_pem_x509_certificates(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: expected certificates as PEM text, found {error}") from error
    return text


def united(own: bytes, known: bytes, now: datetime) -> bytes:
    """The unexpired authorities of one replica and of the other known replicas (PEM texts), its own first.

    Only the newest of the others are kept: each replica that starts on another node makes one. Other text is omitted.
    """
    try:
        others = x509.load_pem_x509_certificates(known) if known.strip() else []
    except ValueError:
        others = []
    mine = x509.load_pem_x509_certificates(own)
    left = [one for one in others if one not in mine and one.not_valid_after_utc > now]
    left.sort(key=lambda one: one.not_valid_before_utc, reverse=True)
    return b"".join(one.public_bytes(Encoding.PEM) for one in (*mine, *left[:_OTHERS]))


def are_same(some: bytes, others: bytes) -> bool:
    """Whether two PEM texts have the same certificates, in whatever order."""
    begin = b"-----BEGIN CERTIFICATE-----"
    return {each.strip() for each in some.split(begin)} == {each.strip() for each in others.split(begin)}


def valid_between(certificate: bytes, authority: bytes) -> tuple[datetime, datetime]:
    """The time range in which a certificate signed by one of these authorities is accepted (PEM texts).

    It ends with its issuer, too: of several with the same name, the last one.
    """
    served = x509.load_pem_x509_certificates(certificate)[0]
    issuers = [one for one in x509.load_pem_x509_certificates(authority) if one.subject == served.issuer]
    ends = max((one.not_valid_after_utc for one in issuers), default=served.not_valid_after_utc)
    return served.not_valid_before_utc, min(served.not_valid_after_utc, ends)


def why_refused(certificate: Path, key: Path, authority: bytes, names: Sequence[str]) -> str:
    """Why a client that trusts this authority refuses the certificate now, for any of these names; empty if it accepts.

    It is checked by a handshake in memory, so the TLS library checks chains, names and times. Raises :class:`InputError` for
    unusable files.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        server.load_cert_chain(certificate, key)
    except OSError as error:
        raise InputError(f"{certificate}: cannot be served with the key {key} ({error})") from error
    client = ssl.create_default_context(cadata=authority.decode("ascii"))
    client.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT  # API servers (Go) are not so strict
    for name in names:
        try:
            _shake_hands(client, server, name)
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:  # a key that current clients refuse, such as one on an unusual curve
            return (error.reason or str(error)).replace("_", " ").lower()
    return ""


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True))
    for _ in range(_TURNS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:  # it waits for the other side
                continue


Publish = Callable[[bytes], Awaitable[None]]
"""Publishes an authority, as PEM text, to everyone who must trust it."""

Warn = Callable[[str, str], Awaitable[None]]
"""Reports a problem to people: its reason in one word, and a sentence."""

_OTHERS = 6  # authorities of other replicas
_LOG = logging.getLogger(__name__)
_LOOK = 20.0  # seconds between checks of the certificates
_LEARN = 5.0  # seconds until a new authority is known: API servers watch the registration
_LATE = 5  # a certificate with less than this fraction (1/5) of its lifetime left should have been renewed
_EARLIEST = timedelta(days=14)  # warn of a long-lived one this long before it expires
_EXPIRES_AGAIN = timedelta(hours=12)
_REFUSED_AGAIN = timedelta(hours=1)


class Callers(NamedTuple):
    """A process's clients, and the consequence if they refuse its certificate, a clause."""

    who: str
    effect: str


API_SERVERS = Callers("API servers", "new objects are not placed until it is renewed; attempts are still recorded")
"""The clients of a webhook."""

READERS = Callers("readers", "whole logs of the cluster are unreadable until it is renewed; everything else continues")
"""The clients of a recorder."""


class Renewal:
    """The certificates of one replica: externally renewed files, or its own, if ``authority`` makes them.

    ``names`` are the names in its certificates; API servers use the first. ``now`` is a function, for tests. Raises
    :class:`SpotwrightError` for files that cannot be used.
    """

    def __init__(
        self,
        files: CertificateFiles,
        authority: Authority | None,
        names: Sequence[str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        callers: Callers | None = None,
    ) -> None:
        self._files, self._authority, self._names, self._now = files, authority, names, now
        self._callers = callers or API_SERVERS
        self._due: datetime | None = None  # when its self-made certificate is made again
        self._published = b""
        self._said = ""  # the reason of the last warning, while it holds
        self._say_again = now()
        self._problem = ""
        self.authorities = b""  # PEM text: the authorities to trust, newest first
        self._read_authorities()
        if authority is not None:
            self._make(authority)
        self.served = ServedCertificate(files.certificate, files.key)
        self._served_until = self._accepted_until()
        self._refused_looks = 0  # consecutive checks at which callers would have refused the files' certificate

    async def look(self, publish: Publish, warn: Warn) -> None:
        """Renew due certificates, publish a new authority, serve a new certificate, and warn of an expiring or refused one."""
        problem = ""
        try:
            self._read_authorities()
            await self._publish(publish)
            if self._authority is not None and self._due is not None and self._now() >= self._due:
                self._make(self._authority)
            if self._is_to_be_served() and self.served.reload():
                self._served_until = self._accepted_until()
                _LOG.info("serving a new certificate, valid until %s", _moment(self._span()[1]))
        except SpotwrightError as error:
            problem = f"; it could not be renewed: {error}"
            if problem != self._problem:
                _LOG.warning("certificates could not be renewed, retrying every %g s: %s", _LOOK, error)
        self._problem = problem
        await self._judge(problem, warn)

    async def follow(self, publish: Publish, warn: Warn) -> None:
        """Check periodically until cancelled."""
        while True:
            await self.look(publish, warn)
            await asyncio.sleep(_LOOK)

    def _is_to_be_served(self) -> bool:
        """Whether callers accept the certificate in the files, or refuse the served one too.

        If the files are replaced one by one, the certificate may change before its authority. Then the previous certificate is
        served while it is valid.
        """
        is_new = self._authority is None and self.served.is_changed and self._now() < self._served_until
        is_refused = is_new and self._refusal(self._published) != ""
        self._refused_looks = self._refused_looks + 1 if is_refused else 0
        return not is_refused

    def _accepted_until(self) -> datetime:
        """The time until which callers accept the files' certificate; a past time if they refuse it."""
        return datetime.min.replace(tzinfo=UTC) if self._refusal(self.authorities) else self._span()[1]

    def _refusal(self, authorities: bytes) -> str:
        """Why callers who trust these authorities refuse the certificate of the files; empty if they accept it."""
        return why_refused(self._files.certificate, self._files.key, authorities, self._names[:1])

    def _read_authorities(self) -> None:
        """Read the authority; keep the previous one beside it until it expires, because callers learn of it one by one."""
        if self._authority is not None:
            self.authorities = self._authority.renew(self._now())
            return
        known = x509.load_pem_x509_certificates(read_certificates(self._files.authority))
        before = x509.load_pem_x509_certificates(self.authorities) if self.authorities else []
        kept = [one for one in before if one not in known and one.not_valid_after_utc > self._now()]
        self.authorities = b"".join(one.public_bytes(Encoding.PEM) for one in (*known, *kept))

    async def _publish(self, publish: Publish) -> None:
        """Publish the authorities, new ones some time before they are used. Known ones may wait for an unreachable API server."""
        is_new = self._published != self.authorities
        try:
            await publish(self.authorities)
        except ApiFailed:
            if is_new:
                raise
        if is_new and self._published:
            await asyncio.sleep(_LEARN)
        self._published = self.authorities

    def _make(self, authority: Authority) -> None:
        self._due = make_serving_certificate(authority, self._names, self._files.certificate.parent)

    # Warnings

    async def _judge(self, problem: str, warn: Warn) -> None:
        """Warn that the certificate is refused or expires soon: at once, and periodically while it lasts."""
        if self._refused_looks == 1:  # perhaps its authority is just being replaced too
            return
        try:
            reason, text, again = self._verdict()
        except SpotwrightError:  # the files are unreadable: already reported
            return
        now = self._now()
        if not reason and self._said:
            _LOG.info("the certificate is accepted until %s", _moment(self._span()[1]))
        elif reason and (reason != self._said or now >= self._say_again):
            self._say_again = now + again
            _LOG.warning("%s%s", text, problem)
            await warn(reason, f"{text}{problem}")
        self._said = reason

    def _verdict(self) -> tuple[str, str, timedelta]:
        """The reason of a warning, its sentence, and its repeat interval; empty if there is no problem."""
        whose = str(self._files.certificate) if self._authority is None else "that it makes itself"
        begins, ends = self._span()
        refused = self._refusal(self.authorities)
        if refused and self._refused_looks:
            text = f"{self._callers.who} would refuse the new certificate {whose} ({refused})"
            return (
                "CertificateRefused",
                f"{text}: the previous one is served until {_moment(self._served_until)}",
                _REFUSED_AGAIN,
            )
        if refused:
            text = f"{self._callers.who} refuse the certificate {whose} ({refused}, valid until {_moment(ends)})"
            return "CertificateRefused", f"{text}: {self._callers.effect}", _REFUSED_AGAIN
        left = ends - self._now()
        if left < min((ends - begins) / _LATE, _EARLIEST):
            lasts = f"{_moment(ends)}, in {format_duration(left.total_seconds())}"
            text = f"the certificate {whose} expires at {lasts}, and has not been renewed"
            return "CertificateExpires", f"{text}: then {self._callers.effect}", _EXPIRES_AGAIN
        return "", "", timedelta(0)

    def _span(self) -> tuple[datetime, datetime]:
        return valid_between(read_certificates(self._files.certificate), self.authorities)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
