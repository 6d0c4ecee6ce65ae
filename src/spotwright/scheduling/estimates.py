"""Estimate the work left of a task with a deadline, and the time of a launch, each expected and at most.

Costs use the expected figure, safety the other one. Both begin with stated figures and end with measured ones:

- *Work.* An attempt reports the share of the work that is done. The seconds from report to report, by the share gained, are the
  task's pace (:class:`Pace`). It counts once it was seen for 1 % of the stated work: earlier it would be noise, later the
  deadline might be lost. From then on two pieces give the expected figure; a pace slower than stated counts at once, a faster
  one only after three pieces.
- *Launches.* The seconds from the request of a node until it is ready, in this run and in earlier ones, and the seconds from
  there until an attempt has come beyond the work done before it (image, start of the code, restore, lost work).

A margin against inexact statements never makes a feasible deadline infeasible: it is at most the time that the stated figures
leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from spotwright.model.quantities import format_duration

__all__ = [
    "LAUNCH_MARGIN",
    "STATED_MARGIN",
    "Estimate",
    "Launches",
    "Mark",
    "Needs",
    "Pace",
    "needs",
    "newest_boots",
    "next_mark",
    "pace_now",
    "start_of",
]


STATED_MARGIN = 0.01
"""Tolerance on the stated work until progress is measured: about what rounding to minutes or hours hides."""

LAUNCH_MARGIN = 0.25
"""The share by which a launch may be longer than stated, or than the one launch that was seen; of n launches 1/sqrt(n) of it."""

_KNOWN_MARGIN = 0.005  # remaining for a pace measured over the whole work
_EARLY_MARGIN = 0.015  # beside it at first, halved with each 2 % of the work that is measured
_HALF = 0.02
_SPREAD = 2.5  # standard errors of the pace; more of them while there are few pieces
_SEEN = 0.01  # the share of the stated work over which a pace must be measured
_FEW = 3  # pieces before a faster pace than stated counts
_MOST_PIECES = 16  # beyond this, neighbours are merged: what recurs, such as a pause, is in every piece
_ALIKE = 0.75
_GROUPS = 1000  # reports within this part of the work are one: they may come in bursts
_NOTHING = 1e-9  # of the work: a smaller gain is rounding, and does not show a pace
_JUMP = 20.0  # times faster than stated: an attempt's first gain is what it restored, not what it did
_MOST_BOOTS = 50  # the newest ones of a pool
_HIGH = 0.95  # the quantile of boots; the slowest one of fewer than twenty


class Estimate(NamedTuple):
    """A duration in seconds: ``expected``, and ``at_most`` with a margin for uncertainty."""

    expected: float
    at_most: float


class Needs(NamedTuple):
    """A task's remaining needs: the work ``left``, the ``whole`` work if none of it is saved, and a ``launch``.

    ``work_from`` and ``launch_from`` name the sources of the figures.
    """

    left: Estimate
    whole: Estimate
    launch: Estimate
    work_from: str = "stated"
    launch_from: str = "stated"

    @property
    def words(self) -> str:
        """The figures that safety uses, in one line."""
        return f"work left {format_duration(self.left.at_most)} at most ({self.work_from}), {self._launch}"

    @property
    def words_of_whole(self) -> str:
        """The same for the whole work."""
        return f"work {format_duration(self.whole.at_most)} at most ({self.work_from}), {self._launch}"

    @property
    def _launch(self) -> str:
        return f"launch {format_duration(self.launch.at_most)} at most ({self.launch_from})"


class Mark(NamedTuple):
    """The measured part of one attempt's reports. Moments are Unix seconds, shares 0 to 1.

    They are measured up to ``at`` and ``share``; ``at`` is ``None`` before the first point. Later reports that came within a
    moment are one group: ``begin`` is when it began, ``last`` and ``newest`` are its newest report. ``is_first``: no piece of
    this attempt is measured yet.
    """

    at: float | None
    share: float
    begin: float
    last: float
    newest: float
    is_first: bool = True


class Pace(NamedTuple):
    """The pace of a task's work: pieces of it, as pairs of seconds and the share gained in them."""

    pieces: tuple[tuple[float, float], ...] = ()

    @property
    def seconds(self) -> float:
        """The measured seconds."""
        return sum(seconds for seconds, _ in self.pieces)

    @property
    def share(self) -> float:
        """The measured share of the work."""
        return sum(share for _, share in self.pieces)

    @property
    def whole(self) -> float:
        """The seconds of the whole work at this pace. Needs a measured piece."""
        return self.seconds / self.share

    def is_seen(self, stated: float) -> bool:
        """Whether it was measured for long enough to count."""
        return self.share > 0.0 and self.seconds >= _SEEN * stated

    def with_piece(self, seconds: float, share: float) -> Pace:
        """The pace with one more piece. Beyond sixteen, neighbours are merged, and new pieces grow to a like size first."""
        *pieces, last = *self.pieces, (seconds, share)
        if len(pieces) >= _MOST_PIECES // 2 and pieces[-1][1] < pieces[0][1] * _ALIKE:
            before = pieces.pop()
            last = before[0] + seconds, before[1] + share
        pieces.append(last)
        if len(pieces) > _MOST_PIECES:
            pieces = [(a + c, b + d) for (a, b), (c, d) in zip(pieces[::2], pieces[1::2], strict=False)] + pieces[-1:]
        return Pace(tuple(pieces))

    def at_most(self, left: float) -> float:
        """The most seconds for a share of the work.

        To the pace this adds two and a half standard errors of it and of the work to come, from the spread of the pieces, and a
        share of the work for what the spread cannot show: 2 % at first, 0.5 % after long measuring.
        """
        whole, measured, count = self.whole, self.share, len(self.pieces)
        squares = sum((seconds - share * whole) ** 2 for seconds, share in self.pieces)
        spread = squares / measured * count / (count - 1) if count > 1 else 0.0
        margin = _KNOWN_MARGIN + _EARLY_MARGIN * math.pow(0.5, measured / _HALF)
        return left * whole * (1.0 + margin) + _SPREAD * (1.0 + 2.0 / count) * math.sqrt(
            spread * left * (1.0 + left / measured)
        )


