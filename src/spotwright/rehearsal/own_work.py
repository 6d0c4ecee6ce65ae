"""The work that an attempt did, by a measure that a busy machine does not change. Pure.

Wall-clock seconds do not measure work: on a busy machine a step does less in each. There are four measures, the best first: the
progress that the step reports; the files that it rewrites repeatedly; the processor time of its processes, if it computes most
of the time; and its time without waits for a processor, if it mostly sleeps or waits for others. One undisturbed execution
gives the unit: all of its work is 1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spotwright.rehearsal.attempt_trace import AttemptTrace
from spotwright.rehearsal.injection_points import SAVES, is_save, summarize_activity
from spotwright.rehearsal.work_phase import SeenBy, WorkPhase, falls

__all__ = ["LONGEST_GAP", "MeasuredBy", "OwnWork", "own_work"]


class MeasuredBy(StrEnum):
    """The measures of work, the most reliable first."""

    PROGRESS = "its own progress"
    FILES = "the files that it writes"
    PROCESSOR = "processor time"
    TIME = "its time without waits for a processor"


_COMPUTES = 0.5  # of its time: then processor time measures it
_MEASURABLE = 0.5  # seconds of a processor: the kernel counts in hundredths
_FEWEST_SAVES = 6  # that measure the work
LONGEST_GAP = 0.4
"""Of the work, between two of them."""


@dataclass(frozen=True, slots=True)
class OwnWork:
    """The work of the undisturbed step in units of its measure: progress from 0 to 1, operations on files, or seconds.

    ``begin`` is what an attempt uses before its work begins, for imports; ``whole`` is the work. ``start`` and ``seconds`` are
    the undisturbed step's times to begin and to work, without waits for a processor, and ``start_computes`` is its computing
    time before it began. This shows when another attempt's work begins, because the other time of imports depends on the
    machine. ``saves`` are the numbers of operations on saves after which one of them was complete; empty: saves do not measure
    the work.
    """

    measured_by: MeasuredBy
    begin: float
    whole: float
    start: float = 0.0
    seconds: float = 0.0
    first_progress: float = 0.0
    saves: tuple[int, ...] = ()
    start_computes: float = 0.0

    def target(self, share: float) -> float:
        """The amount of the measure at this share of the work."""
        return self.begin + share * self.whole

    def last_operation(self, share: float) -> int:
        """The number, from 0, of the operation on saves that completes this share of the work."""
        return min(self.saves, key=lambda count: abs(count - share * self.whole)) - 1

    def last_save(self, share: float) -> tuple[int, float]:
        """The operations on saves before this share of the work, and the share since the last of them."""
        count = max((each for each in self.saves if each <= share * self.whole), default=0)
        return count, share - count / self.whole

    def done(self, trace: AttemptTrace | None, cpu_seconds: float, progress: Sequence[float | None]) -> float | None:
        """The work of an attempt that reported this ``progress`` first and last, as a share of the whole.

        ``None`` if it was not measured.
        """
        if self.measured_by is MeasuredBy.PROGRESS:
            first, last = progress
            return 0.0 if first is None or last is None else max(0.0, last - first) / self.whole
        if self.measured_by is MeasuredBy.PROCESSOR:
            return max(0.0, cpu_seconds - self.begin) / self.whole
        if trace is None or trace.own_seconds is None:
            return None
        if self.measured_by is MeasuredBy.FILES:
            return sum(each.area == SAVES and is_save(each) for each in trace.operations) / self.whole
        begin = self.begin if trace.own_begin is None else trace.own_begin
        return max(0.0, trace.own_seconds - begin) / self.whole

    def place(self, progress: float | None) -> float | None:
        """The share of the work at this progress; ``None`` if progress is not the measure."""
        if self.measured_by is not MeasuredBy.PROGRESS or progress is None:
            return None
        return max(0.0, progress - self.first_progress) / self.whole


def own_work(
    trace: AttemptTrace, phase: WorkPhase, cpu_seconds: float, first_progress: float | None, progress: float | None
) -> OwnWork | None:
    """The measure of a step, from one undisturbed execution; ``None`` if there is none."""
    if phase.seen_by is SeenBy.NOTHING:  # imports compute, and the work after them mostly waits
        by_own_time = [(at - waited, waited, computed) for at, waited, computed in trace.used]
        start = falls([(at, computed) for at, _, computed in by_own_time], trace.own_seconds or 0.0)
        _, cpu_before = _used_until(by_own_time, start)
    else:
        begin = _begins_at(phase)
        waited, cpu_before = _used_until(trace.used, begin)
        start = max(0.0, begin - waited)
    seconds = (trace.own_seconds or 0.0) - start
    reported = (progress or 0.0) - (first_progress or 0.0)
    if phase.seen_by is SeenBy.PROGRESS and reported > 0:
        return OwnWork(MeasuredBy.PROGRESS, 0.0, reported, start, seconds, first_progress or 0.0)
    saves = _regular_saves(trace, phase)
    if saves:
        return OwnWork(MeasuredBy.FILES, 0.0, saves[-1], start, seconds, saves=saves)
    computed = cpu_seconds - cpu_before
    if computed >= max(_MEASURABLE, _COMPUTES * seconds):
        return OwnWork(MeasuredBy.PROCESSOR, cpu_before, computed, start, seconds)
    return OwnWork(MeasuredBy.TIME, start, seconds, start, seconds, start_computes=cpu_before) if seconds > 0 else None


def _regular_saves(trace: AttemptTrace, phase: WorkPhase) -> tuple[int, ...]:
    """The number of operations at each save's end, if the step makes several at about equal intervals."""
    if any(area == SAVES for area, _ in trace.mapped):
        return ()
    operations = [each for each in trace.operations if is_save(each)]
    saves = summarize_activity(operations).saves
    ends = [save.operations[-1].at for save in saves]
    gaps = [after - before for before, after in pairwise([*ends, phase.end])]
    if len(saves) < _FEWEST_SAVES or max(gaps) > LONGEST_GAP * (phase.end - ends[0]):
        return ()
    return tuple(save.first + len(save.operations) for save in saves)


def _begins_at(phase: WorkPhase) -> float:
    """When the work begins; if saves show it, one usual interval before the first of them."""
    if phase.seen_by is not SeenBy.SAVES:
        return phase.begin
    pauses = sorted(after - before for before, after in pairwise(phase.saves_at) if after - before > _WITHIN_A_SAVE)
    return max(0.0, phase.begin - pauses[len(pauses) // 2]) if pauses else 0.0


_WITHIN_A_SAVE = 0.02  # seconds


def _used_until(samples: Sequence[tuple[float, float, float]], at: float) -> tuple[float, float]:
    """How long an attempt had waited and computed at a moment, between two samples."""
    number = bisect_left(samples, (at,))
    if number == len(samples):
        return samples[-1][1:] if samples else (0.0, 0.0)
    before = samples[number - 1] if number else (0.0, 0.0, 0.0)
    after = samples[number]
    part = (at - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
    waited, computed = (before[each] + part * (after[each] - before[each]) for each in (1, 2))
    return waited, computed
