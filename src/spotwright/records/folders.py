"""The state folder: where runs, their attempts and cached results live, and the names of everything in it.

::

    .spotwright/
      format                        the layout's version
      components.json               digests of component texts, by addresses that name a commit
      cache/FINGERPRINT.json        results that later runs may use
      volumes/NAME/                 what pvc://NAME stands for on one machine
      runs/RUN/
        journal.db                  the facts
        plan-1.json                 the compiled pipeline and its configuration; plan-2.json after a resume with mended code
        tasks/TASK/attempt-N/       one attempt: log.txt, out/, work/, exit.jsonl, progress, notice.json
        checkpoints/TASK/           handed from attempt to attempt

A folder written by a newer layout is refused, so that an older program cannot damage it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.errors import InputError, StateError, UnknownRun

__all__ = ["LAYOUT", "RunFolder", "StateFolder", "write_atomically"]

LAYOUT = 1
"""The version of the layout, in the file ``format``."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LONGEST = 200  # bytes of a file name made from a task's path; file systems allow 255


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / "journal.db"

    def plan(self, version: int) -> Path:
        """The file of one version of the plan."""
        return self.path / f"plan-{version}.json"

    def plans(self) -> list[Path]:
        """The versions that are there, oldest first."""
        versions: list[Path] = []
        while self.plan(len(versions) + 1).exists():
            versions.append(self.plan(len(versions) + 1))
        return versions

    def attempt(self, task: str, number: int) -> Path:
        """The folder of one attempt."""
        return self.path / "tasks" / _file_name(task) / f"attempt-{number}"

    def checkpoint(self, task: str) -> Path:
        """The folder that a task's attempts hand on to each other, where the policy names no other place."""
        return self.path / "checkpoints" / _file_name(task)


class StateFolder:
    """The state folder of a project. :meth:`open` makes it where it is missing; :meth:`existing` only looks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> StateFolder:
        """Open for writing. Raises :class:`StateError` for a folder that is read-only, full or of a newer version."""
        folder = cls.existing(path)
        try:
            ours = not path.exists() or not any(path.iterdir())
            (path / "runs").mkdir(parents=True, exist_ok=True)
            if ours:  # never in a folder that holds something of the user's
                write_atomically(path / ".gitignore", "*\n")
            if not (path / "format").exists():
                write_atomically(path / "format", f"{LAYOUT}\n")
            if not os.access(path / "runs", os.W_OK):
                raise PermissionError(f"{path / 'runs'} is read-only")
        except OSError as error:
            raise StateError(
                f"{path}: cannot be written ({error.strerror or error}); choose another folder with --state"
            ) from error
        return folder

    @classmethod
    def existing(cls, path: Path) -> StateFolder:
        """Open for reading. Raises :class:`StateError` for a folder of a newer version."""
        file = path / "format"
        try:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            text = str(LAYOUT)
        except OSError as error:
            raise StateError(
                f"{path}: cannot be read ({error.strerror}); choose another folder with --state"
            ) from error
        if not text.isdecimal():
            raise StateError(
                f"{file}: expected the number of a layout, found {text[:20]!r}; choose another folder with --state"
            )
        if int(text) > LAYOUT:
            raise StateError(
                f"{path}: written by a newer version of spotwright (layout {text}, this one knows {LAYOUT}): "
                "upgrade, or choose another folder with --state"
            )
        return cls(path)

    @property
    def components(self) -> Path:
        """The file of digests of component texts."""
        return self.path / "components.json"

    @property
    def cache(self) -> Path:
        """Where cached results are."""
        return self.path / "cache"

    def volume(self, name: str) -> Path:
        """The folder that stands for a persistent volume claim."""
        return self.path / "volumes" / _file_name(name)

    def run(self, name: str) -> RunFolder:
        """Where the run of this name lies or will lie."""
        return RunFolder(self.path / "runs" / name)

    def create(self, name: str) -> RunFolder:
        """Make the folder of a new run. Raises :class:`InputError` where a run of that name exists, or it can be no name."""
        if not _RUN_NAME.fullmatch(name) or name == "last":
            raise InputError(
                f"{name!r} cannot be the name of a run: expected up to 100 letters, digits, dots, dashes or underscores, "
                "beginning with a letter or digit, and not 'last'"
            )
        folder = self.run(name)
        try:
            folder.path.mkdir()
        except FileExistsError as error:
            raise InputError(f"run {name} exists already; choose another name") from error
        except OSError as error:
            raise StateError(
                f"{folder.path}: cannot be made ({error.strerror}); choose another folder with --state"
            ) from error
        return folder

    def runs(self) -> list[RunFolder]:
        """The runs that have a journal, oldest first."""
        try:
            paths = [path for path in (self.path / "runs").iterdir() if (path / "journal.db").exists()]
            return [RunFolder(path) for path in sorted(paths, key=_made_at)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"{self.path}: cannot be read ({error.strerror})") from error

    def find(self, name: str) -> RunFolder:
        """The run of this name, with this unique beginning, or the newest for ``last``."""
        runs = self.runs()
        if name == "last" and runs:
            return runs[-1]
        exact = [run for run in runs if run.name == name]
        found = exact or [run for run in runs if name and run.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownRun(f"{name!r} is the beginning of several runs: {', '.join(run.name for run in found[-5:])}")
        known = ", ".join(run.name for run in runs[-3:])
        hint = f"the newest are {known}" if known else "there are none yet"
        raise UnknownRun(f"no run {name!r} in {self.path}: {hint}; --state names another folder")


def write_atomically(path: Path, content: str | Mapping[str, Any]) -> None:
    """Write a file so that it is whole or absent: beside it, then renamed. Mappings are written as JSON."""
    pieces = _json_pieces(content, depth=5) if isinstance(content, Mapping) else (content,)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.writelines(piece.encode() for piece in pieces)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too survives power loss
    finally:
        os.close(folder)


def _json_pieces(value: Any, depth: int) -> Iterator[str]:
    """A value as JSON, mappings down to ``depth`` one entry at a time: the plan of a large run has many megabytes."""
    if not depth or not value or not isinstance(value, Mapping):
        yield json.dumps(value, separators=(",", ":"))
        return
    for number, (name, inner) in enumerate(value.items()):
        yield f"{',' if number else '{'}{json.dumps(name)}:"
        yield from _json_pieces(inner, depth - 1)
    yield "}"


def _made_at(run: Path) -> tuple[int, str]:
    """When a run was made: its first plan is written once and never touched again."""
    first = run / "plan-1.json"
    return (first if first.exists() else run / "journal.db").stat().st_mtime_ns, run.name


def _file_name(task: str) -> str:
    """A task's path as one file name: readable for the names KFP gives, never a path of its own."""
    name = quote(task, safe="").replace("%2F", "+")
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - 17]}~{hashlib.blake2b(task.encode(), digest_size=8).hexdigest()}"
    return f"%2E{name[1:]}" if name.startswith(".") else name
