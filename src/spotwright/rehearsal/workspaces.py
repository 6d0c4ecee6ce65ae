"""The initial files and the outputs of a rehearsed step's attempts, for a task or a command.

On a cluster an attempt begins in a fresh container. So each attempt of a command begins in a fresh copy of the working folder,
without the changes of earlier attempts, except in *kept* paths, which represent volumes. A task has
an empty folder anyway. Both have the folder of ``SPOTWRIGHT_CHECKPOINT``. Persistent volume claims are folders here.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from spotwright.errors import InputError
from spotwright.local.protocol import LOG, OUT, WORK, StartOrder
from spotwright.rehearsal.injection_points import OUTPUTS, SAVES, SCRATCH
from spotwright.rehearsal.persisted_paths import KEPT, PersistedPaths, copy_path, remove_path
from spotwright.rehearsal.trials import TrialRun

__all__ = ["STANDARD_OUTPUT", "CommandWorkspace", "PvcFolders", "TaskWorkspace", "Workspace"]


STANDARD_OUTPUT = "standard output"
"""The name of a command's standard output among its outputs."""


class PvcFolders:
    """The claims of every rehearsed task, with their initial content below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounts: dict[str, list[tuple[str, Path]]] = {}  # by task: mount path, and folder of the claim

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Reset the claims before the first attempt of a trial; return the folders and mount paths to watch with their area."""
        mounts = self._mounts[order.task] = list(_claim_mounts(order))
        for target, source in mounts:
            initial = self._folder / _file_name(order.task) / _file_name(target)
            if order.attempt == 1 and initial.exists():
                remove_path(source)
                copy_path(initial, source)
            elif order.attempt == 1:
                copy_path(source, initial)
        return {Path(path): SAVES for mount in mounts for path in mount}

    def has_any(self, task: str) -> bool:
        """Whether the task mounts claims."""
        return bool(self._mounts.get(task))

    def collect(self, run: Path, task: str) -> None:
        """Store the content of a task's claims after a trial, beside its attempts."""
        for target, source in self._mounts.get(task, ()):
            copy_path(source, run / KEPT / "claims" / _file_name(target))

    def content(self, run: Path, task: str) -> dict[str, Path]:
        """The content of the claims after a trial, by mount path."""
        return {target: run / KEPT / "claims" / _file_name(target) for target, _ in self._mounts.get(task, ())}


def _claim_mounts(order: StartOrder) -> Iterator[tuple[str, Path]]:
    """Mount path and folder of each claim; the attempt's own empty folders are not claims."""
    for mount in order.mounts:
        source = str(mount.get("source", ""))
        if source and not source.startswith(f"{order.directory}/"):
            yield str(mount["target"]), Path(source)


def _file_name(text: str) -> str:
    return quote(text, safe="")


_INITIAL_FILES = "copied.json"  # in an attempt's folder: the files that its working folder held at the beginning

