"""Makes the webhook's certificate authority and serving certificates, and renews both before they expire.

An API server accepts a webhook whose certificate is signed by the authority in its registration. All replicas share one
authority, which lies in the state folder; each makes a serving certificate of its own, which no other process can read. Both
live shortly and are renewed after two thirds of their time. A new authority stands beside the old one until that has expired,
so that replicas may change one after the other.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spotwright.errors import StateError

__all__ = ["Authority", "make_serving_certificate"]

_AUTHORITY_LASTS = timedelta(days=30)
_SERVING_LASTS = timedelta(days=7)
_BEFORE = timedelta(hours=1)  # clocks of API servers may be behind ours
_NAME = "Spotwright webhook"
_AGAIN = "remove it, and a new one is made"
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
    """The certificate authority in a folder that the replicas share. ``now`` is a function, for tests.

    Raises :class:`StateError` where the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._certificates, self._key, self._lock = (
            folder / name for name in ("authority.pem", "authority.key", "authority.lock")
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{folder}: cannot be made ({error.strerror})") from error

    def renew(self, now: datetime | None = None) -> bytes:
        """Make an authority where there is none, or the newest has used two thirds of its time.

        Returns the certificates of all that have not expired, the newest first, as PEM text.
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
            raise StateError(f"{self._key}: is no key of ours; {_AGAIN}")
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
            raise StateError(f"{self._key}: is no key; {_AGAIN}") from error

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
