"""A whole rehearsal, from the user's options to a verdict on every step.

It is the single entry for the command line, the Python API and the pytest plugin.
"""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotwright.engine.events import RunStatus
from spotwright.errors import InputError, StateError
from spotwright.kfp.commands import COMMAND_TASK, compiled_command, is_script
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.loader import load
from spotwright.local.supervisor.private_folders import temporary_folder
from spotwright.local.visible_paths import named_paths
from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_bytes
from spotwright.records.state_folder import LARGEST_FILE, STATE_NAME, StateFolder, write_atomically
from spotwright.regular_files import read_regular
from spotwright.rehearsal.output_comparison import load_compare_function
from spotwright.rehearsal.persisted_paths import PersistedPaths, copy_path, size_of
from spotwright.rehearsal.rehearsal_settings import RehearsalSettings
from spotwright.rehearsal.step_rehearsal import ProgressCallback, StepRehearsal
from spotwright.rehearsal.trials import TrialRun, TrialRunner
from spotwright.rehearsal.verdict import StepReport
from spotwright.rehearsal.workspaces import (
    CommandWorkspace,
    PvcFolders,
    TaskWorkspace,
    Workspace,
)
from spotwright.runs.bodies import is_alive, this_process
from spotwright.runs.run_options import PlanOptions, RunOptions, new_name
from spotwright.runs.runner import Prepared, prepare