def next_mark(
    pace: Pace, mark: Mark | None, at: float, share: float, reached: float, stated: float
) -> tuple[Pace, Mark]:
    """Measure one report of an attempt: the new pace of its task, and the new mark of the attempt.

    ``mark`` is ``None`` before its first report, ``reached`` the share that earlier attempts of the task had reported: below it
    a gain may be restored rather than done, so it does not count there. ``stated`` is the stated work in seconds, 0 for none.
    A clock that jumps back, and a share that falls, start over.
    """
    if mark is None or at < mark.last or share < mark.newest:
        return pace, Mark(None, share, at, at, share)
    if at - mark.begin > stated / _GROUPS:
        pace, mark = _closed(pace, mark, reached, stated)
        mark = mark._replace(begin=at)
    return pace, mark._replace(last=at, newest=share)


def pace_now(pace: Pace, mark: Mark | None, reached: float, stated: float) -> Pace:
    """The pace with the newest reports of the running attempt, whose group may still grow."""
    return pace if mark is None else _closed(pace, mark, reached, stated)[0]


def _closed(pace: Pace, mark: Mark, reached: float, stated: float) -> tuple[Pace, Mark]:
    """The pace with the completed open group of reports; a group without a gain is merged with the next.

    A jump to the end does not measure the work that it skips.
    """
    if mark.at is None:
        return pace, mark._replace(at=mark.last, share=mark.newest)
    seconds, gained = mark.last - mark.at, mark.newest - mark.share
    if gained <= _NOTHING or seconds <= 0.0:
        return pace, mark
    is_restored = mark.share < reached or (mark.is_first and gained * stated > _JUMP * seconds)
    if not is_restored and mark.newest < 1.0:
        pace = pace.with_piece(seconds, gained)
    return pace, mark._replace(at=mark.last, share=mark.newest, is_first=False)


