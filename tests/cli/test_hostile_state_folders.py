"""A state folder that a stranger made: whatever its files are, commands end with a sentence, and end no process of the user's."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.page.recorded import a_story, log_of, recorded

from spotwright.local.supervisor import process_identity
from spotwright.records.state_folder import RunFolder

COMMANDS = (
    ("runs",),
    ("show", "bad"),
    ("logs", "bad"),
    ("report", "bad"),
    ("report", "--since", "36500d"),
    ("prune", "--dry-run"),
    ("resume", "bad"),
    ("cancel", "bad"),
)
PATIENCE = 40.0  # seconds for all commands; one that hangs takes for ever
ALL = """
import sys
from spotwright import cli
state, lines = sys.argv[1], sys.argv[2:]
for line in lines:
    print("---", line, flush=True)
    sys.argv = ["spotwright", *line.split(), "--state", state]
    cli._outcome()
    sys.stdout.flush()
"""

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with two runs whose engine has died."""
    state = tmp_path_factory.mktemp("whole") / "state"
    reader = recorded(state, a_story())
    log_of(reader.folder, 2, b"a log\n")
    (reader.folder.path / "forecast.json").write_text("{}")
    shutil.copytree(state / "runs/a-run", state / "runs/bad")
    (state / "runs/a-run").rename(state / "runs/good")
    return state


@pytest.fixture
def state(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "state")
    return tmp_path / "state"


def attempt(state: Path) -> Path:
    """The attempt of the bad run that had a node when its engine died."""
    folder = RunFolder(state / "runs/bad").attempt("eval", 2)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def commands(state: Path, *lines: tuple[str, ...]) -> dict[str, str]:
    """What each command printed, all in one process."""
    env = {**os.environ, "XDG_CACHE_HOME": str(state / "no-cache")}
    done = subprocess.run(
        [sys.executable, "-c", ALL, str(state), *map(" ".join, lines or COMMANDS)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False, env=env,
    )  # fmt: skip
    sections = done.stdout.decode().split("--- ")[1:]
    return {each.partition("\n")[0]: each.partition("\n")[2] for each in sections}


# Files that are not regular files of bounded size

FILES = (
    "journal.db", "journal.db-wal", "journal.db-shm", "journal.db-journal", "plan-1.json", "forecast.json", "kfp.json",
    "tasks/eval/attempt-2/log.txt", "tasks/eval/attempt-2/claim", "tasks/eval/attempt-2/exit.jsonl",
)  # fmt: skip


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100_000_000_000)


@pytest.mark.parametrize("form", [pipe, endless, sparse])
@pytest.mark.parametrize("file", FILES)
def test_a_file_without_an_end_hangs_no_command(state: Path, file: str, form: Damage) -> None:
    path = state / "runs/bad" / file
    path.unlink(missing_ok=True)
    form(path)
    said = commands(state)
    assert len(said) == len(COMMANDS)
    assert "Traceback" not in "".join(said.values())
    assert "good" in said["runs"]


@pytest.mark.parametrize("form", [pipe, endless, sparse])
def test_a_format_without_an_end_is_a_sentence(state: Path, form: Damage) -> None:
    (state / "format").unlink()
    form(state / "format")
    for line, text in commands(state).items():
        assert "format" in text or "cannot be read" in text, line
        assert "Traceback" not in text


# Journals that SQLite would evaluate

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


def sql(*statements: str) -> Callable[[Path], None]:
    """A change of the journal, as its maker likes it."""

    def change(run: Path) -> None:
        with closing(sqlite3.connect(run / "journal.db", isolation_level=None)) as journal:
            for statement in statements:
                journal.execute(statement)
            journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return change


JOURNALS: dict[str, Damage] = {
    "a view of events without an end": sql(
        "ALTER TABLE events RENAME TO others",
        f"CREATE VIEW events AS {ENDLESS} x AS seq, 0 AS at, 'x' AS kind, '' AS task, 0 AS attempt, '' AS data FROM n"
        " WHERE x < 0",
    ),
    "a view as lease": sql(
        "ALTER TABLE lease RENAME TO others",
        f"CREATE VIEW lease AS {ENDLESS} 1 AS one, 1 AS epoch, '' AS owner, 0 AS renewed_at, 0 AS expires_at FROM n WHERE x < 0",
    ),
    "a trigger on requests": sql(
        f"CREATE TRIGGER t AFTER UPDATE ON lease BEGIN INSERT INTO requests (kind, at) {ENDLESS} 'x', 0 FROM n WHERE x < 0; END"
    ),
    "a column that is computed": sql("ALTER TABLE events ADD COLUMN more AS (hex(zeroblob(400000000)))"),
    "a table that is a function": sql("DROP TABLE requests", "CREATE VIRTUAL TABLE requests USING fts5(kind, at)"),
    "an index with an expression": sql("CREATE INDEX i ON requests (length(hex(zeroblob(at))))"),
    "an event of 100 MB": sql("UPDATE events SET data = printf('%.*c', 100000000, '[') WHERE seq = 2"),
    "more than a million events": sql("UPDATE events SET seq = 1000001 WHERE seq = (SELECT max(seq) FROM events)"),
}


@pytest.mark.parametrize("damage", JOURNALS.values(), ids=JOURNALS)
def test_a_journal_that_is_a_program_hangs_no_command(state: Path, damage: Damage) -> None:
    damage(state / "runs/bad")
    said = commands(state)
    assert len(said) == len(COMMANDS)
    assert "Traceback" not in "".join(said.values())
    assert "good" in said["runs"]
    assert "run bad is left out" in said["runs"]
    assert "journal.db" in said["show bad"]


