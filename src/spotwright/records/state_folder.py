"""The state folder: the files of runs, their attempts and cached results.

::

    .spotwright/
      format                        the layout's version
      components.json               digests of component texts, by addresses that name a commit
      cache/FINGERPRINT.json        results that later runs may use
      rehearsals/NAME/              a state folder with the runs of one rehearsal; driver.json names its process,
                                    report.json is what it found
      trash/                        what prune is deleting
      volumes/NAME/                 the folder for pvc://NAME on one machine
      runs/RUN/
        journal.db                  the events
        forecast.json               the plan that 'spotwright run --plan' named
        plan-1.json                 the pipeline or pods and the configuration; plan-2.json after a resume with changed code
        tasks/TASK/attempt-N/       one attempt: log.txt, out/, work/, exit.jsonl, progress, notice.json
        environments/NAME.log       the output of pip while the packages of tasks were installed
        checkpoints/TASK/           shared by the attempts of a task

A folder written by a newer layout is refused, so that an older program cannot damage it. A cached result is one file per
fingerprint of a task's code and inputs, as in KFP's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.errors import InputError, StateError, UnknownRun
from spotwright.regular_files import read_regular, require_regular

__all__ = [
    "LARGEST_FILE",
    "LAYOUT",
    "STATE_NAME",
    "Cache",
    "RunFolder",
    "StateFolder",
    "missing_folder",
    "nearest_state",
    "write_atomically",
]


LAYOUT = 1
"""The version of the layout, as the file ``format`` gives it."""

STATE_NAME = ".spotwright"
"""The name of a project's state folder."""

LARGEST_FILE = 64_000_000
"""The largest JSON file of a state folder, in bytes: the plan of a run of 10,000 tasks has a quarter."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN = re.compile(r"[A-Za-z0-9_.~/-]+")  # urllib.parse.quote leaves these unchanged
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

    @property
    def kfp(self) -> Path:
        """The file on the run of Kubeflow Pipelines, if that executes the run."""
        return self.path / "kfp.json"

    @property
    def forecast(self) -> Path:
        """The output of ``spotwright plan --json`` that ``spotwright run --plan`` named."""
        return self.path / "forecast.json"

    def own_forecast(self) -> Path | None:
        """The same, if it exists. Raises :class:`StateError` if it is not a regular file of bounded size."""
        try:
            require_regular(self.forecast.lstat(), LARGEST_FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{self.forecast}: cannot be read ({error.strerror})") from error
        return self.forecast

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints that the run keeps itself."""
        return self.path / "checkpoints"

    def plan(self, version: int) -> Path:
        """The file of one version of the plan."""
        return self.path / f"plan-{version}.json"

    def plans(self) -> list[Path]:
        """The files of all versions of the plan, oldest first."""
        versions: list[Path] = []
        while self.plan(len(versions) + 1).exists():
            versions.append(self.plan(len(versions) + 1))
        return versions

    def plan_count(self) -> int:
        """How many versions of the plan there are."""
        return len(self.plans())

    def plan_bytes(self) -> int:
        """The bytes of the plan's first version, a workload's only one; 0 if it is gone."""
        try:
            return os.stat(f"{self.path}/plan-1.json").st_size  # noqa: PTH116  # pathlib is slow for thousands
        except FileNotFoundError:
            return 0

    def plan_text(self, version: int) -> tuple[str, str]:
        """The file of one version of the plan, from 1, and its text. Raises :class:`OSError`."""
        path = self.plan(version)
        return str(path), read_regular(path, LARGEST_FILE).decode("utf-8", "replace")

    def attempt(self, task: str, number: int) -> Path:
        """The folder of one attempt."""
        return self.path / f"tasks/{_file_name(task)}/attempt-{number}"

    def log(self, task: str, number: int) -> Path:
        """The file with the standard output and error of one attempt."""
        return self.path / f"tasks/{_file_name(task)}/attempt-{number}/log.txt"

    def environment_log(self, name: str) -> Path:
        """The log of the build of a Python environment. Raises :class:`StateError` for a name that leads elsewhere."""
        if name != _file_name(name):  # journals name it
            raise StateError(f"{self.path}: {name[:60]!r} is not the log of an environment")
        return self.path / "environments" / name

    def made_at(self) -> int:
        """When the run was made, in nanoseconds: its first plan is written once and never touched again.

        Raises :class:`OSError` if the run is gone.
        """
        try:
            return os.stat(f"{self.path}/plan-1.json").st_mtime_ns  # noqa: PTH116  # pathlib is slow for thousands
        except FileNotFoundError:
            return self.journal.stat().st_mtime_ns

    def checkpoint(self, task: str) -> Path:
        """The checkpoint folder of a task, unless the policy names another place."""
        return self.checkpoints / _file_name(task)


