"""``prune`` as users type it, after real runs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from scripts.make_reference import json_page
from tests.e2e.building import Param, step
from tests.e2e.inside import hold, raise_file
from tests.e2e.project import Done, Project, eventually

from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.runs import bodies


def adds_one(number: int) -> int:
    return number + 1


def holds(number: int) -> int:
    raise_file("holding")
    hold()


@pytest.fixture
def runs(project: Project) -> Project:
    """A project with two runs that have ended; the second took its result from the cache."""
    pipeline = project.pipeline({"it": step(adds_one, {"number": Param("number")})}, {"number": ("int", 1)})
    for name in ("first", "second"):
        assert project.run(pipeline, name=name).code == 0
    return project


def left(project: Project) -> list[str]:
    return [run["run"] for run in project.here("runs", "--json").json()]


@contextlib.contextmanager
def asking(project: Project, *command: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], object]]]:
    """A command in a terminal that has asked its question, and how to answer it; at the end of the block it ends."""
    terminal, own = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "spotwright", *command],
        cwd=project.folder, env=project.env, stdin=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(own)
        assert process.stdout is not None
        asked = ""
        while not asked.endswith("[y/N]: "):
            character = process.stdout.read(1)
            assert character, asked
            asked += character
        yield process, lambda answer: os.write(terminal, f"{answer}\n".encode())
    os.close(terminal)


def answered(project: Project, answer: str, *command: str) -> Done:
    """A command in a terminal, with one answer to its question."""
    with asking(project, *command) as (process, give):
        give(answer)
        out, err = process.communicate(timeout=600)
    return Done(process.returncode, out, err)


def test_a_dry_run_shows_what_takes_how_much_and_deletes_nothing(runs: Project) -> None:
    done = runs.spotwright("prune", "--dry-run", "--older-than", "0s")
    assert done.code == 0
    lines = {line.split("  ")[0]: line.split() for line in done.out.splitlines() if line}
    assert lines["What"] == ["What", "All", "MB", "Delete", "MB", "to", "delete", "Unused", "for"]
    assert (lines["runs"][1], lines["runs"][3]) == ("2", "2")
    assert float(lines["runs"][2]) > 0
    assert lines["first"][1] == "succeeded"
    assert done.out.rstrip().endswith("dry run: no item was deleted")
    assert left(runs) == ["first", "second"]


@pytest.mark.long
def test_young_runs_are_nothing_to_delete(runs: Project) -> None:
    done = runs.spotwright("prune")
    assert (done.code, done.out.splitlines()[-1]) == (0, "nothing to delete")
    assert left(runs) == ["first", "second"]


@pytest.mark.long
def test_without_a_terminal_it_deletes_only_with_yes(runs: Project) -> None:
    refused = runs.spotwright("prune", "--older-than", "0s")
    assert (refused.code, refused.error_lines) == (
        2,
        [
            "spotwright: no terminal to ask for confirmation: give --yes to delete; --dry-run shows what would be deleted"
        ],
    )
    assert left(runs) == ["first", "second"]
    done = runs.spotwright("prune", "--older-than", "0s", "--yes")
    assert done.code == 0
    assert done.out.splitlines()[-1].startswith("deleted 2 runs, 1 cached result: ")
    assert left(runs) == []
    assert not list((runs.state / "cache").iterdir())
    assert not list((runs.state / "trash").iterdir())


@pytest.mark.long
def test_in_a_terminal_it_asks(runs: Project) -> None:
    command = ("prune", "--older-than", "0s")
    no = answered(runs, "n", *command)
    assert (no.code, no.out) == (0, "no item was deleted\n")
    assert left(runs) == ["first", "second"]
    yes = answered(runs, "y", *command)
    assert (yes.code, left(runs)) == (0, [])


@pytest.mark.long
def test_a_run_that_is_named_stays_with_the_run_whose_results_it_uses(runs: Project) -> None:
    done = runs.spotwright("prune", "--older-than", "0s", "--keep", "sec", "--yes")
    assert "kept: run first (run second uses its results)" in done.out
    assert "kept: run second (named by --keep)" in done.out
    assert left(runs) == ["first", "second"]
    runs.spotwright("prune", "--older-than", "0s", "--keep", "first", "--yes")
    assert left(runs) == ["first"]


@pytest.mark.long
def test_several_runs_can_be_named_and_last_is_the_newest(runs: Project) -> None:
    other = runs.pipeline({"it": step(adds_one, {"number": 7})}, name="other")
    for name in ("third", "fourth"):
        assert runs.run(other, "--cache", "off", name=name).code == 0
    runs.spotwright("prune", "--older-than", "0s", "--keep", "last", "--keep", "first", "--yes")
    assert left(runs) == ["first", "fourth"]


def test_the_newest_runs_stay(runs: Project) -> None:
    other = runs.pipeline({"it": step(adds_one, {"number": 7})}, name="other")
    assert runs.run(other, name="third").code == 0
    runs.spotwright("prune", "--keep-last", "1", "--yes")
    assert left(runs) == ["third"]


@pytest.mark.long
def test_the_json_form_has_every_item(runs: Project) -> None:
    told = runs.spotwright("prune", "--dry-run", "--older-than", "0s", "--keep", "second", "--json").json()
    assert told["deleted"] is False
    assert list(told["sorts"]) == [
        "runs", "rehearsals", "checkpoints", "cached results", "environments", "leftovers",
    ]  # fmt: skip
    assert told["sorts"]["runs"]["count"] == 2
    assert told["sorts"]["runs"]["delete"]["count"] == 0
    second = next(item for item in told["items"] if item["name"] == "second")
    assert {**second, "age": 0, "bytes": 0} == {
        "sort": "runs", "name": "second", "path": ".spotwright/runs/second", "status": "succeeded", "age": 0, "bytes": 0,
        "delete": False, "why": "named by --keep",
    }  # fmt: skip
    refused = runs.spotwright("prune", "--keep-last", "0", "--json")
    assert "no item was deleted" not in refused.out
    done = runs.spotwright("prune", "--older-than", "0s", "--yes", "--json").json()
    assert done["deleted"] is True
    assert left(runs) == []


@pytest.mark.long
def test_a_run_that_an_engine_drives_stays_and_can_be_pruned_when_it_has_ended(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(holds, {"number": 1})})), "--name", "r")
    eventually((project.playground / "holding").exists)
    done = project.spotwright("prune", "--older-than", "0s", "--yes")
    assert "kept: run r (an engine drives it)" in done.out
    assert left(project) == ["r"]
    under.kill()
    alive = project.spotwright("prune", "--older-than", "0s", "--yes")
    assert "kept: run r (its attempts still run)" in alive.out
    assert project.spotwright("cancel", "r").code == 0
    assert project.spotwright("prune", "--older-than", "0s", "--yes").code == 0
    assert left(project) == []


def test_a_run_that_is_resumed_while_prune_asks_stays_with_the_run_whose_results_it_uses(runs: Project) -> None:
    with asking(runs, "prune", "--older-than", "0s") as (process, answer):
        journal = Journal.open(StateFolder(runs.state).run("second").journal)
        journal.take(bodies.this_process(), bodies.is_alive)
        answer("y")
        assert process.stdout is not None
        out = process.stdout.read()
        journal.close()
    assert process.returncode == 0
    assert "kept: run first (run second uses its results)\nkept: run second (an engine drives it)\n" in out
    assert left(runs) == ["first", "second"]


@pytest.mark.long
def test_a_cached_result_outlives_its_run_while_it_needs_no_file_and_is_young(runs: Project) -> None:
    assert runs.spotwright("prune", "--keep-last", "0", "--yes").code == 0
    assert left(runs) == []
    pipeline = runs.folder / "tested.yaml"
    assert runs.run(pipeline, name="again").code == 0
    assert runs.causes("it", "again") == []
    assert runs.spotwright("prune", "--older-than", "0s", "--yes").code == 0
    assert runs.run(pipeline, name="at-last").code == 0
    assert runs.causes("it", "at-last") == ["succeeded"]


@pytest.mark.long
def test_what_cannot_be_deleted_is_named_and_the_exit_code_is_1(runs: Project) -> None:
    (runs.state / "trash").write_text("a file where the trash should be")
    done = runs.spotwright("prune", "--older-than", "0s", "--yes")
    assert done.code == 1
    assert ["cannot be deleted" in line for line in done.error_lines] == [True] * 3, done.error_lines
    assert left(runs) == ["first", "second"]


def test_a_name_that_no_run_has_is_an_error_before_anything_is_deleted(runs: Project) -> None:
    done = runs.here("prune", "--older-than", "0s", "--keep", "second", "--keep", "nothing", "--yes")
    assert (done.code, done.out) == (2, "")
    state = runs.state.absolute()
    assert done.error_lines == [
        f"spotwright: no run 'nothing' in {state}: the newest are first, second; --state names another folder"
    ]
    assert left(runs) == ["first", "second"]


@pytest.mark.long
def test_the_reference_names_every_field_of_the_json(runs: Project) -> None:
    page = json_page()
    section = page.partition("## What takes space")[2]
    told = json.loads(runs.spotwright("prune", "--dry-run", "--json").out)
    names = {*told, *told["sorts"], *told["sorts"]["runs"], *told["sorts"]["runs"]["delete"], *told["items"][0]}
    assert [name for name in names if f"`{name}`" not in section] == []
