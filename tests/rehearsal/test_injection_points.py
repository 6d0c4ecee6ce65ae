"""Injection points follow from the seed and from the file operations of the undisturbed step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation
from spotwright.rehearsal.injection_points import (
    OUTPUTS,
    SAVES,
    AtOperation,
    AtWork,
    FileActivity,
    InjectionKind,
    InjectionPoint,
    draw_points,
    summarize_activity,
)
from spotwright.rehearsal.trial_timing import TrialTiming


def a_save(at: float, *, number: str = "") -> list[FileOperation]:
    """One whole save: a new file, written and renamed."""
    return [
        FileOperation(FileCall.OPEN, SAVES, f"state{number}.new", at),
        FileOperation(FileCall.WRITE, SAVES, f"state{number}.new", at + 0.001),
        FileOperation(FileCall.RENAME, SAVES, f"state{number}", at + 0.002),
    ]


def outputs(*paths: str, at: float = 1.0) -> list[FileOperation]:
    return [FileOperation(call, OUTPUTS, path, at) for path in paths for call in (FileCall.OPEN, FileCall.WRITE)]


OPERATIONS = [*a_save(0.1), *a_save(0.2), *a_save(0.3), *outputs("model", "executor_output.json")]


def injections(points: Sequence[InjectionPoint], kind: InjectionKind) -> list[tuple[object, bool]]:
    return [(each.trigger, each.notice) for point in points if point.kind is kind for each in point.injections]


def test_the_same_seed_gives_the_same_points() -> None:
    assert draw_points(7, "train", summarize_activity(OPERATIONS), 5) == draw_points(
        7, "train", summarize_activity(OPERATIONS), 5
    )


def test_a_pause_within_a_save_does_not_split_it() -> None:
    second = [replace(op, at=op.at + pause) for op, pause in zip(a_save(0.3), (0.0, 0.1, 0.3), strict=True)]

    saves = summarize_activity([*a_save(0.1), *second, *a_save(0.9)]).saves
    assert [(save.first, len(save.operations)) for save in saves] == [(0, 3), (3, 3), (6, 3)]


def test_another_seed_gives_different_points() -> None:
    assert draw_points(7, "train", summarize_activity(OPERATIONS), 5) != draw_points(
        8, "train", summarize_activity(OPERATIONS), 5
    )


def test_every_phase_has_points_with_and_without_notice() -> None:
    points = draw_points(1, "train", summarize_activity(OPERATIONS), 5)

    covered = {(point.kind, each.notice) for point in points for each in point.injections}
    assert {(kind, notice) for kind in list(InjectionKind)[:5] for notice in (False, True)} <= covered


def test_a_kill_follows_each_operation_of_a_save() -> None:
    drawn = injections(draw_points(1, "train", summarize_activity(OPERATIONS), 1), InjectionKind.SAVE)

    assert sorted(trigger.number % 3 for trigger, _ in drawn if isinstance(trigger, AtOperation)) == [0, 1, 2]


def test_a_long_save_has_points_at_both_ends_and_in_between() -> None:
    long = [FileOperation(FileCall.WRITE, SAVES, "state", number / 1000) for number in range(50)]

    numbers = sorted(
        trigger.number
        for trigger, _ in injections(draw_points(1, "t", summarize_activity(long), 1), InjectionKind.SAVE)
        if isinstance(trigger, AtOperation)
    )

    assert len(numbers) == 5
    assert {0, 1, 49} <= set(numbers)


def test_a_step_without_saves_has_only_the_save_point_with_notice() -> None:
    drawn = injections(draw_points(1, "t", summarize_activity(outputs("a", "b")), 1), InjectionKind.SAVE)

    assert [(type(trigger), notice) for trigger, notice in drawn] == [(AtWork, True)]


def test_the_outputs_point_lies_after_one_file_and_before_the_next() -> None:
    drawn = injections(draw_points(1, "t", summarize_activity(outputs("a", "b")), 1), InjectionKind.OUTPUTS)

    assert [trigger for trigger, _ in drawn] == [AtOperation(OUTPUTS, 1)] * 2


def test_a_step_that_cannot_be_traced_is_interrupted_by_time() -> None:
    points = draw_points(1, "t", FileActivity(tracing_failure="no"), 3)
    triggers = [each.trigger for point in points for each in point.injections]

    assert triggers
    assert not any(isinstance(trigger, AtOperation) for trigger in triggers)


def test_saves_separated_by_a_pause_are_counted_separately() -> None:
    assert [save.first for save in summarize_activity(OPERATIONS).saves] == [0, 3, 6]


def test_reopening_a_file_begins_another_save_even_without_a_pause() -> None:
    soon = [*a_save(0.1, number="-1"), *a_save(0.103, number="-2")]

    assert [len(save.operations) for save in summarize_activity(soon).saves] == [3, 3]


def test_the_shards_in_the_folder_of_a_save_are_one_save_and_a_folder_alone_is_none() -> None:
    calls = [(FileCall.MAKE_FOLDER, "")]
    for number in (1, 2, 3):
        calls.append((FileCall.MAKE_FOLDER, f"ck-{number}"))
        for name in ("shard-0.bin", "shard-1.bin", "DONE"):
            calls += [(call, f"ck-{number}/{name}") for call in (FileCall.OPEN, FileCall.WRITE)]
    starts = (0, *(at for at in (1.0, 2.0, 3.0) for _ in range(7)))
    operations = [FileOperation(call, SAVES, path, at) for (call, path), at in zip(calls, starts, strict=True)]

    activity = summarize_activity(operations)

    assert activity.count == 3
    assert [len(save.operations) for save in activity.saves] == [1, 7, 7, 7]


def test_the_longest_save_is_measured_from_first_to_last_operation() -> None:
    slow = [
        FileOperation(FileCall.OPEN, SAVES, "x", 1.0),
        FileOperation(FileCall.WRITE, SAVES, "x", 1.015),
        FileOperation(FileCall.WRITE, SAVES, "x", 1.03),
    ]

    assert summarize_activity([*OPERATIONS, *slow]).longest_save == 0.030000000000000027


@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_interruptions_in_a_row_take_no_longer_than_the_undisturbed_step(count: int) -> None:
    for seed in range(20):
        last = draw_points(seed, "t", FileActivity(), count)[-1]
        shares = [each.trigger.share for each in last.injections if isinstance(each.trigger, AtWork)]

        assert len(shares) == count
        assert sum(shares) <= 1.0


def test_kills_in_a_long_save_come_after_consecutive_commits() -> None:
    commits = [
        FileOperation(call, SAVES, "db-wal", number / 1000)
        for number, call in enumerate([FileCall.WRITE, FileCall.WRITE, FileCall.SYNC] * 30)
    ]
    drawn = injections(draw_points(1, "t", summarize_activity(commits), 1), InjectionKind.SAVE)

    numbers = [trigger.number for trigger, _ in drawn if isinstance(trigger, AtOperation)]
    synced = sorted(number for number in numbers if number % 3 == 2)
    assert any(following - number == 3 for number, following in pairwise(synced)), synced


@pytest.mark.parametrize("hidden", [FileActivity(mapped=("state.bin",)), FileActivity(tracing_failure="no")])
def test_a_step_whose_saves_nothing_shows_has_more_points_in_the_middle(hidden: FileActivity) -> None:
    traced, more = (
        injections(draw_points(1, "t", activity, 1), InjectionKind.MIDDLE) for activity in (FileActivity(), hidden)
    )

    assert (len(traced), len(more)) == (2, 6)


def test_one_notice_comes_so_late_that_the_step_can_finish_in_it() -> None:
    late = [
        each.trigger
        for point in draw_points(1, "t", FileActivity(), 1)
        for each in point.injections
        if isinstance(each.trigger, AtWork) and each.trigger.of_notice
    ]

    assert len(late) == 1
    assert TrialTiming(10.0, notice=2.0).before_end(late[0].share) > 0.85


def test_the_last_point_has_the_requested_number_of_interruptions() -> None:
    last = draw_points(1, "t", summarize_activity(OPERATIONS), 4)[-1]

    assert (last.kind, len(last.injections)) == (InjectionKind.SEVERAL, 4)


def test_a_point_in_the_middle_can_come_earlier_and_keeps_its_name_and_notice() -> None:
    points = draw_points(7, "train", summarize_activity(OPERATIONS), 5)
    for point in points:
        earlier = point.earlier()
        if point.kind in (InjectionKind.MIDDLE, InjectionKind.LIVES):
            assert earlier is not None
            for before, after in zip(point.injections, earlier.injections, strict=True):
                assert not isinstance(before.trigger, AtOperation)
                assert after == replace(before, trigger=replace(before.trigger, share=before.trigger.share / 2))
            assert earlier.name == point.name
        else:
            assert earlier is None