def test_pages_of_a_journal_in_a_circle_end(state: Path) -> None:
    """A table whose pages lead to the same rows again and again."""
    journal = state / "runs/bad/journal.db"
    with closing(sqlite3.connect(journal, isolation_level=None)) as db:
        row = db.execute("SELECT at, kind, task, attempt, data FROM events WHERE kind = 'node' LIMIT 1").fetchone()
        db.executemany("INSERT INTO events (at, kind, task, attempt, data) VALUES (?, ?, ?, ?, ?)", [row] * 1000)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = db.execute("PRAGMA page_size").fetchone()[0]
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    content = bytearray(journal.read_bytes())
    begin = (root - 1) * size
    assert content[begin] == 5  # an interior page of a table: all its cells lead to the first child now
    count = int.from_bytes(content[begin + 3 : begin + 5], "big")
    cells = [int.from_bytes(content[begin + 12 + 2 * n : begin + 14 + 2 * n], "big") for n in range(count)]
    for cell in cells[1:]:
        content[begin + cell : begin + cell + 4] = content[begin + cells[0] : begin + cells[0] + 4]
    journal.write_bytes(content)
    said = commands(state, ("runs",), ("show", "bad"))
    assert "run bad is left out" in said["runs"]
    assert "damaged" in said["show bad"]


# Processes, programs and folders that files name


@pytest.fixture
def sentinel() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user's that has nothing to do with any run."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def named(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The identity of a process, as whoever is on this machine can read it."""
    seen = process_identity.stat(process.pid)
    assert seen is not None
    return {"pid": process.pid, "starttime": seen.starttime, "boot_id": process_identity.boot_id()}


def claim_of(state: Path, **content: Any) -> None:
    claim = {"by": "shim", "folder": str(state / "runs/bad"), "run": "bad", "task": "eval", "attempt": 2, "epoch": 1}
    claim |= {"group": None, "container": None, **content}
    (attempt(state) / "claim").write_text(json.dumps(claim) + "\n")


def lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


@pytest.mark.parametrize("command", [("cancel", "bad"), ("resume", "bad")])
def test_the_holder_of_a_lease_that_is_no_engine_is_not_signalled(
    state: Path, sentinel: subprocess.Popen[bytes], command: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(state / "runs/bad/journal.db", isolation_level=None)) as journal:
        journal.execute("UPDATE lease SET owner = ?", (json.dumps(named(sentinel)),))
    said = commands(state, command)
    assert str(sentinel.pid) in said[" ".join(command)]
    assert lives(sentinel)


@pytest.mark.parametrize("command", [("cancel", "bad"), ("resume", "bad")])
def test_a_process_that_a_claim_names_and_that_is_not_of_the_run_lives_on(
    state: Path, sentinel: subprocess.Popen[bytes], command: tuple[str, ...]
) -> None:
    claim_of(state, **named(sentinel))
    assert (
        f"names process {sentinel.pid}, which lives and is not an attempt"
        in commands(state, command)[" ".join(command)]
    )
    assert lives(sentinel)


def test_a_claim_that_names_the_folder_of_another_run_ends_nothing_there(state: Path) -> None:
    other = state / "runs/good"
    marks = {**process_identity.marks("good", other), "SPOTWRIGHT_TASK": "eval", "SPOTWRIGHT_ATTEMPT": "2"}
    with subprocess.Popen(["/bin/sleep", "600"], env=marks, start_new_session=True) as process:
        dead = named(process) | {"starttime": 1}
        claim_of(state, **dead, folder=str(other))
        commands(state, ("cancel", "bad"))
        assert lives(process)
        process.kill()


@pytest.mark.parametrize("boot_id", ["another", process_identity.boot_id()])
@pytest.mark.parametrize("wrong", ["program", "name", "folder"])
def test_a_claim_executes_no_program_and_deletes_no_folder(state: Path, boot_id: str, wrong: str) -> None:
    program, mine, done = state / "podman", state / "mine", state / "done"
    mine.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {done}\n")
    program.chmod(0o755)
    names = {"program": "podman", "name": "spotwright-0", "folder": ""}
    names |= {"program": {"program": str(program)}, "name": {}, "folder": {"folder": str(mine)}}[wrong]
    claim_of(state, pid=1, starttime=1, boot_id=boot_id, container={**names, "image": ""})
    text = commands(state, ("cancel", "bad"))["cancel bad"]
    assert "names a container that is not this attempt's" in text
    assert not done.exists()
    assert mine.exists()


def test_an_attempt_that_is_a_link_to_elsewhere_is_left_alone(state: Path, tmp_path: Path) -> None:
    (tmp_path / "mine/out").mkdir(parents=True)
    shutil.rmtree(attempt(state))
    attempt(state).rmdir()
    (state / "runs/bad/tasks/eval/attempt-2").symlink_to(tmp_path / "mine")
    assert "symbolic link" in commands(state, ("cancel", "bad"))["cancel bad"]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["out"]


def test_a_cached_result_that_is_its_own_source_ends(state: Path) -> None:
    with closing(sqlite3.connect(state / "runs/bad/journal.db", isolation_level=None)) as journal:
        last = journal.execute("SELECT max(at) FROM events").fetchone()[0]
        cached = json.dumps({"run": "bad", "of_task": "eval", "parameters": {}, "artifacts": {}})
        journal.execute(
            "INSERT INTO events (at, kind, task, attempt, data) VALUES (?, 'cached', 'eval', 0, ?)", (last, cached)
        )
    said = commands(state, ("logs", "bad"))
    assert "Traceback" not in said["logs bad"]
