"""The health shared by the processes of a controller: whether they should be restarted, and their certificate."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spotwright.cluster.api_client import EventWriter, about_namespace
from spotwright.cluster.certificates import Authority, Callers, Renewal
from spotwright.cluster.controller_settings import CertificateFiles, Settings

__all__ = ["SWITCH_INTERVAL", "Health", "ServedCertificate", "own_certificate"]


SWITCH_INTERVAL = 0.0005
"""Seconds after which a Python thread lets others run; the default, 5 ms, would delay answers."""

STUCK = 10.0
"""Seconds without a beat after which a webhook process is stuck: API servers wait ten for an answer."""

_BEAT = 1.0  # seconds


class Health:
    """Whether a process is healthy or should be restarted. The worker calls :meth:`alive`, or awaits :meth:`beat`.

    ``stuck`` is the number of seconds without a sign of life until a restart. ``clock`` is monotonic.
    """

    def __init__(self, stuck: float = STUCK, clock: Callable[[], float] = time.monotonic) -> None:
        self._stuck, self._clock = stuck, clock
        self._alive_at = clock()
        self.failure = ""  # why the work cannot continue, set by the worker

    def alive(self) -> None:
        """Note progress. From any thread."""
        self._alive_at = self._clock()

    async def beat(self) -> None:
        """Report periodically that this event loop works, until cancelled."""
        while True:
            self.alive()
            await asyncio.sleep(_BEAT)

    @property
    def problem(self) -> str:
        """Why this process should be restarted; empty if healthy. From any thread."""
        silent = self._clock() - self._alive_at
        return f"no progress for {silent:.0f} s" if silent >= self._stuck else self.failure


class ServedCertificate:
    """The serving certificate of a process, and the CA for its clients."""

    def __init__(self, renewal: Renewal, events: EventWriter, home: str) -> None:
        self._renewal, self._events = renewal, events
        self._about = about_namespace(home)

    def context(self) -> ssl.SSLContext:
        """A context for a server; it serves a renewed certificate without a restart."""
        return self._renewal.served.context()

    async def publish_first(self, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """Publish the authority (PEM text) before the first answer."""
        await publish(self._renewal.authorities)

    async def follow(self, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """Keep the certificate valid, until cancelled. A new authority is published before it signs the served certificate."""
        await self._renewal.follow(publish, self._warn)

    async def _warn(self, reason: str, text: str) -> None:
        await self._events.write(self._about, reason, text, is_warning=True)


@contextmanager
def own_certificate(
    settings: Settings, names: list[str], events: EventWriter, callers: Callers
) -> Iterator[ServedCertificate]:
    """The certificate of a process for these names: the files of its settings, or its own. Raises :class:`SpotwrightError`."""
    authority = None if settings.files is not None else Authority(settings.authority_folder)
    with tempfile.TemporaryDirectory(prefix="spotwright-") as name:
        private = Path(name)
        files = settings.files or CertificateFiles(private / "tls.crt", private / "tls.key", private / "unused")
        yield ServedCertificate(Renewal(files, authority, names, callers=callers), events, settings.home)
