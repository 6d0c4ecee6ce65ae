"""The points follow from the seed and from what the step did undisturbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotwright.local.syscalls import Call
from spotwright.rehearsal.points import OUTPUTS, SAVES, At, Kind, Learnt, Point, Share, draw, learn
from spotwright.rehearsal.tracer import Op


def a_save(at: float, *, number: str = "") -> list[Op]:
    """One whole save: beside, then renamed."""
    return [
        Op(Call.OPEN, SAVES, f"state{number}.new", at),
        Op(Call.WRITE, SAVES, f"state{number}.new", at + 0.001),
        Op(Call.RENAME, SAVES, f"state{number}", at + 0.002),
    ]


def outputs(*paths: str, at: float = 1.0) -> list[Op]:
    return [Op(call, OUTPUTS, path, at) for path in paths for call in (Call.OPEN, Call.WRITE)]


SEEN = [*a_save(0.1), *a_save(0.2), *a_save(0.3), *outputs("model", "executor_output.json")]


def blows(points: Sequence[Point], kind: Kind) -> list[tuple[object, bool]]:
    return [(blow.when, blow.notice) for point in points if point.kind is kind for blow in point.blows]


def test_the_same_seed_gives_the_same_points() -> None:
    assert draw(7, "train", learn(SEEN), 5) == draw(7, "train", learn(SEEN), 5)


def test_pauses_of_a_busy_machine_change_no_save() -> None:
    second = [replace(op, at=op.at + pause) for op, pause in zip(a_save(0.3), (0.0, 0.1, 0.3), strict=True)]

    saves = learn([*a_save(0.1), *second, *a_save(0.9)]).saves
    assert [(save.first, len(save.ops)) for save in saves] == [(0, 3), (3, 3), (6, 3)]


def test_another_seed_gives_other_points() -> None:
    assert draw(7, "train", learn(SEEN), 5) != draw(8, "train", learn(SEEN), 5)


def test_every_part_of_its_life_is_hit_with_notice_and_without() -> None:
    points = draw(1, "train", learn(SEEN), 5)

    hit = {(point.kind, blow.notice) for point in points for blow in point.blows}
    assert {(kind, notice) for kind in list(Kind)[:5] for notice in (False, True)} <= hit


def test_a_kill_comes_after_every_step_of_a_save() -> None:
    found = blows(draw(1, "train", learn(SEEN), 1), Kind.SAVE)

    assert sorted(when.number % 3 for when, _ in found if isinstance(when, At)) == [0, 1, 2]


def test_a_save_of_many_steps_is_hit_at_its_ends_and_somewhere_between() -> None:
    long = [Op(Call.WRITE, SAVES, "state", number / 1000) for number in range(50)]

    numbers = sorted(when.number for when, _ in blows(draw(1, "t", learn(long), 1), Kind.SAVE) if isinstance(when, At))

    assert len(numbers) == 5
    assert {0, 1, 49} <= set(numbers)


def test_a_step_that_saves_nothing_is_not_hit_in_a_save_but_after_a_notice() -> None:
    found = blows(draw(1, "t", learn(outputs("a", "b")), 1), Kind.SAVE)

    assert [(type(when), notice) for when, notice in found] == [(Share, True)]


def test_between_outputs_means_after_one_file_and_before_the_next() -> None:
    found = blows(draw(1, "t", learn(outputs("a", "b")), 1), Kind.OUTPUTS)

    assert [when for when, _ in found] == [At(OUTPUTS, 1)] * 2


def test_a_step_whose_files_cannot_be_watched_is_hit_by_time() -> None:
    found = [blow.when for point in draw(1, "t", Learnt(looked=False), 3) for blow in point.blows]

    assert found
    assert all(isinstance(when, Share) for when in found)


def test_saves_apart_in_time_are_saves_of_their_own() -> None:
    assert [save.first for save in learn(SEEN).saves] == [0, 3, 6]


def test_a_file_that_is_opened_again_begins_another_save_however_soon() -> None:
    soon = [*a_save(0.1, number="-1"), *a_save(0.103, number="-2")]

    assert [len(save.ops) for save in learn(soon).saves] == [3, 3]


def test_the_longest_save_is_known() -> None:
    slow = [Op(Call.OPEN, SAVES, "x", 1.0), Op(Call.WRITE, SAVES, "x", 1.015), Op(Call.WRITE, SAVES, "x", 1.03)]

    assert learn([*SEEN, *slow]).longest_save == 0.030000000000000027


def test_as_many_interruptions_follow_each_other_as_were_asked_for() -> None:
    last = draw(1, "t", learn(SEEN), 4)[-1]

    assert (last.kind, len(last.blows)) == (Kind.SEVERAL, 4)