__all__ = ["Rehearsal", "RehearsalOptions", "rehearse_steps", "run_rehearsal"]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The report on every step. ``state`` is the state folder with the runs of all trials."""

    name: str
    settings: RehearsalSettings
    steps: tuple[StepReport, ...]
    state: Path

    @property
    def is_safe(self) -> bool:
        """Whether every step is safe."""
        return all(step.verdict.is_safe for step in self.steps)


def rehearse_steps(
    prepared: Prepared, workspace: Workspace, settings: RehearsalSettings, task: str | None, report: ProgressCallback
) -> Rehearsal:
    """Rehearse one task of a pipeline, by its path, or all. Raises :class:`InputError` for a task that is not executed."""
    runner = TrialRunner(
        prepared,
        workspace.prepare,
        workspace.collect,
        workspace.readable,
        passes_on_sigterm=workspace.passes_on_sigterm,
        ranks=settings.ranks or 0,
    )
    first = runner.run_undisturbed("undisturbed", task, settings.budget)
    tasks = _tasks(task, first)
    steps = tuple(StepRehearsal(runner, workspace, settings, path, first, report).perform() for path in tasks)
    return Rehearsal(prepared.stored.source.pipeline, settings, steps, runner.state)


def _tasks(task: str | None, first: TrialRun) -> list[str]:
    """The paths of the tasks to rehearse: the named one, or all."""
    if first.status is not RunStatus.SUCCEEDED:
        failed = (path for path, attempts in first.executed.items() if attempts[-1].cause != Cause.SUCCEEDED)
        return [task or next(failed, "")]
    if task is None or task in first.executed:
        return list(first.executed) if task is None else [task]
    raise InputError(f"--task {task}: this run does not execute it; the executed tasks are {', '.join(first.executed)}")


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """The options of a rehearsal, with exactly one of ``pipeline``, ``compiled`` and ``command``. Durations are seconds.

    A ``pipeline`` that is a plain script is a command. ``arguments`` are strings as typed for ``spotwright run``. ``stdout``,
    ``ranks``, and ``keep`` and ``outputs`` paths relative to ``folder`` are for commands only; absolute ``outputs`` are in
    persistent data.
    """

    pipeline: Path | None = None
    command: tuple[str, ...] = ()
    compiled: Compiled | None = None
    folder: Path = field(default_factory=Path.cwd)
    pipeline_name: str | None = None
    task: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    config: Path | Mapping[str, Any] | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    containers: str = "auto"
    outputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    stdout: bool = False
    seed: int | None = None
    interruptions: int = 5
    tolerance: float = 0.0
    compare: str | None = None
    notice: float | None = None
    budget: float | None = None
    ranks: int | None = None
    state: Path = Path(STATE_NAME)


def run_rehearsal(options: RehearsalOptions, report: ProgressCallback) -> Rehearsal:
    """Rehearse. Raises :class:`InputError` and :class:`StateError` for problems found before anything was executed."""
    options = _script_as_command(options)
    _refuse_contradictions(options)
    settings = RehearsalSettings(
        seed=options.seed if options.seed is not None else secrets.randbelow(2**31),
        interruptions=options.interruptions,
        tolerance=options.tolerance,
        compare=load_compare_function(options.compare, options.folder) if options.compare else None,
        notice=options.notice,
        budget=options.budget,
        ranks=options.ranks,
    )
    compiled = _compiled(options)
    state = StateFolder.open(options.state.absolute())
    _remove_abandoned(state)
    folder = state.path / "rehearsals" / new_name(compiled.pipeline)
    write_atomically(StateFolder.open(folder).driver, this_process())
    kept = [path for path in options.keep if path.startswith("/")]
    persisted = PersistedPaths(kept, folder / "kept", options.outputs)
    try:
        with _ended_by_sigterm():
            copy_path(state.path / "volumes", folder / "volumes")  # claims begin with the data of earlier runs
            for note in _sizes(kept):
                report(note)
            persisted.copy()
        prepared, workspace, task = _prepare(options, compiled, folder, persisted)
    except BaseException:
        shutil.rmtree(folder)  # no execution, so the folder holds no evidence
        raise
    report(f"seed {settings.seed}")
    if options.task is not None and task != options.task and not task.endswith(f"/{options.task}"):
        report(f"note: --task {options.task} means {task} here")
    for note in (*_unread_variables(options.command), *_alone_in_temporary_folders(options)):
        report(f"note: {note}")
    for note in prepared.notes:
        report(f"note: {note}")
    try:
        return rehearse_steps(prepared, workspace, settings, task or None, report)
    except StateError:
        shutil.rmtree(folder, ignore_errors=True)  # there is no verdict, and its copies may have filled the disk
        raise


_LARGE = 1 << 30  # bytes


def _sizes(kept: Sequence[str]) -> Iterator[str]:
    """Messages about large paths, before they are copied."""
    for path in kept:
        size = size_of(Path(path))
        if size >= _LARGE:
            yield f"note: --keep {path} holds {format_bytes(size)}: each trial begins with a copy of it"


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the block's files are removed; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove_abandoned(state: StateFolder) -> None:
    """Remove leftovers of rehearsals that were killed before any execution."""
    for folder in state.rehearsals.glob("*"):
        try:
            driver = json.loads(read_regular(StateFolder(folder).driver, LARGEST_FILE))
        except (OSError, ValueError, RecursionError):
            continue
        if not any(folder.glob("runs/*")) and not is_alive(driver):
            shutil.rmtree(folder, ignore_errors=True)


def _script_as_command(options: RehearsalOptions) -> RehearsalOptions:
    """The options with a plain script converted to the command that executes it, as in ``spotwright run``."""
    if options.pipeline is None or options.command or not is_script(options.pipeline):
        return options
    script, folder = options.pipeline.absolute(), options.folder.absolute()
    inside = script.relative_to(folder) if script.is_relative_to(folder) else script
    return replace(options, pipeline=None, command=(sys.executable, str(inside)))


def _refuse_contradictions(options: RehearsalOptions) -> None:
    if bool(options.command) == (options.pipeline is not None or options.compiled is not None):
        raise InputError("expected either a pipeline, or a command after --: spotwright rehearse -- python train.py")
    if options.command:
        wrong = [name for name, value in (("--task", options.task), ("--arg", options.arguments)) if value]
        if wrong:
            raise InputError(f"{wrong[0]}: is for pipelines, and this is a command")
        return
    if options.stdout:
        raise InputError("--stdout: is for commands; a task declares its outputs")
    if options.ranks is not None:
        raise InputError(
            "--ranks: is for commands: spotwright rehearse --ranks 2 -- torchrun --nproc-per-node 2 train.py"
        )
    for option, paths in (("--keep", options.keep), ("--output", options.outputs)):
        if paths and options.task is None:
            raise InputError(f"{option}: name the task that writes to this path with --task")
        relative = [path for path in paths if not path.startswith("/")]
        if relative:
            raise InputError(
                f"{option} {relative[0]}: expected an absolute path; a task declares the outputs in its own folder, which is "
                "empty at the start of every attempt"
            )


def _unread_variables(command: Sequence[str]) -> Iterator[str]:
    """Words of a command that need a shell to insert the checkpoint folder, in a command without a shell."""
    is_script = (
        len(command) > 2
        and Path(command[0]).name in _SHELLS
        and any("c" in word for word in command[1:-1] if word[0] == "-")
    )
    for word in () if is_script else command:
        if "$SPOTWRIGHT_CHECKPOINT" in word or "${SPOTWRIGHT_CHECKPOINT}" in word:
            yield (
                f"the command gets {shlex.quote(word)} as it stands, because no shell reads it: "
                f"sh -c {shlex.quote(shlex.join(command).replace(shlex.quote(word), word))}"
            )
            return


def _alone_in_temporary_folders(options: RehearsalOptions) -> Iterator[str]:
    """Programs and files of the command whose neighbours are hidden from an attempt."""
    kept = [Path(path) for path in options.keep]
    for word in options.command:
        path, folder = Path(word), temporary_folder(word)
        seen = path.is_relative_to(options.folder.absolute()) or any(map(path.is_relative_to, kept))
        if folder and path.is_file() and not seen:
            yield (
                f"{word} is in {folder}, which is empty in each attempt, as in a new container: the command sees this file and "
                "nothing beside it"
            )


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _compiled(options: RehearsalOptions) -> Compiled:
    if options.compiled is not None:
        return options.compiled
    if options.pipeline is not None:
        return load(options.pipeline, pipeline=options.pipeline_name)
    return compiled_command(options.command, options.outputs)


def _prepare(
    options: RehearsalOptions, compiled: Compiled, folder: Path, persisted: PersistedPaths
) -> tuple[Prepared, Workspace, str]:
    """The prepared run, whose arguments name the copies of persisted paths, its workspace, and the task's path; empty: all."""
    if options.command:
        return *_prepare_command(options, folder, persisted), COMMAND_TASK
    planning = PlanOptions(arguments=options.arguments, textual=True, config=options.config, policy=options.policy)
    prepared = prepare(compiled, planning, RunOptions(state=folder, containers=options.containers))
    task = "" if options.task is None else _find_task(prepared, options.task)
    arguments = persisted.replace_in(prepared.host.arguments)
    persisted.require_all_named()
    workspace = TaskWorkspace(persisted, PvcFolders(folder / "claims"), task, options.outputs)
    return prepared._replace(host=replace(prepared.host, arguments=arguments)), workspace, task


def _find_task(prepared: Prepared, name: str) -> str:
    try:
        return prepared.stored.plan.graph.find_task(name)
    except InputError as error:
        raise InputError(f"--task {name} {error}") from error


def _prepare_command(
    options: RehearsalOptions, folder: Path, persisted: PersistedPaths
) -> tuple[Prepared, CommandWorkspace]:
    command = persisted.replace_in(options.command)
    compiled = compiled_command(command, options.outputs)
    planning = PlanOptions(config=options.config, folder=options.folder, policy=options.policy, shared_config=True)
    prepared = prepare(compiled, planning, RunOptions(state=folder))
    workspace = CommandWorkspace(
        folder=options.folder.absolute(),
        state=options.state.absolute(),
        persisted=persisted,
        output_names=options.outputs,
        kept=tuple(path for path in options.keep if not path.startswith("/")),
        stdout=options.stdout,
        readable=named_paths([str(options.folder.absolute()), *command]),
    )
    persisted.require_all_named()
    workspace.check()
    return prepared, workspace
