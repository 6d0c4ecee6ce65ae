"""The timeline of a run: its attempts and nodes as columns, an overview of the whole of it, bands and marks over all lanes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, NamedTuple

from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity
from spotwright.page.columns import RunColumns

__all__ = ["STRIP", "Marks", "timeline"]

STRIP = 800
"""How many columns the overview has."""

_LINES = {Capacity.SPOT.value: "spot", Capacity.ON_DEMAND.value: "on_demand", None: "other"}


class Marks(NamedTuple):
    """Moments that are drawn over all lanes (Unix seconds), as far as there are any.

    ``last_moment``: from then on even on-demand does not finish by the deadline. ``planned``: the 10th and the 90th percentile of
    the end in the plan that was made before the run.
    """

    deadline: float | None = None
    last_moment: float | None = None
    planned: tuple[float, float] | None = None


_NONE = Marks()


def timeline(state: RunState, columns: RunColumns, now: float | None = None, marks: Marks = _NONE) -> dict[str, Any]:
    """The timeline as JSON values. All moments in it but ``t0`` are seconds since the run began.

    - ``t0``, ``now`` (until when what goes on counts: the last event where no engine drives the run), ``seq``;
    - ``attempts`` and ``nodes``: as :class:`~spotwright.page.columns.RunColumns` gives them;
    - ``bands``: ``kind`` (``undriven``: nobody drove the run; ``left_out``: new attempts passed a pool over), ``from``, ``until``
      (null: it goes on, and nobody knows for how long), ``pool`` (null for all);
    - ``marks``: ``now`` (null while no engine drives the run), ``deadline``, ``last_moment``, ``planned`` (a pair), each null
      where there is none;
    - ``overview``: :data:`STRIP` equal columns between ``from`` and ``until``: how many attempts ran on ``spot``, on
      ``on_demand`` and on ``other`` nodes (whose pool nobody tells), as means over the column, and how many ``interruptions``
      there were.

    ``now`` as for :func:`~spotwright.views.account.account`: attempts that run count until then.
    """
    attempts = columns.attempts()
    t0, until = state.started_at, state.known_until(now)

    def since(at: float | None) -> float | None:
        return None if at is None else round(at - t0, 3)

    return {
        "t0": t0,
        "now": since(until),
        "seq": state.events,
        "attempts": attempts,
        "nodes": columns.nodes(),
        "bands": [
            {"kind": kind, "from": since(begin), "until": since(end), "pool": pool}
            for kind, begin, end, pool in chain(_undriven(state, now), _left_out(state))
        ],
        "marks": {
            "now": since(now),
            "deadline": since(marks.deadline),
            "last_moment": since(marks.last_moment),
            "planned": None if marks.planned is None else [since(at) for at in marks.planned],
        },
        "overview": _overview(attempts, max(0.0, until - t0)),
    }


_Band = tuple[str, float, float | None, str | None]


def _undriven(state: RunState, now: float | None) -> Iterator[_Band]:
    """The times between two engines; and since the last one, if the run is not over and has none now."""
    for begin, end in state.undriven:
        yield "undriven", begin, end, None
    if state.status is RunStatus.STOPPED or (state.status is RunStatus.RUNNING and now is None):
        yield "undriven", state.last_at, None, None


def _left_out(state: RunState) -> Iterator[_Band]:
    """The pauses of pools that attempts of this run waited for in vain.

    A pause is over before its time once an attempt of the run gets a node there.
    """
    bound: dict[str, list[float]] = {}
    decisions = []
    for task in chain(state.retired.values(), state.tasks.values()):
        for attempt in task.attempts:
            if attempt.taken_back is not None and attempt.taken_back.left_out:
                decisions.append(attempt.taken_back)
            if attempt.pool and attempt.bound_at is not None:
                bound.setdefault(attempt.pool, []).append(attempt.bound_at)
    pauses: dict[str, list[tuple[float, float]]] = {}
    for decision in decisions:
        for pool, (until, _times) in decision.left_out.items():
            pauses.setdefault(pool, []).append((decision.at, until))
    for pool, spans in pauses.items():
        moments = sorted(bound.get(pool, ()))
        for begin, end in _in_force(spans):
            place = bisect_left(moments, begin)
            over = min(end, moments[place]) if place < len(moments) else end
            if over > begin:
                yield "left_out", begin, over, pool


def _in_force(pauses: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The pauses of one pool by their begin, each at most until the next one: that takes its place."""
    ordered = sorted(pauses)
    for (begin, end), following in zip(ordered, [*ordered[1:], None], strict=True):
        yield begin, end if following is None else min(end, following[0])


def _overview(attempts: Mapping[str, Any], until: float) -> dict[str, Any]:
    words, columns = attempts["words"], attempts["columns"]
    width = until / STRIP
    lines = {line: _Line() for line in _LINES.values()}
    of_capacity = [lines[_LINES[word]] for word in words["capacity"]]
    is_interruption = [Cause(word).is_interruption for word in words["cause"]]
    interruptions = [0] * STRIP
    if width > 0:
        for bound, ended, capacity, cause in zip(
            columns["bound"], columns["ended"], columns["capacity"], columns["cause"], strict=True
        ):
            if cause >= 0 and is_interruption[cause]:
                interruptions[min(STRIP - 1, max(0, int(ended / width)))] += 1
            if bound is not None:
                line = lines["other"] if capacity < 0 else of_capacity[capacity]
                line.add(bound / width, (until if ended is None else ended) / width)
    return {
        "from": 0.0,
        "until": round(until, 3),
        **{name: line.means() for name, line in lines.items()},
        "interruptions": interruptions,
    }


class _Line:
    """How many attempts ran at a time, as the mean over each column."""

    def __init__(self) -> None:
        self._parts = [0.0] * (STRIP + 1)  # the covered part of columns that an attempt does not fill
        self._steps = [0] * (STRIP + 1)  # by how many more attempts each column is filled than the one before

    def add(self, begin: float, end: float) -> None:
        """An attempt ran from ``begin`` to ``end``, in columns."""
        begin, end = min(max(begin, 0.0), STRIP), min(end, STRIP)
        if end <= begin:
            return
        first, last = int(begin), int(end)
        if first == last:
            self._parts[first] += end - begin
            return
        self._parts[first] += first + 1 - begin
        self._parts[last] += end - last
        self._steps[first + 1] += 1
        self._steps[last] -= 1

    def means(self) -> list[float]:
        """The mean of each column, to hundredths."""
        filled = accumulate(self._steps)
        return [round(part + count, 2) for part, count in zip(self._parts, filled, strict=True)][:STRIP]
