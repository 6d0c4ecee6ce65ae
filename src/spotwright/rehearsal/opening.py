"""From what the user says to a rehearsal: the one door for the command line, the Python API and the pytest plugin."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.source import load
from spotwright.records.folders import StateFolder
from spotwright.rehearsal.claims import Claims
from spotwright.rehearsal.comparing import load_comparison
from spotwright.rehearsal.grounds import TASK, Command, Ground, Task, compiled_command
from spotwright.rehearsal.kept import Kept, copy_anything
from spotwright.rehearsal.playing import Conditions, Rehearsal, Say, rehearse
from spotwright.runs.early import new_name
from spotwright.runs.engine import Prepared, prepare
from spotwright.runs.options import DEFAULT_STATE, RunOptions

__all__ = ["Options", "perform"]


@dataclass(frozen=True, slots=True)
class Options:
    """What may be said about a rehearsal; one of ``pipeline``, ``compiled`` and ``command``. Durations in seconds.

    ``arguments`` are texts as typed, as for ``spotwright run``. ``outputs``, ``stdout`` and paths of ``keep`` relative to
    ``folder`` are for commands.
    """

    pipeline: Path | None = None
    command: tuple[str, ...] = ()
    compiled: Compiled | None = None
    folder: Path = field(default_factory=Path.cwd)
    pipeline_name: str | None = None
    task: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    config: Path | None = None
    containers: str = "auto"
    outputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    stdout: bool = False
    seed: int | None = None
    interruptions: int = 5
    tolerance: float = 0.0
    compare: str | None = None
    notice: float | None = None
    state: Path = Path(DEFAULT_STATE)


def perform(options: Options, say: Say) -> Rehearsal:
    """Rehearse. Raises :class:`InputError` and :class:`StateError` for what is wrong before anything was executed."""
    _refuse_contradictions(options)
    conditions = Conditions(
        seed=options.seed if options.seed is not None else secrets.randbelow(2**31),
        interruptions=options.interruptions,
        tolerance=options.tolerance,
        compare=load_comparison(options.compare, options.folder) if options.compare else None,
        notice=options.notice,
    )
    compiled = _compiled(options)
    state = StateFolder.open(options.state.absolute())
    folder = state.path / "rehearsals" / new_name(compiled.pipeline)
    StateFolder.open(folder)
    copy_anything(state.path / "volumes", folder / "volumes")  # claims begin with what earlier runs left in them
    kept = Kept([place for place in options.keep if place.startswith("/")], folder / "kept")
    try:
        prepared, ground = _ground(options, compiled, folder, kept)
    except InputError:
        shutil.rmtree(folder)  # nothing was executed: nothing is to be seen there
        raise
    say(f"seed {conditions.seed}")
    for note in prepared.notes:
        say(f"note: {note}")
    return rehearse(prepared, ground, conditions, TASK if options.command else options.task, say)


def _refuse_contradictions(options: Options) -> None:
    if bool(options.command) == (options.pipeline is not None or options.compiled is not None):
        raise InputError("expected either a pipeline, or a command after --: spotwright rehearse -- python train.py")
    if options.command:
        wrong = [name for name, said in (("--task", options.task), ("--arg", options.arguments)) if said]
        if wrong:
            raise InputError(f"{wrong[0]}: is for pipelines, and this is a command")
        return
    if options.outputs or options.stdout:
        raise InputError(
            f"{'--output' if options.outputs else '--stdout'}: is for commands; a task declares its outputs"
        )
    if options.keep and options.task is None:
        raise InputError("--keep: name the task that keeps something there with --task")
    relative = [place for place in options.keep if not place.startswith("/")]
    if relative:
        raise InputError(
            f"--keep {relative[0]}: expected an absolute path; a task's own folder is empty at every attempt"
        )


def _compiled(options: Options) -> Compiled:
    if options.compiled is not None:
        return options.compiled
    if options.pipeline is not None:
        return load(options.pipeline, pipeline=options.pipeline_name)
    return compiled_command(options.command, options.outputs)


def _ground(options: Options, compiled: Compiled, folder: Path, kept: Kept) -> tuple[Prepared, Ground]:
    """The step with its arguments as they are in the rehearsal, and what it stands on."""
    if options.command:
        compiled = compiled_command(kept.rewritten(options.command), options.outputs)
        config = options.config or _beside(options.folder)
        prepared = prepare(compiled, RunOptions(state=folder, config=config))
        inside = tuple(place for place in options.keep if not place.startswith("/"))
        ground = Command(
            options.folder.absolute(), options.state.absolute(), kept, options.outputs, inside, options.stdout
        )
        kept.check()
        ground.check()
        return prepared, ground
    prepared = prepare(
        compiled,
        RunOptions(
            arguments=options.arguments,
            textual=True,
            state=folder,
            config=options.config,
            containers=options.containers,
        ),
    )
    arguments = kept.rewritten(prepared.arguments)
    kept.check()
    return replace(prepared, arguments=arguments), Task(kept, Claims(folder / "claims"), options.task)


def _beside(folder: Path) -> Path | None:
    found = folder / "spotwright.yaml"
    return found if found.exists() else None
