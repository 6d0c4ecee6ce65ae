"""Certificate authorities, and the certificates that they issue as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spotwright.cluster.controller_settings import CertificateFiles

ADDRESS = "127.0.0.1"


DAY = timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def an_authority(name: str) -> Pair:
    return signed(name, None, -DAY, 30 * DAY)


def issued(authority: Pair, begins: timedelta = -DAY, ends: timedelta = 30 * DAY, address: str = ADDRESS) -> Pair:
    """A serving certificate, valid from and until moments relative to now."""
    return signed("server", authority, begins, ends, x509.SubjectAlternativeName([address_name(address)]))


def address_name(address: str) -> x509.IPAddress:
    import ipaddress

    return x509.IPAddress(ipaddress.ip_address(address))


def signed(
    name: str,
    by: Pair | None,
    begins: timedelta,
    ends: timedelta,
    names: x509.SubjectAlternativeName | None = None,
    curve: ec.EllipticCurve | None = None,
) -> Pair:
    key, subject = (
        ec.generate_private_key(curve or ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) + begins)
        .not_valid_after(datetime.now(UTC) + ends)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return Pair(builder.sign(key if by is None else by.key, hashes.SHA256()), key)


class Files:
    """The three files in a folder, as somebody else writes them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        names = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
        self.paths = CertificateFiles(*names)

    def write(self, pair: Pair, authority: Pair) -> Files:
        self.paths.authority.write_bytes(authority.pem)
        self.paths.certificate.write_bytes(pair.pem)
        self.paths.key.write_bytes(pair.key_pem)
        return self