class StateFolder:
    """The state folder of a project. :meth:`open` creates a missing one; :meth:`existing` never writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> StateFolder:
        """Open for writing. Raises :class:`StateError` for a folder that is read-only, full or of a newer version."""
        folder = cls.existing(path)
        try:
            is_new = not path.exists() or not any(path.iterdir())
            (path / "runs").mkdir(parents=True, exist_ok=True)
            if is_new:  # never in a folder with the user's files
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
            text = read_regular(file, LARGEST_FILE).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            text = str(LAYOUT)
        except OSError as error:
            raise StateError(
                f"{path}: cannot be read ({error.strerror}); choose another folder with --state"
            ) from error
        if not text.isdecimal() or len(text) > 9:
            raise StateError(
                f"{file}: expected the number of a layout, found {text[:20]!r}; choose another folder with --state"
            )
        if int(text) > LAYOUT:
            raise StateError(
                f"{path}: written by a newer version of spotwright (layout {text}, this one reads up to {LAYOUT}): upgrade, or"
                " choose another folder with --state"
            )
        return cls(path)

    @property
    def components(self) -> Path:
        """The file of digests of component texts."""
        return self.path / "components.json"

    @property
    def cache(self) -> Path:
        """The folder of cached results."""
        return self.path / "cache"

    @property
    def rehearsals(self) -> Path:
        """The folder of rehearsals, each with its own state folder."""
        return self.path / "rehearsals"

    @property
    def rehearsal_report(self) -> Path:
        """In the state folder of a rehearsal that has ended: its report as JSON, with its ``text``."""
        return self.path / "report.json"

    @property
    def driver(self) -> Path:
        """In the state folder of a rehearsal: the file that names the rehearsal's process."""
        return self.path / "driver.json"

    @property
    def trash(self) -> Path:
        """The folder in which ``prune`` deletes."""
        return self.path / "trash"

    def volume(self, name: str) -> Path:
        """The folder that replaces a persistent volume claim."""
        return self.path / "volumes" / _file_name(name)

    def run(self, name: str) -> RunFolder:
        """The folder of the run of this name, which need not exist yet."""
        return RunFolder(self.path / "runs" / name)

    def create(self, name: str) -> RunFolder:
        """Make the folder of a new run. Raises :class:`InputError` for an invalid or used name."""
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
                f"{folder.path}: cannot be created ({error.strerror}); choose another folder with --state"
            ) from error
        return folder

    def runs(self) -> list[RunFolder]:
        """The runs that have a journal, oldest first. One that is deleted meanwhile is left out."""
        return [run for _, run in self.runs_by_age()]

    def runs_by_age(self) -> list[tuple[int, RunFolder]]:
        """The same, each with its time of creation in nanoseconds."""
        runs = []
        try:
            for path in (self.path / "runs").iterdir():
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    os.stat(f"{path}/journal.db")  # noqa: PTH116  # pathlib is slow for thousands
                    run = RunFolder(path)
                    runs.append((run.made_at(), run))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"{self.path}: cannot be read ({error.strerror})") from error
        return sorted(runs, key=lambda run: (run[0], run[1].name))

    def find(self, name: str) -> RunFolder:
        """The run of this name, with this unique beginning, or the newest for ``last``."""
        runs = self.runs()
        if name == "last" and runs:
            return runs[-1]
        exact = [run for run in runs if run.name == name]
        matches = exact or [run for run in runs if name and run.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(run.name for run in matches[-5:])
            raise UnknownRun(f"{name!r} is the beginning of several runs: {names}")
        if not self.path.exists():
            raise UnknownRun(f"no run {name!r}: {missing_folder(self.path)}; --state names another folder")
        newest = ", ".join(run.name for run in runs[-3:])
        hint = f"the newest are {newest}" if newest else "none exists yet"
        raise UnknownRun(f"no run {name!r} in {self.path.absolute()}: {hint}; --state names another folder")


def nearest_state(start: Path | None = None) -> Path:
    """Return the state folder of a command without ``--state``: to write into and to read from.

    It is ``.spotwright`` in the folder ``start`` (default: the current one), else the nearest above it, as Git finds ``.git``,
    else a new one in ``start``. ``run`` uses the one above too: with separate folders for subfolders, ``show`` would miss runs,
    and results would not be reused within a project.

    A folder above counts only if it holds runs and belongs to the user, so that a command never writes to another user's. The
    search ends at the root of the repository, and below the home folder, where a first try would otherwise collect the runs of
    every project; it also ends at a folder that others may write to or own, at another file system, and at a state folder, so
    that commands of an attempt do not write among their engine's runs.
    """
    here = Path.cwd() if start is None else start.absolute()
    own = Path(STATE_NAME) if start is None else start / STATE_NAME
    if os.path.lexists(own):
        return own
    return next((folder / STATE_NAME for folder in _searched(here)[1:] if _holds_runs(folder / STATE_NAME)), own)


def missing_folder(path: Path) -> str:
    """The clause of a message for a state folder that does not exist: the searched places."""
    path = path.absolute()
    if path.name != STATE_NAME:
        return f"folder not found: {path}"
    found, searched = nearest_state(path.parent), _searched(path.parent)
    if found != path:
        return f"there is no {STATE_NAME} in {path.parent}; the nearest one above is {found}"
    above = f" or in a folder above, up to {searched[-1]}" if len(searched) > 1 else ""
    return f"there is no {STATE_NAME} in {path.parent}{above}"


def _searched(here: Path) -> list[Path]:
    """The folders in which :func:`nearest_state` looks, upwards from ``here``, an absolute path."""
    found, homes = [here], _homes()
    for above in here.parents:
        ends = found[-1].name == STATE_NAME or os.path.lexists(found[-1] / ".git")
        if ends or homes & {found[-1], above} or not _may_be_trusted(above, here):
            break
        found.append(above)
    return found


def _homes() -> set[Path]:
    """The home folder's given and resolved paths; empty for a user without one."""
    try:
        return {Path.home(), Path.home().resolve()}
    except RuntimeError:
        return set()


def _may_be_trusted(folder: Path, here: Path) -> bool:
    """Whether only the user may write to a folder, and it is on the file system of ``here``."""
    try:
        facts = folder.stat()
        return not facts.st_mode & stat.S_IWOTH and _is_owned(facts) and facts.st_dev == here.stat().st_dev
    except OSError:
        return False


def _holds_runs(folder: Path) -> bool:
    try:
        return _is_owned(folder.stat()) and (folder / "runs").is_dir()
    except OSError:
        return False


def _is_owned(facts: os.stat_result) -> bool:
    return sys.platform == "win32" or facts.st_uid == os.geteuid()


def write_atomically(path: Path, content: str | Mapping[str, Any]) -> None:
    """Write a file that is whole or absent: under another name first, then renamed. Mappings are written as JSON."""
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
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Make new names in a folder survive power loss. Windows cannot open folders; NTFS keeps a journal of names itself."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except PermissionError:
        if sys.platform == "win32":
            return
        raise
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _json_pieces(value: Any, depth: int) -> Iterator[str]:
    """A value as JSON, one piece per entry of mappings down to ``depth``: a large run's plan has many megabytes."""
    if not depth or not value or not isinstance(value, Mapping):
        yield json.dumps(value, separators=(",", ":"))
        return
    for number, (name, inner) in enumerate(value.items()):
        yield f"{',' if number else '{'}{json.dumps(name)}:"
        yield from _json_pieces(inner, depth - 1)
    yield "}"


def _file_name(task: str) -> str:
    """A task's path as one file name without separators, readable for KFP's names."""
    name = (
        task if _PLAIN.fullmatch(task) else quote(task, safe="/", errors="surrogatepass")
    )  # the check saves three quarters of the time
    name = name.replace("/", "+")
    if len(name) > _LONGEST:
        name = (
            f"{name[: _LONGEST - 17]}~{hashlib.blake2b(task.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"
        )
    return f"%2E{name[1:]}" if name.startswith(".") else name


_PARTS = {"parameters", "artifacts", "run", "task"}


class Cache:
    """Results by fingerprint below one folder. Runs may write at the same time: the last of equal results stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, fingerprint: str) -> Mapping[str, Any] | None:
        """The result (``parameters``, ``artifacts``, ``run``, ``task``) for a fingerprint; ``None`` without a complete one."""
        try:
            result: Mapping[str, Any] = json.loads(read_regular(self._folder / f"{fingerprint}.json", LARGEST_FILE))
            whole = result.keys() >= _PARTS and all(Path(file).exists() for file in result["files"])
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return None
        if not whole:
            return None
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(self._folder / f"{fingerprint}.json")  # prune deletes results unused for long
        return result

    def keep(self, fingerprint: str, result: Mapping[str, Any]) -> None:
        """Store a result. Raises :class:`StateError` if it cannot be written."""
        try:
            self._folder.mkdir(exist_ok=True)
            files = [uri for uri in _local_uris(result.get("artifacts")) if Path(uri).exists()]
            write_atomically(self._folder / f"{fingerprint}.json", {**result, "files": files})
        except OSError as error:
            raise StateError(
                f"{self._folder}: cannot be written ({error.strerror}); free some space or use --cache off"
            ) from error


def _local_uris(artifacts: Any) -> Iterator[str]:
    """The absolute paths among the URIs of artifacts in KFP's shape: ``{name: {"artifacts": [{"uri": ...}]}}``."""
    if isinstance(artifacts, dict):
        uri = artifacts.get("uri")
        if isinstance(uri, str) and uri.startswith("/"):
            yield uri
        for value in artifacts.values():
            yield from _local_uris(value)
    elif isinstance(artifacts, list):
        for value in artifacts:
            yield from _local_uris(value)
