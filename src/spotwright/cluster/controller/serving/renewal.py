"""Keeps the certificates of a replica in force: makes or reads them, publishes their authority, and warns before they expire.

Who trusts the authority has to hear of a new one before a certificate comes that it has signed. So a look goes in this order: the
new authority is published beside those before it, then the new certificate is served. Files of somebody else may change at any
moment, in any order, and are looked at every 20 seconds.

A certificate that API servers refuse costs placement and nothing else: the process goes on, records, and says so, in its log and
as an Event, until there is a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from spotwright.cluster.api.requests import ApiFailed
from spotwright.cluster.controller.serving.certificates import Authority, make_serving_certificate
from spotwright.cluster.controller.serving.tls import ServedCertificate, read_certificates, valid_between, why_refused
from spotwright.cluster.controller.settings import CertificateFiles
from spotwright.errors import SpotwrightError
from spotwright.model.quantities import format_duration

__all__ = ["Publish", "Renewal", "Warn"]

Publish = Callable[[bytes], Awaitable[None]]
"""Tells everyone who has to trust it of an authority, as PEM text."""

Warn = Callable[[str, str], Awaitable[None]]
"""Tells people of a problem: its reason in one word, and a sentence."""

_LOG = logging.getLogger(__name__)
_LOOK = 20.0  # seconds between two looks at the certificates
_LEARN = 5.0  # seconds until everyone has heard of a new authority: API servers watch the registration
_LATE = 5  # a certificate that has less than one part in so many of its time left should have been renewed
_EARLIEST = timedelta(days=14)  # before its end, people are told of one that lives long
_EXPIRES_AGAIN = timedelta(hours=12)
_REFUSED_AGAIN = timedelta(hours=1)


class Renewal:
    """The certificates of one replica: files that somebody renews, or its own, where ``authority`` makes them.

    ``names`` are those that its certificates are for; API servers reach it by the first. ``now`` is a function, for tests.
    Raises :class:`SpotwrightError` for files that cannot be used.
    """

    def __init__(
        self,
        files: CertificateFiles,
        authority: Authority | None,
        names: Sequence[str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._files, self._authority, self._names, self._now = files, authority, names, now
        self._due: datetime | None = None  # when a certificate of its own is made again
        self._published = b""
        self._said = ""  # the reason of the last warning, while it holds
        self._say_again = now()
        self._problem = ""
        self.authorities = b""  # PEM text: those to trust, the newest first
        self._read_authorities()
        if authority is not None:
            self._make(authority)
        self.served = ServedCertificate(files.certificate, files.key)

    async def look(self, publish: Publish, warn: Warn) -> None:
        """Renew what is due, publish a new authority, serve a new certificate, and warn of one that ends or is refused."""
        problem = ""
        try:
            self._read_authorities()
            await self._publish(publish)
            if self._authority is not None and self._due is not None and self._now() >= self._due:
                self._make(self._authority)
            if self.served.reload():
                _LOG.info("a new certificate is served, until %s", _moment(self._span()[1]))
        except SpotwrightError as error:
            problem = f"; it is not renewed: {error}"
            if problem != self._problem:
                _LOG.warning("certificates are not renewed, tried again every %g s: %s", _LOOK, error)
        self._problem = problem
        await self._judge(problem, warn)

    async def follow(self, publish: Publish, warn: Warn) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look(publish, warn)
            await asyncio.sleep(_LOOK)

    def _read_authorities(self) -> None:
        """Read the authority; one that was there before stays beside it until it expires, because callers learn one by one."""
        if self._authority is not None:
            self.authorities = self._authority.renew(self._now())
            return
        known = x509.load_pem_x509_certificates(read_certificates(self._files.authority))
        before = x509.load_pem_x509_certificates(self.authorities) if self.authorities else []
        kept = [one for one in before if one not in known and one.not_valid_after_utc > self._now()]
        self.authorities = b"".join(one.public_bytes(Encoding.PEM) for one in (*known, *kept))

    async def _publish(self, publish: Publish) -> None:
        """Publish the authorities, new ones a while before they are used. Known ones may wait for an API server that is away."""
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
        """Say that the certificate is refused, or that it ends soon: at once, and now and then while it is so."""
        try:
            reason, text, again = self._verdict()
        except SpotwrightError:  # the files cannot be read at all: that has been said
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
        """The reason of a warning, its sentence, and after what time it is said again; empty: all is well."""
        whose = str(self._files.certificate) if self._authority is None else "that it makes itself"
        begins, ends = self._span()
        refused = why_refused(self._files.certificate, self._files.key, self.authorities, self._names[:1])
        if refused:
            text = f"API servers refuse the certificate {whose} ({refused}, valid until {_moment(ends)})"
            effect = "what is created is not placed until there is a new one; attempts are recorded all the same"
            return "CertificateRefused", f"{text}: {effect}", _REFUSED_AGAIN
        left = ends - self._now()
        if left < min((ends - begins) / _LATE, _EARLIEST):
            lasts = f"{_moment(ends)}, in {format_duration(left.total_seconds())}"
            text = f"the certificate {whose} expires at {lasts}, and nothing has renewed it"
            return "CertificateExpires", f"{text}: after that nothing is placed", _EXPIRES_AGAIN
        return "", "", timedelta(0)

    def _span(self) -> tuple[datetime, datetime]:
        return valid_between(read_certificates(self._files.certificate), self.authorities)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
