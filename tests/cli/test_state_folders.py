"""State folders that cannot be used: full, read-only, of a newer version, damaged. Nothing is lost, and it is said."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.full_folders import MEGABYTES, can_mount, fill
from tests.e2e.building import Of, step
from tests.e2e.inside import PLAYGROUND, raise_file, until
from tests.e2e.project import Done, Project, eventually
from tests.sampling import every

# root as everybody else: without the capabilities that let it read and write whatever it likes
_LIKE_OTHERS = [
    "setpriv",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--inh-caps",
    "-dac_override,-dac_read_search",
]


@pytest.fixture
def disk(project: Project) -> Iterator[Path]:
    """A small disk of its own."""
    place = project.folder / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", str(place)], check=True)
    try:
        yield place
    finally:
        project.end_all()
        subprocess.run(["umount", str(place)], check=True)


def adds_one(number: int) -> int:
    return number + 1


def fills_the_disk(number: int) -> int:
    """Leaves room for nothing, until the file is removed from outside."""
    if not (PLAYGROUND / "room").exists():
        with contextlib.suppress(OSError), (PLAYGROUND.parent / "disk" / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
    return number


def fills_it_late(number: int) -> int:
    raise_file("running")
    until("full")
    return number


needs_a_disk = pytest.mark.skipif(bool(can_mount()), reason=can_mount() or "-")


def one_line(done: Done, code: int, *parts: str) -> None:
    assert done.code == code, done
    assert len(done.error_lines) == 1, done.err
    for part in parts:
        assert part in done.err, (part, done.err)


def without_rights(project: Project, *command: str) -> Done:
    """The command as somebody whom file permissions hold."""
    program = [sys.executable, "-m", "spotwright", *command]
    called = subprocess.run(
        [*(_LIKE_OTHERS if os.geteuid() == 0 else []), *program],
        cwd=project.folder, env=project.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Done(called.returncode, called.stdout, called.stderr)


needs_setpriv = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root needs setpriv to give up its rights"
)


def small(project: Project) -> Path:
    return project.pipeline({"it": step(adds_one, {"number": 1})})


@needs_a_disk
def test_a_disk_that_is_full_before_the_run_begins(project: Project, disk: Path) -> None:
    fill(disk)
    done = project.run(small(project), "--state", str(disk / "state"))
    one_line(done, 2, str(disk / "state"))
    assert "No space left" in done.err or "full" in done.err
    (disk / "filler").unlink()
    assert project.run(small(project), "--state", str(disk / "state")).code == 0


@needs_a_disk
@pytest.mark.parametrize("pages", every(6, [4, 1, 2, 8, 16, 24]))
def test_a_disk_that_fills_up_while_the_run_begins_leaves_a_run_that_can_be_resumed_or_none(
    project: Project, disk: Path, pages: int
) -> None:
    state = str(disk / "state")
    assert project.spotwright("run", str(small(project)), "--name", "earlier", "--state", state).code == 0
    filler = fill(disk)
    with filler.open("ab") as file:
        file.truncate(filler.stat().st_size - pages * 4096)
    done = project.spotwright("run", str(small(project)), "--name", "r", "--state", state)
    assert done.code in {0, 1, 2}
    assert done.code == 0 or len(done.error_lines) == 1, done.err
    assert "Traceback" not in done.err
    filler.unlink()
    runs = [run["run"] for run in project.here("runs", "--state", state, "--json").json()]
    assert runs == (["earlier"] if done.code == 2 else ["earlier", "r"])
    again = ("resume", "r") if done.code == 1 else ("run", str(small(project)), "--name", "r")
    assert done.code == 0 or project.spotwright(*again, "--state", state).code == 0


@needs_a_disk
def test_a_disk_that_a_component_fills_stops_the_run_which_goes_on_when_there_is_room(
    project: Project, disk: Path
) -> None:
    steps = {
        "one": step(adds_one, {"number": 1}),
        "two": step(fills_the_disk, {"number": Of("one")}),
        "three": step(adds_one, {"number": Of("two")}),
    }
    state = str(disk / "state")
    done = project.run(project.pipeline(steps), "--state", state)
    one_line(done, 1, str(disk))
    assert project.processes() == {}
    (disk / "filler").unlink()
    project.raise_file("room")
    assert project.spotwright("resume", "r", "--state", state).code == 0
    shown = project.here("show", "r", "--state", state, "--json").json()
    assert shown["outputs"]["three.Output"]["value"] == 3
    assert {task["path"]: len(task["attempts"]) for task in shown["tasks"]}["one"] == 1


@needs_a_disk
def test_a_disk_that_fills_up_while_a_task_runs_is_an_error_with_the_fix_and_loses_nothing(
    project: Project, disk: Path
) -> None:
    steps = {"one": step(fills_it_late, {"number": 1}), "two": step(adds_one, {"number": Of("one")})}
    state = str(disk / "state")
    under = project.start("run", str(project.pipeline(steps)), "--name", "r", "--state", state)
    eventually((project.playground / "running").exists)
    filler = fill(disk)
    project.raise_file("full")
    done = under.wait()
    assert done.code == 1
    assert project.processes() == {}
    assert "Traceback" not in done.err
    filler.unlink()
    assert project.spotwright("resume", "r", "--state", state).code == 0


@needs_setpriv
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_without_permissions(project: Project, mode: int) -> None:
    closed = project.folder / "closed"
    closed.mkdir()
    closed.chmod(mode)
    done = without_rights(project, "run", str(small(project)), "--state", str(closed / "state"))
    one_line(done, 2, f"spotwright: {closed / 'state'}: ", "--state")
    closed.chmod(0o755)


@needs_setpriv
def test_runs_of_a_read_only_state_folder_can_be_read_but_not_started(project: Project) -> None:
    assert project.run(small(project)).code == 0
    folders = [project.state, *(path for path in project.state.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    for path in project.state.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    one_line(without_rights(project, "run", str(small(project))), 2, ".spotwright", "--state")
    assert without_rights(project, "runs", "--json").code == 0
    assert without_rights(project, "show", "r", "--json").code == 0
    assert without_rights(project, "logs", "r").code == 0
    assert without_rights(project, "report", "r").code == 0
    one_line(without_rights(project, "resume", "r"), 2, "r")
    for folder in folders:
        folder.chmod(0o755)


@needs_a_disk
def test_a_file_system_that_is_read_only(project: Project, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    one_line(project.run(small(project), "--state", str(disk / "state")), 2, "Read-only file system", "--state")


def test_a_state_folder_of_a_newer_version(project: Project) -> None:
    assert project.run(small(project)).code == 0
    (project.state / "format").write_text("99\n")
    for command in (
        ["run", str(small(project))],
        ["runs"],
        ["show", "r"],
        ["logs", "r"],
        ["resume", "r"],
        ["cancel", "r"],
    ):
        one_line(project.spotwright(*command), 2, "written by a newer version of spotwright (layout 99", "upgrade")


def test_a_journal_of_a_newer_version(project: Project) -> None:
    assert project.run(small(project)).code == 0
    path = project.state / "runs" / "r" / "journal.db"
    with contextlib.closing(sqlite3.connect(path)) as journal, journal:
        journal.execute("PRAGMA user_version = 99")
    for command in (["show", "r"], ["logs", "r"], ["resume", "r"], ["cancel", "r"], ["report", "r"]):
        one_line(project.spotwright(*command), 2, "written by a newer version of spotwright (format 99", "upgrade")


def test_an_event_of_a_newer_version(project: Project) -> None:
    assert project.run(small(project)).code == 0
    path = project.state / "runs" / "r" / "journal.db"
    with contextlib.closing(sqlite3.connect(path)) as journal, journal:
        journal.execute("UPDATE events SET kind = 'migrated' WHERE kind = 'bound'")
    one_line(project.spotwright("show", "r"), 2, "migrated", "newer version")


@pytest.mark.parametrize("damage", ["journal.db", "plan-1.json"])
def test_an_unreadable_run_does_not_hide_the_others(project: Project, damage: str) -> None:
    for name in ("one", "two"):
        assert project.run(small(project), name=name).code == 0
    (project.state / "runs" / "one" / damage).write_bytes(b"garbage")
    done = project.spotwright("runs", "--json")
    assert [run["run"] for run in done.json()] == ["two"]
    assert len(done.error_lines) == 1
    assert damage in done.err
    assert project.spotwright("show", "two").code == 0
    one_line(project.spotwright("show", "one"), 2, damage)


def test_a_state_folder_that_is_a_file(project: Project) -> None:
    file = project.write("file", "")
    done = project.run(small(project), "--state", str(file))
    assert done.code == 2
    assert len(done.error_lines) <= 2
    assert str(file) in done.err


def test_nothing_is_written_outside_the_state_folder(project: Project) -> None:
    pipeline = small(project)
    before = {path for path in project.folder.rglob("*") if not path.name.endswith((".out", ".err"))}
    assert project.run(pipeline).code == 0
    after = {path for path in project.folder.rglob("*") if not path.name.endswith((".out", ".err"))}
    assert {path.relative_to(project.folder).parts[0] for path in after - before} == {".spotwright"}
    assert (project.state / ".gitignore").read_text() == "*\n"


def test_commands_in_a_subfolder_use_the_state_folder_of_the_project(project: Project) -> None:
    sub = Project(project.folder / "sub", {"HOME": str(project.folder / "home")})
    path = project.pipeline({"one": step(adds_one, {"number": 1})})
    assert project.run(path).code == 0

    assert [line["run"] for line in sub.here("runs", "--json").json()] == ["r"]
    for command in (["show", "r"], ["logs", "r"], ["report", "r"], ["plan", str(path)], ["prune", "--dry-run"]):
        assert sub.here(*command).code == 0, command
    assert "nothing to do" in sub.spotwright("resume", "last").out
    second = sub.run(path, name="second")
    assert second.code == 0
    assert f"using {project.state}: there is no .spotwright in {sub.folder}\n" in second.err
    assert [line["run"] for line in project.here("runs", "--json").json()] == ["r", "second"]
    assert not sub.state.exists()
    assert project.show("second")["tasks"]["one"]["cached_from"] == {"run": "r", "task": "one"}


def test_a_run_that_is_missing_is_told_with_every_folder_that_was_searched(project: Project) -> None:
    for command in (["show", "last"], ["logs", "last"], ["report", "last"], ["resume", "last"], ["cancel", "last"]):
        assert f"there is no .spotwright in {project.folder}" in project.here(*command).err, command
    assert f"no runs yet: there is no .spotwright in {project.folder}" in project.here("runs").out
    project.state.mkdir()
    assert project.here("runs").out == f"no runs yet: the state folder is {project.state}\n"