class Launches(NamedTuple):
    """The known launches on one pool, in seconds: the ``stated`` one, and the boots that were ``seen``."""

    stated: float
    seen: Sequence[float] = ()

    @property
    def boot(self) -> Estimate:
        """From the request of a node until it is ready: the median of the boots seen, and a high quantile with a margin."""
        if not self.seen:
            return Estimate(self.stated, self.stated * (1.0 + LAUNCH_MARGIN))
        ordered, count = sorted(self.seen), len(self.seen)
        high = ordered[math.ceil(_HIGH * count) - 1]
        return Estimate(_median(ordered), high * (1.0 + LAUNCH_MARGIN / math.sqrt(count)))

    @property
    def words(self) -> str:
        """The source of the figures."""
        return f"slowest of {len(self.seen)}" if self.seen else "stated"


def newest_boots(*seen: Sequence[float]) -> tuple[float, ...]:
    """The newest boots seen, as many as are informative about the next one."""
    return tuple(each for part in seen for each in part)[-_MOST_BOOTS:]


def start_of(pace: Pace, seconds: float, beyond: float) -> float:
    """The seconds on a ready node before work continued, for an attempt that was a share ``beyond`` after ``seconds`` there."""
    return max(0.0, seconds - beyond * pace.whole)


def work_needs(stated: float, progress: float, pace: Pace) -> tuple[Estimate, Estimate, str, bool]:
    """The work left and the whole work of a task, the source of both in words, and whether they are only stated."""
    left = 1.0 - progress
    most = stated * (1.0 + STATED_MARGIN)
    if not pace.is_seen(stated):
        return Estimate(stated * left, most * left), Estimate(stated, most), "stated", True
    pieces = len(pace.pieces)
    expected = pace.whole if pieces > 1 else stated

    def estimate(share: float) -> Estimate:
        at_most = pace.at_most(share)
        return Estimate(expected * share, at_most if pieces >= _FEW else max(at_most, most * share))

    return estimate(left), estimate(1.0), f"measured: {_against(pace.whole, stated)}", False


def _against(whole: float, stated: float) -> str:
    percent = round(abs(whole / stated - 1.0) * 100.0) if stated > 0 else 0
    return f"{percent} % {'slower' if whole > stated else 'faster'} than stated" if percent else "as stated"


def needs(
    stated: float, progress: float, pace: Pace, pools: Sequence[Launches], starts: Sequence[float], time: float
) -> Needs:
    """The needs of a task with ``stated`` seconds of work, of which the share ``progress`` is saved.

    A launch may be one on any of ``pools``. ``starts`` are the seconds that attempts on ready nodes took until their work
    continued. ``time`` is the task's time from the start of the run to its deadline: margins on merely stated figures never
    exceed what the expected figures leave of it.
    """
    left, whole, work_from, is_stated = work_needs(stated, progress, pace)
    slowest = max(pools, key=lambda each: each.boot.at_most)
    boot = Estimate(max(each.boot.expected for each in pools), slowest.boot.at_most)
    boot = Estimate(boot.expected, max(boot))
    start = Estimate(_median(starts), max(starts)) if starts else Estimate(0.0, 0.0)
    margins = is_stated * (whole.at_most - whole.expected) + (not slowest.seen) * (boot.at_most - boot.expected)
    spare = max(0.0, time - whole.expected - boot.expected - start.at_most)
    part = min(1.0, spare / margins) if margins > 0.0 else 1.0
    if is_stated:
        left, whole = _narrowed(left, part), _narrowed(whole, part)
    if not slowest.seen:
        boot = _narrowed(boot, part)
    launch_from = slowest.words
    if start.at_most >= 1.0:
        launch_from += f", and {format_duration(start.at_most)} on the node until work goes on"
    launch = Estimate(boot.expected + start.expected, boot.at_most + start.at_most)
    return Needs(left, whole, launch, work_from, launch_from)


def _narrowed(estimate: Estimate, part: float) -> Estimate:
    return Estimate(estimate.expected, estimate.expected + (estimate.at_most - estimate.expected) * part)


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
