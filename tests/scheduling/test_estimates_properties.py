"""Whatever work and launches really take, and however progress is reported: soon `at most` covers it, and `expected` is near.

An estimate from noisy reports is wrong now and then. So two things are tested: how often it is wrong in tasks drawn at random,
and how wrong at worst in tasks that a search has made as unlucky as it could.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.scheduling.estimates import Estimate, Launches, Mark, Needs, Pace, needs, next_mark, pace_now, start_of

STATED = 40_000.0
BOOT = 300.0
SEEN = 0.05  # the share of the work that was reported before anything is asked
FEW = 12  # and the reports
ASKED = 0.1  # of the reports are followed by a look at the estimate
WORST = 0.97  # of the work left is covered however the noise fell: a search over ten thousand tasks finds lucky ones


class Truth(NamedTuple):
    """A task as it really is. ``every`` is the share from report to report, ``noise`` how much its pace changes between them."""

    factor: float
    launch: float
    start: float
    every: float
    noise: float
    burst: int
    lives: tuple[float, ...]  # for which share of the work each attempt lives before its node is taken
    lost: float  # the share that each has not saved
    restores_visibly: bool  # an attempt reports nothing done before it has restored its checkpoint


truths = st.builds(
    Truth,
    factor=st.floats(0.6, 1.5),
    launch=st.floats(0.5, 3.0),
    start=st.floats(0.0, 600.0),
    every=st.floats(0.0005, 0.02),
    noise=st.floats(0.0, 0.1),
    burst=st.integers(1, 5),
    lives=st.lists(st.floats(0.02, 0.5), max_size=6).map(tuple),
    lost=st.floats(0.0, 0.04),
    restores_visibly=st.booleans(),
)


Left = Callable[[float, Estimate], None]
"""The use of the seconds of work that are really left, and their estimate."""


def check(truth: Truth, chances: Random, look: Left) -> None:
    """Run the task once. After some reports the estimates are compared with the truth."""
    pace, reached, saved, at, reports = Pace(), 0.0, 0.0, 0.0, 0
    boots: list[float] = []
    starts: list[tuple[float, float]] = []
    for life in (*truth.lives, 1.0):
        at += BOOT * truth.launch
        boots.append(BOOT * truth.launch)
        bound, share, begin, started = at, saved, reached, False
        mark: Mark | None = None
        at += truth.start
        if truth.restores_visibly and saved:
            pace, mark = next_mark(pace, mark, bound, 0.0, begin, STATED)
        pending: list[float] = []
        highest = reached
        while share < min(1.0, saved + life):
            step = min(truth.every, 1.0 - share)
            at += step * truth.factor * STATED * (1.0 + truth.noise * chances.uniform(-1.0, 1.0))
            share += step
            pending.append(share)
            if len(pending) < truth.burst and share < 1.0:
                continue
            highest = share
            for told in pending:
                pace, mark = next_mark(pace, mark, at, told, begin, STATED)
                if not started and begin <= told < 1.0:
                    started = True
                    starts.append((at - bound, told - begin))
                reports += 1
            pending.clear()
            if share < 1.0 and chances.random() < ASKED:
                compare(truth, pace_now(pace, mark, begin, STATED), share, boots, starts, reports, look)
        reached, saved = max(reached, highest, 1e-9), max(0.0, share - truth.lost)
        if share >= 1.0:
            return


def compare(
    truth: Truth,
    pace: Pace,
    share: float,
    boots: list[float],
    starts: list[tuple[float, float]],
    reports: int,
    look: Left,
) -> None:
    seen = [start_of(pace, *each) for each in starts] if pace.is_seen(STATED) else []
    need = needs(STATED, share, pace, [Launches(BOOT, boots)], seen, 1e6)
    assert need.left.expected <= need.left.at_most
    assert need.launch.expected <= need.launch.at_most
    launch_is_covered(truth, need, enough=bool(seen) and truth.burst == 1)
    if reports < FEW or pace.share < SEEN or len(pace.pieces) < 3:
        return
    look((1.0 - share) * truth.factor * STATED, need.left)


def near(left: float, estimate: Estimate) -> None:
    assert estimate.at_most >= WORST * left
    assert estimate.expected == pytest.approx(left, rel=0.08)
    assert estimate.at_most <= 1.25 * left + 0.005 * STATED


def launch_is_covered(truth: Truth, need: Needs, *, enough: bool) -> None:
    """The boot from the first launch on; the start on the node once the pace of the work is known."""
    assert need.launch.at_most >= BOOT * truth.launch
    if enough:
        unsure = 1.0 + 2.0 * truth.noise * truth.every * truth.factor * STATED
        assert need.launch.at_most >= BOOT * truth.launch + truth.start * 0.8 - unsure


@settings(max_examples=200)
@given(truth=truths, seed=st.integers(0, 2**32))
def test_the_truth_is_near_once_it_was_seen(truth: Truth, seed: int) -> None:
    check(truth, Random(seed), near)  # noqa: S311


@pytest.mark.long
@settings(max_examples=10_000)
@given(truth=truths, seed=st.integers(0, 2**32))
def test_the_truth_is_near_once_it_was_seen_in_ten_thousand_tasks(truth: Truth, seed: int) -> None:
    check(truth, Random(seed), near)  # noqa: S311


def drawn(chances: Random) -> Truth:
    """A task as one in a thousand is, without a search for the worst."""
    return Truth(
        factor=chances.uniform(0.6, 1.5),
        launch=chances.uniform(0.5, 3.0),
        start=chances.uniform(0.0, 600.0),
        every=chances.uniform(0.0005, 0.02),
        noise=chances.choice([chances.uniform(0.0, 0.1), 0.1]),
        burst=chances.randint(1, 5),
        lives=tuple(chances.uniform(0.02, 0.5) for _ in range(chances.randrange(7))),
        lost=chances.uniform(0.0, 0.04),
        restores_visibly=chances.random() < 0.5,
    )


def test_at_most_covers_the_work_left_but_for_one_look_in_five_hundred() -> None:
    looks: list[tuple[float, Estimate]] = []
    chances = Random(28)  # noqa: S311
    for _ in range(400):
        check(drawn(chances), chances, lambda *each: looks.append(each))
    short = [estimate.at_most / left for left, estimate in looks if estimate.at_most < left]
    far = [estimate.expected / left for left, estimate in looks if abs(estimate.expected / left - 1.0) > 0.05]
    assert len(looks) > 1_000
    assert len(short) <= len(looks) / 500, sorted(short)[:5]
    assert len(far) <= len(looks) / 500, far[:5]
