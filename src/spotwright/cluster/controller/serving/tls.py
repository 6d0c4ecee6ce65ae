"""The TLS context of a server whose certificate is renewed while it runs, and what API servers would say of the certificate.

A certificate and its key are two files, so a look may find a new one beside an old one. OpenSSL then forgets the key that it had
(``ssl_set_cert`` of its ``ssl/ssl_rsa.c``), and every handshake fails. So both are tried in a context of their own first.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509

from spotwright.errors import InputError

__all__ = ["ServedCertificate", "read_certificates", "valid_between", "why_refused"]

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

    def reload(self) -> bool:
        """Load the files again if they have changed; new connections get the new certificate. Returns whether they had.

        Raises :class:`InputError` for files that cannot be used: the old certificate stays.
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


def valid_between(certificate: bytes, authority: bytes) -> tuple[datetime, datetime]:
    """Between which moments a certificate is accepted that one of these authorities has signed (PEM texts).

    With the certificate its issuer expires: of several with the same name, the last one.
    """
    served = x509.load_pem_x509_certificates(certificate)[0]
    issuers = [one for one in x509.load_pem_x509_certificates(authority) if one.subject == served.issuer]
    ends = max((one.not_valid_after_utc for one in issuers), default=served.not_valid_after_utc)
    return served.not_valid_before_utc, min(served.not_valid_after_utc, ends)


def why_refused(certificate: Path, key: Path, authority: bytes, names: Sequence[str]) -> str:
    """Why a client that trusts this authority refuses the certificate now, for any of these names; empty if it accepts.

    It is found out by a handshake in memory, so nothing about chains, names and times is decided here. Raises
    :class:`InputError` for files that cannot be used.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        server.load_cert_chain(certificate, key)
    except OSError as error:
        raise InputError(f"{certificate}: cannot be served with the key {key} ({error})") from error
    client = ssl.create_default_context(cadata=authority.decode("ascii"))
    client.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT  # Go, in which API servers are written, is not so strict
    for name in names:
        try:
            _shake_hands(client, server, name)
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:  # a key that no client of today takes, such as one on another curve
            return (error.reason or str(error)).replace("_", " ").lower()
    return ""


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True))
    for _ in range(_TURNS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:  # it waits for the other one
                continue
