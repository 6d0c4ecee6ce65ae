"""The work left and the time of a launch: stated at first, then as measured, each expected and at most."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spotwright.scheduling.estimates import (
    Estimate,
    Launches,
    Mark,
    Needs,
    Pace,
    needs,
    newest_boots,
    next_mark,
    pace_now,
    start_of,
)

HOUR = 3600.0
STATED = 10 * HOUR
POOLS = (Launches(120.0), Launches(240.0))


def told(reports: Iterable[tuple[float, float]], reached: float = 0.0, pace: Pace | None = None) -> Pace:
    """The pace after the reports of one attempt, as moments in seconds and shares."""
    pace, mark = pace or Pace(), None
    for at, share in reports:
        pace, mark = next_mark(pace, mark, at, share, reached, STATED)
    return pace_now(pace, mark, reached, STATED)


def steadily(
    whole: float, until: float, steps: int, *, after: float = 0.0, begin: float = 0.0
) -> list[tuple[float, float]]:
    """Reports of work that takes ``whole`` seconds, from the share ``begin`` on to ``until``."""
    shares = [begin + (until - begin) * step / steps for step in range(steps + 1)]
    return [(after + (share - begin) * whole, share) for share in shares]


def a_need(
    pace: Pace | None = None,
    progress: float = 0.0,
    *,
    starts: tuple[float, ...] = (),
    time: float = 100 * HOUR,
    pools: tuple[Launches, ...] = POOLS,
) -> Needs:
    return needs(STATED, progress, pace or Pace(), pools, starts, time)


# Work


def test_without_reports_work_is_as_stated_and_at_most_one_percent_longer() -> None:
    need = a_need(progress=0.5)
    assert (need.left, need.work_from) == (Estimate(STATED / 2, STATED / 2 * 1.01), "stated")


@pytest.mark.parametrize(
    ("factor", "words"), [(1.25, "25 % slower than stated"), (0.6, "40 % faster than stated"), (1.0, "as stated")]
)
def test_the_pace_of_the_reports_takes_the_place_of_the_stated_work(factor: float, words: str) -> None:
    need = a_need(told(steadily(STATED * factor, 0.1, 10)), 0.1)
    assert need.left.expected == pytest.approx(0.9 * STATED * factor)
    assert 1.0 < need.left.at_most / need.left.expected < 1.01
    assert need.work_from == f"measured: {words}"


def test_work_that_is_longer_than_stated_is_believed_from_the_first_piece_that_is_long_enough() -> None:
    assert a_need(told([(0, 0.0), (300, 0.007)])).work_from == "stated"  # less than 1 % of the stated work
    assert a_need(told([(0, 0.0), (450, 0.01)])).whole.at_most > STATED * 1.25


def test_work_that_is_shorter_than_stated_is_believed_from_three_pieces_on() -> None:
    wholes = [a_need(told(steadily(STATED / 2, 0.1 * steps, steps))).whole for steps in (1, 2, 3)]
    assert [whole.at_most < STATED for whole in wholes] == [False, False, True]
    assert [whole.expected < STATED for whole in wholes] == [False, True, True]


def test_the_margin_shrinks_with_what_was_measured() -> None:
    margins = [a_need(told(steadily(STATED, share, 40)), share).left for share in (0.02, 0.1, 0.5)]
    ratios = [left.at_most / left.expected for left in margins]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(1.005, abs=1e-4)


def test_a_pace_that_changes_from_piece_to_piece_has_a_wider_margin() -> None:
    uneven = [(0, 0.0), (900, 0.05), (3900, 0.1), (4800, 0.15), (7800, 0.2)]
    even = steadily(39_000, 0.2, 4)
    assert a_need(told(uneven), 0.2).left.at_most > 1.2 * a_need(told(even), 0.2).left.at_most


def test_a_pause_after_each_epoch_widens_it_no_more_once_several_epochs_were_seen() -> None:
    reports, at = [(0.0, 0.0)], 0.0
    for step in range(1, 401):  # an epoch is 20 steps, a step 1/1000 of the work, a pause as long as two steps
        at += 36.0 + 72.0 * (step % 20 == 0)
        reports.append((at, step / 1000))
    left = a_need(told(reports), 0.4).left
    assert left.expected == pytest.approx(0.6 * STATED * 1.1, rel=0.01)
    assert left.at_most < 1.04 * left.expected


def test_nothing_of_a_pace_before_is_lost_when_pieces_are_put_together() -> None:
    pace = Pace()
    for _ in range(1000):
        pace = pace.with_piece(7.0, 0.001)
    assert len(pace.pieces) <= 16
    assert [pace.seconds, pace.share] == pytest.approx([7000.0, 1.0])


def test_reports_that_come_in_bursts_measure_the_same_pace() -> None:
    bursts = [(600.0 * n + 0.01 * k, (5 * n + k) / 300) for n in range(12) for k in range(1, 6)]
    assert a_need(told(bursts)).whole.expected == pytest.approx(STATED, rel=0.001)


def test_a_first_burst_is_no_work_done_in_no_time() -> None:
    assert told([(0.0, 0.1), (0.0, 0.2), (0.1, 0.3)]) == Pace()


@pytest.mark.parametrize("restored", [0.02, 0.58])
def test_what_an_attempt_restores_is_not_measured(restored: float) -> None:
    first = told(steadily(STATED, 0.6, 60))
    again = told([(0.0, 0.0), *steadily(STATED, 0.7, 20, after=60.0, begin=restored)], reached=0.6, pace=first)
    assert a_need(again).whole.expected == pytest.approx(STATED, rel=0.001)


def test_what_the_first_attempt_of_a_run_restores_is_not_measured_either() -> None:
    pace = told([(0.0, 0.0), *steadily(STATED, 0.7, 20, after=60.0, begin=0.5)])
    assert a_need(pace).whole.expected == pytest.approx(STATED, rel=0.001)


def test_attempts_that_start_again_from_an_older_share_measure_what_is_new() -> None:
    pace = told(steadily(STATED, 0.3, 30))
    pace = told(steadily(STATED * 1.5, 0.5, 30, after=9e4, begin=0.2), reached=0.3, pace=pace)
    assert pace.share == pytest.approx(0.5, abs=0.01)
    assert pace.whole == pytest.approx((0.3 * STATED + 0.2 * 1.5 * STATED) / 0.5, rel=0.02)


def test_a_leap_to_the_end_is_not_measured() -> None:
    pace = told([*steadily(STATED, 0.3, 30), (0.31 * STATED, 1.0)])
    assert pace.whole == pytest.approx(STATED)
    assert a_need(pace, 1.0).left == Estimate(0.0, 0.0)


def test_a_clock_that_jumps_back_loses_one_piece() -> None:
    reports = steadily(STATED, 0.4, 40)
    jumped = [(at - (5000 if share > 0.205 else 0), share) for at, share in reports]
    assert told(jumped).whole == pytest.approx(STATED)


def test_reports_of_the_same_share_are_no_pieces() -> None:
    reports = [(60.0 * minute, (minute // 30) / 20) for minute in range(1, 300)]
    assert told(reports).whole == pytest.approx(STATED, rel=0.01)


def test_a_task_that_always_reports_the_same_stays_as_stated() -> None:
    assert a_need(told([(at, 0.2) for at in range(0, 20_000, 60)]), 0.2).work_from == "stated"


# Launches


def test_a_launch_is_as_stated_and_at_most_a_quarter_longer() -> None:
    need = a_need()
    assert (need.launch, need.launch_from) == (Estimate(240.0, 300.0), "stated")


def test_the_first_launch_that_takes_twice_as_long_is_learned() -> None:
    need = a_need(pools=(Launches(120.0), Launches(240.0, (480.0,))))
    assert (need.launch, need.launch_from) == (Estimate(480.0, 600.0), "slowest of 1")


def test_of_many_launches_a_high_quantile_counts_and_the_margin_shrinks() -> None:
    boots = Launches(240.0, (*[200.0 + n for n in range(48)], 3000.0, 4000.0))
    assert boots.boot.expected == pytest.approx(224.5)
    assert boots.boot.at_most == pytest.approx(247.0 * (1 + 0.25 / 50**0.5))


def test_the_newest_fifty_launches_count() -> None:
    assert newest_boots([1.0] * 40, [2.0] * 40) == (*[1.0] * 10, *[2.0] * 40)


def test_the_time_on_the_node_until_work_goes_on_belongs_to_the_launch() -> None:
    pace = told(steadily(STATED, 0.1, 10))
    starts = (start_of(pace, 90.0, 0.0), start_of(pace, 90.0 + 0.01 * STATED, 0.01), start_of(pace, 1.0, 0.5))
    assert list(starts) == pytest.approx([90.0, 90.0, 0.0])
    need = a_need(pace, starts=starts)
    assert list(need.launch) == pytest.approx([330.0, 390.0])
    assert need.launch_from == "stated, and 1m30s on the node until work goes on"


# Margins and deadlines


@pytest.mark.parametrize("spare", [0.0, 100.0, 1e6])
def test_margins_of_stated_figures_never_make_a_deadline_impossible_that_they_meet(spare: float) -> None:
    time = STATED + 240.0 + spare
    need = a_need(time=time)
    assert need.whole.at_most + need.launch.at_most <= time + 1e-6
    assert need.whole.at_most >= need.whole.expected == STATED


def test_stated_work_that_is_too_much_for_the_deadline_is_corrected_by_progress() -> None:
    time = 8 * HOUR
    before, after = a_need(time=time), a_need(told(steadily(5 * HOUR, 0.06, 6)), 0.06, time=time)
    assert before.whole.at_most + before.launch.at_most > time
    assert after.left.at_most + after.launch.at_most < time - 0.06 * 5 * HOUR


def test_the_figures_are_told_in_one_line() -> None:
    need = a_need(told(steadily(STATED * 1.02, 0.5, 50)), 0.5, pools=(Launches(120.0, (200.0, 180.0, 190.0)),))
    assert (
        need.words == "work left 5h07m at most (measured: 2 % slower than stated), launch 3m49s at most (slowest of 3)"
    )


def test_a_mark_is_plain_data() -> None:
    _, mark = next_mark(Pace(), None, 5.0, 0.1, 0.0, STATED)
    assert mark == Mark(None, 0.1, 5.0, 5.0, 0.1)
