"""Durations of tasks: from a file, from the policy, from an earlier run, or assumed with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.forecast.builders import task

from spotwright.errors import ConfigError, InputError
from spotwright.forecast.tasks import ASSUMED, SAVE, Durations, read_durations


def written(tmp_path: Path, text: str, name: str = "durations.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_gives_durations_saves_and_iterations_and_the_later_line_wins(tmp_path: Path) -> None:
    text = 'tasks:\n  "**": 5m\n  loop/train: {work: 2h, save: 20s}\n  loop: {iterations: 12}\n'
    found = read_durations(written(tmp_path, text))
    assert found.of("load", "load", 60.0) == (300.0, "given in durations.yaml", False, SAVE)
    assert found.of("loop/train-3", "loop/train", None) == (7200.0, "given in durations.yaml", True, 20.0)
    assert found.iterations("loop", "loop") == 12


def test_a_loop_over_known_items_has_their_number_and_a_line_that_says_another_is_named(tmp_path: Path) -> None:
    found = read_durations(written(tmp_path, "tasks:\n  loop: {iterations: 12}\n"))
    assert found.iterations("loop", "loop", known=10) == 10
    [note] = found.notes([])
    assert note.endswith("durations.yaml:2: loop has 10 items, so its iterations are not read here")


def test_json_has_the_same_shape(tmp_path: Path) -> None:
    assert (
        read_durations(written(tmp_path, '{"tasks": {"train": "90s"}}', "d.json")).of("train", "train", None).work
        == 90.0
    )


def test_what_the_policy_states_is_used_and_what_nothing_tells_is_assumed_with_a_note() -> None:
    durations = Durations()
    assert durations.of("train", "train", 120.0) == (120.0, "expected_duration in the policy", False, SAVE)
    assert durations.of("load", "load", None) == (ASSUMED, "assumed", False, SAVE)
    [note] = durations.notes([task("train"), task("load")._replace(source="assumed")])
    assert note.startswith("the duration of load is not known: 10m00s each is assumed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: {train: 0s}", "tasks.train: expected a duration above 0, found '0s'"),
        ("tasks: {train: soon}", "tasks.train: expected a duration such as 30s, 5m or 2h, found 'soon'"),
        ("tasks: {train: -5m}", "expected a duration such as"),
        ("tasks: {train: {works: 5m}}", "tasks.train.works: unknown key, did you mean 'work'?"),
        ("tasks: {loop: {iterations: 0}}", "tasks.loop.iterations: expected a whole number from 1"),
        ("tasks: [train]", "tasks: expected a mapping from tasks to durations"),
        ("train: 5m", "train: unknown key"),
        ("", "found an empty file"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_durations(written(tmp_path, text))
    assert message in str(error.value)
    assert "durations.yaml:1:" in str(error.value)


def test_a_line_that_names_no_task_is_refused_with_the_tasks_there_are(tmp_path: Path) -> None:
    durations = read_durations(written(tmp_path, "tasks:\n  train: 5m\n  trian: 6m\n"))
    durations.of("train", "train", None)
    with pytest.raises(InputError) as error:
        durations.check_used(["load", "train"])
    said = "durations.yaml:3: tasks.trian matches no task: did you mean 'train'?; the tasks are load, train"
    assert str(error.value).endswith(said)


def test_a_line_for_a_branch_that_is_not_planned_is_no_fault(tmp_path: Path) -> None:
    read_durations(written(tmp_path, "tasks:\n  else/train: 5m\n")).check_used(["if/train", "else/train"])
