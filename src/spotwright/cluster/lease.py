"""Elects the one replica that writes, by a Lease of the API (``coordination.k8s.io/v1``).

Replicas do not compare their clocks. Each measures by its own monotonic clock how long the Lease has not changed, and takes it
after ``lasts`` seconds; the holder stops ``renew_within`` seconds after the start of its last successful renewal. So wall
clocks may differ by hours, as long as clock rates differ by less than half. client-go does the same
(``tools/leaderelection/leaderelection.go`` and its ``doc.go``, whose times are the defaults here). A Lease alone does not
fence: a process frozen between a check and a write would still write. So every journal has its own epoch
(:meth:`spotwright.records.journal.Journal.take`), which the next holder raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.errors import Fenced

__all__ = ["KubernetesLease", "lease_path", "uptime", "while_held"]


_LOG = logging.getLogger(__name__)
_BASE = "/apis/coordination.k8s.io/v1"
_JITTER = 1.2  # spreads replicas that start together


def uptime() -> float:
    """Seconds since boot, including suspension if the system supports it; the same for all processes."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def lease_path(namespace: str, name: str) -> str:
    """The path of a Lease."""
    return f"{_BASE}/namespaces/{namespace}/leases/{name}"


class KubernetesLease:
    """One replica's part in the election for the Lease ``name`` of a namespace.

    ``identity`` must differ for each process; the default is ``HOST_PID_RANDOM``. The Lease is free after ``lasts`` seconds
    without a change; the holder renews it every ``retry`` seconds and stops after ``renew_within`` without success. ``epoch``
    counts the holders (``leaseTransitions``), as of the last Lease seen.
    """

    def __init__(  # each has a default that client-go has too
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str = "",
        *,
        lasts: float = 15.0,
        renew_within: float = 10.0,
        retry: float = 2.0,
        clock: Callable[[], float] = uptime,
    ) -> None:
        if not retry * _JITTER < renew_within < lasts:
            raise ValueError("a lease needs retry * 1.2 < renew_within < lasts")
        self._api, self._clock = api, clock
        self._folder, self._name = f"{_BASE}/namespaces/{namespace}/leases", name
        self._lasts, self._renew_within, self._retry = lasts, renew_within, retry
        self._seen: Mapping[str, Any] | None = None  # the spec of the Lease at the last look
        self._written: Mapping[str, Any] | None = None  # the Lease as this replica wrote it last, if it holds it
        self._changed_at = 0.0  # when it was first seen like that, by our clock
        self._renewed_at: float | None = None  # when our last successful renewal began; None: not the holder
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.epoch = 0

    @property
    def held_until(self) -> float:
        """The time until which this replica may write if renewals keep failing; 0 if it does not hold the Lease."""
        renewed_at = self._renewed_at  # another thread may lose it meanwhile
        return 0.0 if renewed_at is None else renewed_at + self._renew_within

    @property
    def is_held(self) -> bool:
        """Whether this replica may write now, by its own clock, even right after the process was frozen."""
        return self._clock() < self.held_until

    @property
    def holder(self) -> str:
        """The holder's identity when last read; empty: none."""
        return str((self._seen or {}).get("holderIdentity") or "")

    def require(self) -> None:
        """Call before each write. Raises :class:`Fenced` unless this replica holds the Lease."""
        if not self.is_held:
            raise Fenced(f"{self._described()} is not held by {self.identity}: this replica stops writing")

    async def acquire(self) -> int:
        """Wait until this replica is the holder, and return the epoch. API errors are retried."""
        is_holder = await self._try("take")
        while not is_holder:
            await asyncio.sleep(self._retry * random.uniform(1.0, _JITTER))  # noqa: S311  # spreads replicas, no secret
            is_holder = await self._try("take")
        _LOG.info("%s is held by %s, epoch %d", self._described(), self.identity, self.epoch)
        return self.epoch

    async def hold(self) -> None:
        """Renew the Lease until it is lost, then raise :class:`Fenced`: another took it, or no renewal succeeded in time."""
        while self.is_held:
            await asyncio.sleep(self._retry)
            await self._try("renew")
        self._renewed_at = None
        by = f" to {self.holder}" if self.holder not in ("", self.identity) else ": it could not be renewed in time"
        raise Fenced(f"{self._described()} was lost{by}; this replica stops writing")

    async def give_up(self) -> None:
        """Let the next replica begin at once. Do not write after this.

        A failure is only logged, because the Lease expires anyway.
        """
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            async with asyncio.timeout(self._renew_within):
                found = await self._api.get_or_none(self._path)
                if found is not None and (found.get("spec") or {}).get("holderIdentity") == self.identity:
                    spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                    await self._api.send("PUT", self._path, {**found, "spec": spec})
        except (ApiFailed, TimeoutError) as error:
            _LOG.warning("%s could not be released and will expire: %s", self._described(), error)

    def _now(self) -> str:
        """A time for people and readers, by the API server's clock; no replica decides by it."""
        return datetime.fromtimestamp(self._api.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    # One try

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._name}"

    def _described(self) -> str:
        return f"lease {self._path.removeprefix(f'{_BASE}/namespaces/').replace('/leases/', '/')}"

    async def _try(self, what: str) -> bool:
        """Take or renew the Lease once, within the time that a holder has left. Returns whether this replica is the holder."""
        began = self._clock()
        left = self._renew_within if self._renewed_at is None else self.held_until - began
        try:
            async with asyncio.timeout(max(0.0, left)):
                is_holder = await self._take_or_renew()
        except (ApiFailed, TimeoutError) as error:
            _LOG.warning("cannot %s %s: %s", what, self._described(), str(error) or "no answer in time")
            return False
        self._renewed_at = began if is_holder else None
        return is_holder

    async def _take_or_renew(self) -> bool:
        """Renew an unchanged Lease with one request, as client-go does: the API server may be busy."""
        if self._renewed_at is not None and self._written is not None:
            try:
                if await self._write("PUT", self._path, self._written, self.epoch):
                    return True
            except ApiFailed as error:
                if error.status != 404:
                    raise
        self._written = None
        found = await self._api.get_or_none(self._path)
        if found is None:
            if self._renewed_at is not None:
                return False  # it was deleted: the election is open
            return await self._write("POST", self._folder, {"metadata": {"name": self._name}}, self.epoch + 1)
        spec = found.get("spec") or {}
        self._note(spec)
        holder = spec.get("holderIdentity") or ""
        if holder == self.identity:
            return await self._write("PUT", self._path, found, self.epoch)
        if self._renewed_at is not None or (holder and self._clock() < self._changed_at + self._lasts):
            return False
        return await self._write("PUT", self._path, found, self.epoch + 1)

    def _note(self, spec: Mapping[str, Any]) -> None:
        """Remember a Lease, and since when it is unchanged by our clock. Its own times are not used."""
        if spec != self._seen:
            self._seen, self._changed_at = dict(spec), self._clock()
        self.epoch = max(self.epoch, int(spec.get("leaseTransitions") or 0))

    async def _write(self, method: str, path: str, found: Mapping[str, Any], epoch: int) -> bool:
        """Write the Lease with us as its holder. False: another replica wrote in between."""
        old = found.get("spec") or {}
        is_renewal = old.get("holderIdentity") == self.identity
        spec = {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._lasts)),
            "acquireTime": old.get("acquireTime") if is_renewal else self._now(),
            "renewTime": self._now(),
            "leaseTransitions": epoch,
        }
        metadata = found["metadata"]
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **found, "metadata": metadata, "spec": spec}
        try:
            answer = await self._api.send(method, path, body)
        except ApiFailed as error:
            if error.status == 409:  # another replica was faster, or created it
                return False
            raise
        self._note(answer.get("spec") or {})
        self._written = answer
        return True


async def while_held(lease: KubernetesLease, work: Callable[[int], Awaitable[None]]) -> None:
    """Wait for the Lease, and run ``work`` with its epoch.

    Work is cancelled when the Lease is lost, which raises :class:`Fenced`. The Lease is released after ``work`` has ended,
    also after an error or a cancellation, and never before.
    """
    epoch = await lease.acquire()
    working = asyncio.ensure_future(work(epoch))
    holding = asyncio.ensure_future(lease.hold())
    try:
        await asyncio.wait((working, holding), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, holding):
            task.cancel()
        await asyncio.gather(working, holding, return_exceptions=True)
        await lease.give_up()
    for task in (holding, working):  # the loss of the Lease takes precedence over the work's error
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
