"""Runs what records, keeps logs and moves pods as a process of its own, for as long as this replica holds the Lease.

A look at a workload may take long, and Python runs one thread at a time. In the process that answers reviews, that work would
hold up the answers and the renewal of the Lease, by which a replica stops to record. So the Lease is renewed here, on an event
loop of its own in a thread of its own, and the process is told each time until when it may write. It says in lines of JSON that
it lives, and what it counts (:mod:`spotwright.cluster.recording_main`).

The process never outlives this one: its input ends, and Linux kills it. One that ends or falls silent is started again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.lease import KubernetesLease, while_held
from spotwright.cluster.unavailable_pools import Move
from spotwright.errors import Fenced, SpotwrightError

__all__ = ["RecordingProcess", "Told", "apart"]


_LOG = logging.getLogger(__name__)
_LONGEST_LINE = 4 << 20  # bytes: what waits in tens of thousands of namespaces
_LOOK = 1.0  # seconds between two looks at how long the process is silent
_SILENT = 30.0  # seconds, of the clock and of the processor: longer than any single look at a workload takes
_STARVED = 300.0  # seconds of silence after which also a process is ended that others leave no processor
_ENDING = 8.0  # seconds in which the process gives up its journals
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # seconds until it is started again; twice as long each time
_WELL = 60.0  # seconds after which a process counts as well, and the wait is short again
_FAILING = 300.0  # seconds in which no process was well, until this replica counts as broken


class Told:
    """What the process has told of its work. Counters go on when it is started again.

    ``is_leading``: it runs now. ``moves`` are numbers by kind, ``waiting`` numbers of pods by namespace and reason. ``aside`` are
    the namespaces that it has set aside, each with the name of this part. ``unplaced`` is a number of pods. ``kinds`` are those
    that the API server has, with whether they are read.
    """

    def __init__(self) -> None:
        self._before: Mapping[Move, int] = {}
        self._unplaced_before = 0
        self.is_leading = False
        self.moves: Mapping[Move, int] = {"taken-back": 0, "evicted": 0, "deleted": 0}
        self.waiting: Mapping[tuple[str, str], int] = {}
        self.aside: Sequence[tuple[str, str]] = ()
        self.unplaced = 0
        self.kinds: Mapping[str, bool] = {}

    def begin(self) -> None:
        """A process has been started; it counts from 0."""
        self._before, self._unplaced_before, self.is_leading = self.moves, self.unplaced, True

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take one line. Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` for one that lacks something."""
        self.moves = dict(Counter(said["moves"]) + Counter(self._before)) or self.moves
        self.unplaced = self._unplaced_before + int(said["unplaced"])
        self.waiting = {(namespace, reason): count for namespace, reason, count in said["waiting"]}
        self.aside = [(str(namespace), "watcher") for namespace in said["aside"]]
        self.kinds = {str(kind): bool(is_read) for kind, is_read in dict(said["kinds"]).items()}

    def end(self) -> None:
        """The process has ended, so nothing is known of what waits."""
        self.is_leading, self.waiting, self.aside, self.kinds = False, {}, (), {}


class _Ended(SpotwrightError):
    """The process has ended, or was ended because it fell silent."""


class RecordingProcess:
    """The part of a replica that records. ``told`` is for metrics. ``annotations`` are what a holder says on the Lease."""

    def __init__(
        self,
        settings: Settings,
        annotations: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        command: tuple[str, ...] = (sys.executable, "-m", "spotwright.cluster.recording_main"),
    ) -> None:
        self._settings, self._annotations, self._clock, self._command = settings, annotations, clock, command
        self._failures = 0  # in a row
        self._failing_since: float | None = None
        self.told = Told()

    @property
    def problem(self) -> str:
        """Why this replica cannot record and another process should take its place; empty while it can, or may soon."""
        since = self._failing_since
        if since is None or self._clock() < since + _FAILING:
            return ""
        return f"what records has ended {self._failures} times in a row"

    async def run(self) -> None:
        """Be elected and let the process run, again and again, until cancelled; then it has ended."""
        await apart(self._lead)

    async def _lead(self) -> None:
        api = Api(connect(find_cluster(self._settings.context, kubeconfig=self._settings.kubeconfig)))
        try:
            while True:
                await self._once(api)
        finally:
            await api.close()

    async def _once(self, api: Api) -> None:
        home, name = self._settings.home, self._settings.name
        lease = KubernetesLease(api, home, name, annotations=self._annotations)

        async def record(epoch: int) -> None:
            _LOG.info("this replica watches now, epoch %d", epoch)
            await self._record(lease)

        try:
            await while_held(lease, record)
        except Fenced as error:
            _LOG.warning("%s", error)
        except SpotwrightError as error:
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._failures, 10))
            self._failures += 1
            self._failing_since = self._clock() if self._failing_since is None else self._failing_since
            _LOG.error("watching failed, again in %g s: %s", wait, error)  # one line, no traceback
            await asyncio.sleep(wait)

    async def _record(self, lease: KubernetesLease) -> None:
        """Run one process to its end, which raises; cancelled, it is ended."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=_LONGEST_LINE)
        assert process.stdin is not None  # noqa: S101  # it was started with pipes
        assert process.stdout is not None  # noqa: S101
        self.told.begin()
        try:
            _write(process.stdin, b'{"level":%d,"settings":%s}' % (_LOG.getEffectiveLevel(), self._settings.to_json()))
            lease.on_renewed = lambda until: _write(process.stdin, b"%r" % until)
            lease.on_renewed(lease.held_until)
            await self._hear(process, process.stdout)
        finally:
            lease.on_renewed = lambda _until: None
            self.told.end()
            await _end(process)

    async def _hear(self, process: asyncio.subprocess.Process, lines: asyncio.StreamReader) -> None:
        """Take what the process says until it ends or is silent for too long. Raises :class:`SpotwrightError`."""
        began = heard_at = self._clock()
        used = _processor_seconds(process.pid)
        while True:
            try:
                async with asyncio.timeout(_LOOK):
                    line = await lines.readline()
            except TimeoutError:
                silent = self._clock() - heard_at
                busy = _processor_seconds(process.pid) - used
                if silent >= _STARVED or min(silent, busy) >= _SILENT:
                    raise _Ended(f"the process that records said nothing for {silent:.0f} s, and is ended") from None
                continue
            if not line:
                raise _Ended(f"the process that records has ended ({_how(await process.wait())})")
            try:
                self.told.hear(msgspec.json.decode(line))
            except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
                raise _Ended(f"the process that records said what cannot be read ({error}), and is ended") from error
            heard_at, used = self._clock(), _processor_seconds(process.pid)
            if self._failures and heard_at >= began + _WELL:
                self._failures, self._failing_since = 0, None


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process: its input ends, upon which it gives up its journals. One that does not is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING):
                await process.wait()
    finally:  # also where this is cancelled while it waits
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()


def _write(stream: asyncio.StreamWriter | None, line: bytes) -> None:
    if stream is not None and not stream.is_closing():
        stream.write(line + b"\n")


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}; its messages are above"


def _processor_seconds(pid: int) -> float:
    """Seconds of the processor that a process has used so far; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work()`` on an event loop of its own in a thread of its own. Cancelled, it is cancelled there and waited for.

    What it raises comes out here.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work())

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner, suppress(asyncio.CancelledError):
            runner.get_loop().run_until_complete(task)

    with ThreadPoolExecutor(1, thread_name_prefix="lease") as executor:
        running = asyncio.get_running_loop().run_in_executor(executor, run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                loop.call_soon_threadsafe(task.cancel)
                await running
            raise