_MAX_BYTES, _MAX_FILES = 2 << 30, 100_000  # of a working folder, which is copied for every attempt
_LINKED = frozenset({".git", ".hg", ".venv", "venv", "node_modules"})  # commands do not write there: links suffice
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")  # in a Python environment, whatever its name
_NOT_COPIED = frozenset(
    {".spotwright", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
)


class Workspace(Protocol):
    """Prepares the attempts of a step and finds its outputs. Attempts read the ``readable`` paths wherever these are."""

    @property
    def readable(self) -> Sequence[str]:
        """Paths of this machine below private folders that attempts may read."""

    @property
    def passes_on_sigterm(self) -> bool:
        """Whether an attempt's main process is Spotwright's, and only passes SIGTERM on to the command."""

    def prepare(self, order: StartOrder) -> Mapping[Path, str]:
        """Ready an attempt's folders; return the folders to watch, each with the name of its area."""

    def is_shared(self, task: str) -> bool:
        """Whether the trials of a task share persistent data, so that only one may run at a time."""

    def collect(self, run: Path, task: str | None) -> None:
        """Store the persistent data after a trial beside its run: of the named task, or of all if none is named."""

    def outputs(self, trial: TrialRun, task: str) -> dict[str, Any]:
        """The task's outputs at the end of a trial: values, and ``Path`` for files and folders."""

    def states(self, trial: TrialRun, task: str) -> Iterator[tuple[str, Path]]:
        """The persistent files and folders other than outputs, after a trial: their names and paths."""


@dataclass(frozen=True, slots=True)
class TaskWorkspace:
    """The workspace of a pipeline's tasks. The ``metadata`` of an artifact counts as a separate output.

    ``task`` is the rehearsed one; None: all are. ``output_names`` are absolute paths in persisted paths or claims that are
    outputs beside the declared ones; the rest there is state.
    """

    persisted: PersistedPaths
    claims: PvcFolders
    task: str
    output_names: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    passes_on_sigterm = False

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Reset the persistent data; the local backend makes everything else."""
        persisted = self.persisted.prepare(order) if order.task == self.task else {}
        own = {Path(order.directory, OUT): OUTPUTS, Path(order.directory, WORK): SCRATCH}
        return {**own, **_checkpoint(order), **persisted, **self.claims.prepare(order)}

    def is_shared(self, task: str) -> bool:
        """Whether there are persisted paths, or the task mounts claims."""
        return bool(self.persisted) or self.claims.has_any(task)

    def collect(self, run: Path, task: str | None) -> None:
        """Store persisted paths and the task's claims beside the run."""
        self.persisted.collect(run)
        if task is not None:
            self.claims.collect(run, task)

    def outputs(self, trial: TrialRun, task: str) -> dict[str, Any]:
        """Parameters by name, artifacts (paths if they are files of this machine), and the outputs in persisted data."""
        result = trial.results[task]
        kept = {**self.persisted.content(trial.run.path), **self.claims.content(trial.run.path, task)}
        outputs = {**result["parameters"], **_named_outputs(self.output_names, kept)}
        for name, artifact in result["artifacts"].items():
            for index, each in enumerate(artifact if isinstance(artifact, list) else [artifact]):
                key = f"{name}[{index}]" if isinstance(artifact, list) else name
                uri = str(each.get("uri", ""))
                outputs[key] = Path(uri) if uri.startswith("/") else uri
                if each.get("metadata"):
                    outputs[f"{key} (metadata)"] = each["metadata"]
        return outputs

    def states(self, trial: TrialRun, task: str) -> Iterator[tuple[str, Path]]:
        """The checkpoints and the claims."""
        yield "SPOTWRIGHT_CHECKPOINT", trial.run.checkpoint(task)
        yield from self.claims.content(trial.run.path, task).items()


@dataclass(frozen=True, slots=True)
class CommandWorkspace:
    """The workspace of a command in ``folder``.

    ``output_names`` are the outputs to compare; empty: every file that the command makes or changes in the folder. ``kept`` are
    the paths in the folder that outlive an attempt, ``persisted`` the ones outside it: they hold state, not outputs unless
    named as such. ``stdout``: standard output is an output too.
    """

    folder: Path
    state: Path  # the state folder, which is never copied
    persisted: PersistedPaths
    output_names: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    stdout: bool = False
    readable: tuple[str, ...] = ()
    passes_on_sigterm = True

    def check(self) -> None:
        """Raise :class:`InputError` for a folder that is too large to copy, and for paths outside of it."""
        for option, names in (("--output", self._own_outputs), ("--keep", self.kept)):
            for name in names:
                path = Path(os.path.normpath(self.folder / name))
                if path == self.folder or not path.is_relative_to(self.folder):
                    raise InputError(f"{option} {name}: expected a path inside the working folder {self.folder}")
        size = count = 0
        for here, folders, files in os.walk(self.folder):
            folders[:] = [
                name
                for name in folders
                if name not in _NOT_COPIED and not _is_linked(Path(here, name)) and Path(here, name) != self.state
            ]
            count += len(files)
            size += sum(os.lstat(Path(here, name)).st_size for name in files)
            if size > _MAX_BYTES or count > _MAX_FILES:
                raise InputError(
                    f"{self.folder}: this folder is copied for every attempt, and holds more than {_MAX_BYTES >> 30} GiB or "
                    f"{_MAX_FILES:,} files; rehearse the command in a smaller folder"
                )

    @property
    def _own_outputs(self) -> tuple[str, ...]:
        """The named outputs in the folder; absolute paths lie in persisted paths."""
        return tuple(name for name in self.output_names if not name.startswith("/"))

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Copy the working folder, and move in the kept paths from the previous attempt."""
        work = Path(order.directory, WORK)
        _copy_folder(self.folder, work, self.state)
        previous = Path(order.directory).with_name(f"attempt-{order.attempt - 1}") / WORK
        watched = {work / name: OUTPUTS for name in (self._own_outputs if self.output_names else ("",))}
        watched |= {**_checkpoint(order), **self.persisted.prepare(order)}
        for name in self.kept:
            path = work / name
            if previous.exists():
                remove_path(path)
                if os.path.lexists(previous / name):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    (previous / name).rename(path)
            watched[path] = SAVES
        Path(order.directory, _INITIAL_FILES).write_text(json.dumps(_file_versions(work)))
        return watched

    def is_shared(self, task: str) -> bool:  # noqa: ARG002 (a command is the only task)
        """Whether there are persisted paths."""
        return bool(self.persisted)

    def collect(self, run: Path, task: str | None) -> None:  # noqa: ARG002 (a command is the only task)
        """Store the persisted paths beside the run."""
        self.persisted.collect(run)

    def outputs(self, trial: TrialRun, task: str) -> dict[str, Any]:
        """The files and folders to compare, by name."""
        folder = trial.last_attempt(task).folder
        work = folder / WORK
        outputs: dict[str, Any] = {name: work / name for name in self._own_outputs}
        outputs |= _named_outputs(self.output_names, self.persisted.content(trial.run.path))
        if not self.output_names:
            initial = json.loads((folder / _INITIAL_FILES).read_text())
            changed = sorted(name for name, version in _file_versions(work).items() if initial.get(name) != version)
            kept = [Path(os.path.normpath(name)) for name in self.kept]
            outputs |= {name: work / name for name in changed if not any(map(Path(name).is_relative_to, kept))}
        if self.stdout:
            outputs[STANDARD_OUTPUT] = folder / LOG
        return outputs

    def states(self, trial: TrialRun, task: str) -> Iterator[tuple[str, Path]]:
        """The checkpoints, and the kept paths in the working folder."""
        yield "SPOTWRIGHT_CHECKPOINT", trial.run.checkpoint(task)
        yield from ((name, trial.last_attempt(task).folder / WORK / name) for name in self.kept)


def _named_outputs(names: Sequence[str], kept: Mapping[str, Path]) -> dict[str, Path]:
    """The outputs among absolute paths in persisted data; ``kept`` has the stored content by path.

    Raises :class:`InputError` for a path outside that data.
    """
    outputs = {}
    for name in (name for name in names if name.startswith("/")):
        above = next((path for path in kept if Path(name).is_relative_to(path)), None)
        if above is None:
            places = f"of {', '.join(sorted(kept))}" if kept else "of --keep, or of a volume that the task mounts"
            raise InputError(f"--output {name}: expected a path that outlives an attempt, such as a file {places}")
        outputs[name] = kept[above] / Path(name).relative_to(above)
    return outputs


def _file_versions(folder: Path) -> dict[str, str]:
    """The files below a folder, each with a string that changes on each write."""
    versions = {}
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_COPIED]
        for path in (Path(here, name) for name in names):
            stat = path.lstat()
            versions[str(path.relative_to(folder))] = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    return versions


def _checkpoint(order: StartOrder) -> dict[Path, str]:
    folder = order.env["SPOTWRIGHT_CHECKPOINT"]
    return {Path(folder): SAVES} if folder.startswith("/") else {}


def _is_linked(path: Path) -> bool:
    return path.name in _LINKED or any((path / mark).exists() for mark in _ENVIRONMENT_MARKS)


def _copy_folder(source: Path, target: Path, excluded: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for each in source.iterdir():
        if _is_linked(each):
            (target / each.name).symlink_to(each)
        elif each.is_dir() and not each.is_symlink():
            if each.name not in _NOT_COPIED and each != excluded:
                _copy_folder(each, target / each.name, excluded)
        elif each.is_file() or each.is_symlink():
            shutil.copy2(each, target / each.name, follow_symlinks=False)
