"""The work phase of a step: from its first step of work to its last, by its undisturbed execution.

A training imports and loads for seconds or minutes before its first step. An interruption before that costs no work, so it does
not show whether the step resumes. Three signals show when the work begins, the best first: the progress that the step reports;
the files that it writes; and the rate at which it reads files, which falls after the imports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spotwright.local.supervisor import process_identity
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.injection_points import OUTPUTS, SAVES
from spotwright.rehearsal.ranks import rank_processes
from spotwright.rehearsal.syscall_tracer import process_tree

__all__ = ["ReadSampler", "SeenBy", "WorkPhase", "falls", "work_phase"]


class SeenBy(StrEnum):
    """The evidence for the begin of the work."""

    PROGRESS = "its progress"
    SAVES = "its saves"
    OUTPUTS = "its outputs"
    READS = "the rate at which it reads files"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class WorkPhase:
    """The work lies between ``begin`` and ``end``, in seconds after the step's code began.

    ``saves_at`` are the moments of all operations on saves.
    """

    begin: float
    end: float
    seen_by: SeenBy = SeenBy.NOTHING
    saves_at: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the work takes."""
        return self.end - self.begin

    def moment(self, share: float) -> float:
        """When this share of the work is done, undisturbed."""
        return self.begin + share * self.seconds

    def within(self, share: float) -> WorkPhase:
        """Scale the phase to a step that takes this share of its time."""
        saves_at = tuple(share * at for at in self.saves_at)
        return replace(self, begin=share * self.begin, end=share * self.end, saves_at=saves_at)


_LATE, _LATEST = (
    0.6,
    0.95,
)  # of the step: a first save this late may be long after the first step, or at the end
_PAUSE = 0.02  # seconds between two writes that belong together
_FEWEST_MOMENTS = 4  # of writes to outputs: the first precedes the work, such as a table's header
_FEWEST_READS = 200
_FALL = 4.0  # times fewer reads in a second than before


def work_phase(trace: AttemptTrace, seconds: float) -> WorkPhase:
    """The work phase of a step that takes this many seconds, from the trace of its undisturbed execution."""
    saves_at = tuple(each.at for each in trace.operations if each.area == SAVES)
    if len(trace.progress_at) > 1:
        return WorkPhase(trace.progress_at[0], trace.progress_at[-1], SeenBy.PROGRESS, saves_at)
    saves, outputs = (list(_moments(trace.operations, area)) for area in (SAVES, OUTPUTS))
    by_reads = reads_fall(trace.reads, seconds)
    latest = (_LATE if by_reads else _LATEST) * seconds
    if len(saves) > 1 and saves[0] < latest:
        return WorkPhase(saves[0], seconds, SeenBy.SAVES, saves_at)
    if len(outputs) >= _FEWEST_MOMENTS and outputs[1] < latest:
        return WorkPhase(outputs[1], seconds, SeenBy.OUTPUTS, saves_at)
    if by_reads:
        return WorkPhase(by_reads, seconds, SeenBy.READS, saves_at)
    return WorkPhase(0.0, seconds, SeenBy.NOTHING, saves_at)


def _moments(operations: Sequence[FileOperation], area: str) -> Iterator[float]:
    """When files of an area are written, without operations that directly follow another one."""
    last = float("-inf")
    for each in operations:
        if each.area == area and each.call is not FileCall.MAKE_FOLDER:
            if each.at - last > _PAUSE:
                yield each.at
            last = each.at


def reads_fall(reads: Sequence[tuple[float, int]], seconds: float) -> float:
    """The moment after which a step reads much less, from samples of its reads so far; 0 without one.

    It is where the curve of the reads is farthest above the straight line from its beginning to its end.
    """
    return falls(reads, seconds) if reads and reads[-1][1] >= _FEWEST_READS else 0.0


def falls(samples: Sequence[tuple[float, float]], seconds: float) -> float:
    """The moment after which a step uses much less, from samples of its use so far; 0 without one."""
    samples = [(at, count) for at, count in samples if at <= seconds]
    if len(samples) < _FEWEST_MOMENTS or samples[-1][1] <= 0 or seconds <= 0:
        return 0.0
    whole = samples[-1][1]
    _, at, count = max((count / whole - at / seconds, at, count) for at, count in samples)
    if not 0 < at < _LATEST * seconds:
        return 0.0
    before, after = count / at, (whole - count) / (seconds - at)
    return at if before >= _FALL * after else 0.0


_MAX_SAMPLES = 1000
_INTERVAL = 0.05  # seconds, at first


class ReadSampler(threading.Thread):
    """Sample the number of reads of an attempt's processes, from its beginning to :meth:`finish`.

    ``main`` returns the attempt's main process; 0: it has not begun. The interval doubles when there are many samples.
    ``run_delay`` returns the attempt's seconds of waiting for a processor, with ``waited`` as its maximum, and ``cpu_seconds``
    its computing time: ``used`` has samples of both. With ``looks_for_ranks`` it also collects the ``ranks`` of the attempt's
    processes.
    """

    def __init__(
        self,
        main: Callable[[], int],
        run_delay: Callable[[], float] = lambda: 0.0,
        cpu_seconds: Callable[[], float] = lambda: 0.0,
        *,
        looks_for_ranks: bool = False,
    ) -> None:
        super().__init__(name="reads", daemon=True)
        self._main, self._run_delay, self._cpu_seconds = main, run_delay, cpu_seconds
        self._over = threading.Event()
        self._most = 0
        self._samples: list[tuple[float, int]] = []
        self.used: list[tuple[float, float, float]] = []
        self._computed = 0.0
        self._interval = _INTERVAL
        self._looks_for_ranks = looks_for_ranks
        self.ranks: set[int] = set()
        self.waited = 0.0

    def run(self) -> None:
        """Sample until the end."""
        began = 0.0
        while not self._over.wait(self._interval):
            main = self._main()
            if not main:
                continue
            began = began or time.monotonic()
            count = sum(map(_reads, process_tree(main)))
            self._most = max(self._most, count)
            self.waited = max(self.waited, self._run_delay())
            if self._looks_for_ranks:
                self.ranks.update(rank_processes(main))
            self._computed = max(self._computed, self._cpu_seconds())
            at = time.monotonic() - began
            self._samples.append((at, self._most))
            self.used.append((at, self.waited, self._computed))
            if len(self._samples) >= _MAX_SAMPLES:
                self._samples, self.used, self._interval = self._samples[::2], self.used[::2], 2 * self._interval

    def finish(self) -> tuple[tuple[float, int], ...]:
        """End, and return the samples: seconds, and the number of calls that read."""
        self._over.set()
        self.join()
        return tuple(self._samples)


def _reads(process: int) -> int:
    """``syscr`` of ``/proc/PID/io``, proc(5), which includes children that were waited for; 0 if the process has ended."""
    try:
        lines = process_identity.read(f"/proc/{process}/io").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"syscr:")), 0)
