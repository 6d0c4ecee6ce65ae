"""What a step finds around it when an attempt begins, and what it has left when it is done: a pipeline's task, or a command.

On a cluster an attempt begins in a fresh container. So a command begins each attempt in a fresh copy of the working folder,
and what its last attempt left in it is forgotten, but for the places that are *kept*: those stand for volumes to which the
command writes by itself. A task has its own empty folder anyway. Both have the place of ``SPOTWRIGHT_CHECKPOINT``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spotwright.errors import InputError
from spotwright.local.orders import LOG, OUT, WORK, StartOrder
from spotwright.pipelines.compiled import Compiled
from spotwright.rehearsal.claims import Claims
from spotwright.rehearsal.kept import Kept, remove_anything
from spotwright.rehearsal.points import OUTPUTS, SAVES
from spotwright.rehearsal.trials import Trial

__all__ = ["TASK", "Command", "Ground", "Task", "compiled_command"]

TASK = "command"
"""The name of the only task of a command's pipeline."""

_COPIED = "copied.json"  # in an attempt's folder: what its working folder held at the beginning

_LARGEST, _MOST = 2 << 30, 100_000  # bytes and files of a working folder that is copied for every attempt
_LINKED = frozenset({".git", ".hg", ".venv", "venv", "node_modules"})  # nothing that a command writes to: links will do
_LEFT_OUT = frozenset(
    {".spotwright", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
)


class Ground(Protocol):
    """How attempts of a step are prepared, and where its outputs are."""

    def prepare(self, order: StartOrder) -> Mapping[Path, str]:
        """Make an attempt's folders ready; the folders to be watched, each with the name of its place."""

    def collect(self, run: Path, task: str | None) -> None:
        """A trial of a task has ended, or with none named of all; its run lies there."""

    def outputs(self, trial: Trial, task: str) -> dict[str, Any]:
        """What the task left at the end of a trial: values, and ``Path`` for files and folders."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a pipeline. ``metadata`` of artifacts counts as an output of its own.

    ``task`` is the one that is rehearsed; where all of them are, what they keep is not compared: others write there too.
    """

    kept: Kept
    claims: Claims
    task: str | None

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Nothing is to be made but what outlives an attempt."""
        kept = self.kept.prepare(order) if self._is_it(order.task) else {}
        return {Path(order.directory, OUT): OUTPUTS, **_checkpoint(order), **kept, **self.claims.prepare(order)}

    def _is_it(self, task: str) -> bool:
        return self.task is not None and (task == self.task or task.endswith(f"/{self.task}"))

    def collect(self, run: Path, task: str | None) -> None:
        """What is kept stays beside the run."""
        self.kept.collect(run)
        if task is not None:
            self.claims.collect(run, task)

    def outputs(self, trial: Trial, task: str) -> dict[str, Any]:
        """Parameters by name, artifacts as paths where they are files here, and what is kept."""
        result = trial.results[task]
        found = {**result["parameters"], **self.kept.outputs(trial.run.path)}
        found |= self.claims.outputs(trial.run.path, task) if self._is_it(task) else {}
        for name, artifact in result["artifacts"].items():
            for index, each in enumerate(artifact if isinstance(artifact, list) else [artifact]):
                key = f"{name}[{index}]" if isinstance(artifact, list) else name
                uri = str(each.get("uri", ""))
                found[key] = Path(uri) if uri.startswith("/") else uri
                if each.get("metadata"):
                    found[f"{key} (metadata)"] = each["metadata"]
        return found


@dataclass(frozen=True, slots=True)
class Command:
    """A command in a working folder.

    ``named`` are the outputs that count, all that it leaves if there are none; ``kept`` the places in it that outlive an
    attempt; ``outside`` those elsewhere. ``stdout`` says that what it prints is an output too.
    """

    folder: Path
    state: Path  # the state folder: never copied
    outside: Kept
    named: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    stdout: bool = False

    def check(self) -> None:
        """Raises :class:`InputError` for a folder that is too large to be copied, and for places outside of it."""
        for option, names in (("--output", self.named), ("--keep", self.kept)):
            for name in names:
                inside = Path(os.path.normpath(self.folder / name))
                if inside == self.folder or not inside.is_relative_to(self.folder):
                    raise InputError(f"{option} {name}: expected a path inside the working folder {self.folder}")
        size = files = 0
        for here, folders, inside_it in os.walk(self.folder):
            folders[:] = [
                name for name in folders if name not in _LINKED | _LEFT_OUT and Path(here, name) != self.state
            ]
            files += len(inside_it)
            size += sum(os.lstat(Path(here, name)).st_size for name in inside_it)
            if size > _LARGEST or files > _MOST:
                raise InputError(
                    f"{self.folder}: is copied for every attempt, and holds more than {_LARGEST >> 30} GiB or {_MOST:,} files; "
                    "rehearse the command in a folder of its own"
                )

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """A fresh copy of the working folder, with what is kept as the last attempt left it."""
        work = Path(order.directory, WORK)
        _copy(self.folder, work, self.state)
        before = Path(order.directory).with_name(f"attempt-{order.attempt - 1}") / WORK
        watched = {work / name: OUTPUTS for name in self.named or ("",)}
        watched |= {**_checkpoint(order), **self.outside.prepare(order)}
        for name in self.kept:
            place = work / name
            if before.exists():
                remove_anything(place)
                if os.path.lexists(before / name):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    (before / name).rename(place)
            watched[place] = SAVES
        Path(order.directory, _COPIED).write_text(json.dumps(_seen(work)))
        return watched

    def collect(self, run: Path, task: str | None) -> None:  # noqa: ARG002 (there is but one)
        """What is kept outside stays beside the run."""
        self.outside.collect(run)

    def outputs(self, trial: Trial, task: str) -> dict[str, Any]:
        """The files and folders that count, by their names."""
        folder = trial.of(task).folder
        work = folder / WORK
        copied = json.loads((folder / _COPIED).read_text())
        changed = sorted(name for name, seen in _seen(work).items() if copied.get(name) != seen)
        names = self.named or tuple(name for name in changed if not name.startswith(self.kept))
        found: dict[str, Any] = {name: work / name for name in (*names, *self.kept)}
        found |= self.outside.outputs(trial.run.path)
        if self.stdout:
            found["standard output"] = folder / LOG
        return found


def _seen(folder: Path) -> dict[str, str]:
    """The files below a folder with what tells whether somebody wrote to them."""
    found = {}
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for path in (Path(here, name) for name in names):
            stat = path.lstat()
            found[str(path.relative_to(folder))] = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    return found


def compiled_command(command: Sequence[str], named: Sequence[str]) -> Compiled:
    """A command as a pipeline of one task, so that it runs through the engine like any other."""
    source = _SOURCE.format(command=json.dumps(json.dumps(list(command))), named=json.dumps(json.dumps(list(named))))
    container = {
        "image": "python",
        "command": ["sh", "-ec", _PROGRAM, source],
        "args": ["--executor_input", "{{$}}", "--function_to_execute", "command"],
    }
    task = {"componentRef": {"name": "comp-command"}, "taskInfo": {"name": TASK}, "cachingOptions": {}}
    ir = {
        "pipelineInfo": {"name": _name_of(command)},
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.17.0",
        "components": {"comp-command": {"executorLabel": "exec-command"}},
        "deploymentSpec": {"executors": {"exec-command": {"container": container}}},
        "root": {"dag": {"tasks": {TASK: task}}},
    }
    return Compiled(ir=ir, pipeline=_name_of(command))


_PROGRAM = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path "$program_path/ephemeral_component.py" "$@"\n'
)
_SOURCE = """
def command():
    import json
    import os
    import signal
    import subprocess
    import sys

    signal.signal(signal.SIGTERM, lambda *_: None)  # it is for the command, which is in the same process group
    environment = {{name: value for name, value in os.environ.items() if name != "_KFP_RUNTIME"}}
    try:
        code = subprocess.Popen(json.loads({command}), env=environment).wait()
    except OSError as error:
        print(f"{{error.filename}}: {{error.strerror}}")
        sys.stdout.flush()
        os._exit(127)
    missing = [name for name in json.loads({named}) if not os.path.lexists(name)]
    if missing and not code:
        print(f"the command ended with 0 and left no {{', '.join(missing)}}")
        code = 1  # then that line is why it has failed
    sys.stdout.flush()
    if code:
        os._exit(code if code > 0 else 128 - code)
"""


def _name_of(command: Sequence[str]) -> str:
    words = [Path(word).name for word in command if not word.startswith("-")]
    return words[1] if len(words) > 1 and words[0].startswith("python") else words[0] if words else TASK


def _checkpoint(order: StartOrder) -> dict[Path, str]:
    place = order.env["SPOTWRIGHT_CHECKPOINT"]
    return {Path(place): SAVES} if place.startswith("/") else {}


def _copy(source: Path, target: Path, left_out: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for each in source.iterdir():
        if each.name in _LINKED:
            (target / each.name).symlink_to(each)
        elif each.is_dir() and not each.is_symlink():
            if each.name not in _LEFT_OUT and each != left_out:
                _copy(each, target / each.name, left_out)
        elif each.is_file() or each.is_symlink():
            shutil.copy2(each, target / each.name, follow_symlinks=False)
