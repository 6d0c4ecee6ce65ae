"""Training scripts as people write them, rehearsed as commands: the verdict and the truth.

The scripts are files of their own, in the folder beside this module.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.project import Project
from tests.sampling import shared

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "scripts"
RESUMES, BACK, OVER = "safe and resumes", "safe but goes back to an older save", "safe but starts over"
WITH_NOTICE, UNSAFE, UNDECIDED = "safe and resumes only with a notice", "not safe", "undecided"


_KEEP = ("--keep", "kept", "--output", "model.json")


class Script(NamedTuple):
    """The verdict on a script, words of the report, how it is started, and the options."""

    verdict: str
    words: str = ""
    start: tuple[str, ...] = (sys.executable,)
    options: tuple[str, ...] = ("--output", "model.json")


SCRIPTS = {
    "by_epoch": Script(RESUMES),
    "by_time": Script(RESUMES),
    "numbered": Script(RESUMES),
    "moved_from_temp": Script(RESUMES),
    "sqlite": Script(RESUMES),
    "tarball": Script(RESUMES),
    "loader_processes": Script(RESUMES),
    "early_stopping": Script(RESUMES),
    "best_only": Script(RESUMES),
    "shards_by_renaming": Script(RESUMES),
    "time_budget": Script(RESUMES),
    "pointer_file": Script(RESUMES),
    "rare_saves": Script(RESUMES, "lives of three fifths, no notice: the step ended in life"),
    "computes": Script(RESUMES),
    "marked_shards": Script(RESUMES),
    "appended_log": Script(RESUMES),
    "two_slots": Script(RESUMES),
    "logs_beside": Script(RESUMES, "; 2 saves,"),
    "todays_folder": Script(RESUMES, "contains today's date"),
    "rows_kept": Script(RESUMES, "rows of kept/history.csv are there twice", options=_KEEP),
    "best_model_kept": Script(RESUMES, "best.json is different after an interruption, and no attempt reads it"),
    "at_sigterm": Script(WITH_NOTICE),
    "python_launcher": Script(WITH_NOTICE),
    "names_as_text": Script(BACK, "loaded ck-9.json, and not the newest whole save, ck-"),
    "numbered_runs": Script(BACK, "it loaded first.json"),
    "always_the_first": Script(
        BACK, "got no further than attempt 5: it loaded last.json, and attempt 5 had saved last-v4.json"
    ),
    "makes_a_folder": Script(OVER, "nothing is kept"),
    "writes_configuration": Script(OVER, "it writes settings.json once or only adds to it"),
    "by_host": Script(OVER),
    "by_process": Script(RESUMES),  # each attempt is process 1 of its container
    "by_date": Script(OVER),
    "by_boot": Script(OVER),
    "discards": Script(OVER),
    "never_loads": Script(OVER, "it saves, and still starts from the beginning"),
    "in_place_and_forgiving": Script(UNSAFE, "no whole save was left until state.json was written to"),
    "removed_first": Script(UNSAFE, "is removed before the next save is whole"),
    "rows_twice": Script(UNSAFE, "is there twice", options=("--keep", "kept", "--output", "kept/rows.csv")),
    "unmarked_shards": Script(UNSAFE),
    "stale_pid": Script(UNSAFE, "train.pid of the interrupted attempt is still there"),
    "lock_file": Script(UNSAFE, "train.lock of the interrupted attempt is still there"),
    "patience_forgotten": Script(UNSAFE, "compare what the step changes as it goes with what it saves"),
    "only_noise": Script(UNDECIDED, "differs without any interruption"),
}
_PYTHON = f"import subprocess, sys; sys.exit(subprocess.call([{sys.executable!r}, sys.argv[1]]))"
LAUNCHED = [
    ("at_sigterm", Script(OVER, "sh -c", ("sh", "-c", f"{sys.executable} $0; true"))),
    ("at_sigterm", Script(OVER, "never gets it: start it with exec", (sys.executable, "-c", _PYTHON))),
    (
        "at_sigterm",
        Script(
            OVER,
            "does not pass it on",
            (
                "sh",
                "-c",
                f"{sys.executable} $0 | tee -a kept/log",
            ),
            _KEEP,
        ),
    ),
    (
        "at_sigterm_and_before",
        Script(RESUMES, "does not pass it on", ("sh", "-c", f"until {sys.executable} $0; do :; done")),
    ),
]
_ROWS = ("--keep", "kept", "--output", "kept/rows.csv")
LOOK_ALIKE = {
    "seed_forgotten_renamed": Script(UNSAFE, "in place"),
    "one_row_differs": Script(UNSAFE, "is there twice", options=_ROWS),
    "sqlite_seed_forgotten": Script(UNSAFE, "commit them as one"),
    "two_files_seed_forgotten": Script(UNSAFE, "belong together"),
    "mapped_seed_forgotten": Script(UNSAFE, "memory map:"),
    "clock_file": Script(UNSAFE, "a lock whose owner"),
    "folders_seed_forgotten": Script(UNSAFE, "filled in place"),
    "never_loads": Script(OVER, "SIGTERM"),
}
"""Scripts that look as if they had a cause, in whose words it would be named, and have not."""
KEPT = {"names_as_text", "makes_a_folder"}
"""Scripts of `make test`; `make test-long` has every second of the others, `pytest -m many` the rest."""


def check(name: str, script: Script, project: Project, *, is_named: bool = True) -> None:
    shutil.copy(FOLDER / f"{name}.py", project.folder / "train.py")
    (project.folder / "kept").mkdir()
    done = project.spotwright("rehearse", "--seed", "3", *script.options, "--", *script.start, "train.py")
    report = " ".join(done.out[done.out.rindex("\ncommand: ") :].split())

    assert report.startswith(f"command: {script.verdict} undisturbed:"), done.out
    assert (script.words in (report if is_named else report.partition("probable cause:")[2])) == is_named, done.out
    assert done.code == (0 if script.verdict.startswith("safe") else 1)


@pytest.mark.parametrize("name", shared(2, KEPT, SCRIPTS))
def test_a_script_gets_the_verdict_that_is_true(name: str, project: Project) -> None:
    check(name, SCRIPTS[name], project)


@pytest.mark.parametrize("name", shared(2, (), LOOK_ALIKE))
def test_a_cause_is_not_named_where_a_script_only_looks_like_it(name: str, project: Project) -> None:
    check(name, LOOK_ALIKE[name], project, is_named=False)


@pytest.mark.long
@pytest.mark.parametrize(("name", "script"), LAUNCHED)
def test_a_launcher_that_does_not_pass_sigterm_on_is_named(name: str, script: Script, project: Project) -> None:
    check(name, script, project)


@pytest.mark.many
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gets_the_same_verdict_every_time(name: str, number: int, project: Project) -> None:
    check(name, SCRIPTS[name], project)
