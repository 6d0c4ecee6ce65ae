"""The Python API: ``run = spot.run(my_pipeline, ...)`` in scripts and notebooks, with the same engine as the command line.

The engine runs in a process of its own (:mod:`spotwright.runs.child`): a notebook keeps its memory, its threads and its
Ctrl-C, and a run goes on where its kernel dies. What :class:`Run` shows is read from the journal, so it is the same for a run
that was started elsewhere.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from spotwright.engine.state import RunState
from spotwright.engine.values import run_outputs
from spotwright.errors import InputError, StateError
from spotwright.model.quantities import parse_duration
from spotwright.pipelines.source import compile_function, load
from spotwright.records.folders import RunFolder
from spotwright.runs import reading
from spotwright.runs.asking import answers, ask
from spotwright.runs.options import DEFAULT_STATE, RunOptions
from spotwright.views.account import account
from spotwright.views.facts import run_view
from spotwright.views.lines import Account
from spotwright.views.notebook import Report, TaskTable, run_html
from spotwright.views.show import show_text

__all__ = ["Run", "open_run", "run"]

_ENGINE = "spotwright.runs.child"


class Run:
    """A run of a pipeline. Every property looks at the journal when it is read, so it shows how far the run is now."""

    def __init__(self, folder: RunFolder, process: subprocess.Popen[str] | None = None) -> None:
        self._folder = folder
        self._process = process

    @property
    def name(self) -> str:
        """The run's name, as ``spotwright show`` knows it."""
        return self._folder.name

    @property
    def status(self) -> str:
        """``running``, ``stopped``, ``succeeded``, ``failed`` or ``cancelled``."""
        return self._state().status.value

    @property
    def tasks(self) -> TaskTable:
        """The tasks by path, each with its attempts, as plain data; shown as a table in a notebook."""
        return TaskTable(self._view())

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the pipeline; where it declares none, ``task.output`` of the tasks that nothing follows."""
        return run_outputs(self._state())

    def logs(self, task: str | None = None, attempt: int | None = None) -> str:
        """What the attempts wrote: of the whole run, of a task, or of one attempt (the newest is not special).

        Raises :class:`UnknownRun` for a task or attempt that is not there.
        """
        found = reading.logs(self._folder, self._state(), task, attempt)
        if attempt is not None:
            return found[0].text()
        return "".join(f"==> {log.task} attempt {log.attempt} <==\n{log.text()}" for log in found)

    def report(self) -> Report:
        """What the run cost, what was wasted and what spot saved: text when printed, a table in a notebook, ``json()``."""
        return Report(self.account(), self.name)

    def account(self) -> Account:
        """The same as exact values."""
        return account(self._state(), reading.now_of(self._folder))

    def wait(self) -> Run:
        """Wait until the run has ended. Interrupted (Ctrl-C, a notebook's stop button), it is stopped cleanly first."""
        if self._process is None:
            while reading.is_driven(self._folder):
                time.sleep(0.2)
            return self
        try:
            self._process.wait()
        except KeyboardInterrupt:
            _stop(self._process)
            raise
        return self

    def cancel(self) -> Run:
        """Cancel the run and wait until nothing of it runs any more. Raises :class:`InputError` where it has ended."""
        reading.cancel(self._folder)
        return self

    def resume(self, *, as_compiled: bool = False, progress: bool = True) -> Run:
        """Go on after a stop, a crash or a failure, with the pipeline's code as it is now. Waits for the end.

        ``as_compiled`` leaves the pipeline's and the configuration's files alone.
        """
        state = str(self._folder.path.parent.parent)
        request = {"resume": self.name, "as_compiled": as_compiled, "state": state, "progress": progress}
        process = ask(_ENGINE, request, apart=True)
        _listen(process)
        return Run(self._folder, process).wait()

    def _state(self) -> RunState:
        return reading.read_state(self._folder)

    def _view(self) -> dict[str, Any]:
        return run_view(self._state(), self.name, reading.now_of(self._folder))

    def __repr__(self) -> str:
        return show_text(self._view())

    def _repr_html_(self) -> str:
        state = self._state()
        now = reading.now_of(self._folder)
        return run_html(run_view(state, self.name, now), account(state, now))


def run(  # noqa: PLR0913 (each is an option of its own)
    pipeline: Callable[..., Any] | str | Path,
    arguments: Mapping[str, Any] | None = None,
    *,
    config: str | Path | None = None,
    seed: int | None = None,
    taken_every: str | float | None = None,
    time_scale: float = 1.0,
    cache: str = "auto",
    containers: str = "auto",
    state: str | Path = DEFAULT_STATE,
    name: str | None = None,
    policy: Mapping[str, Any] | None = None,
    wait: bool = True,
    progress: bool = True,
) -> Run:
    """Run a pipeline on this machine and return its :class:`Run`.

    ``pipeline`` is a function with ``@dsl.pipeline``, or the path of a .py or compiled YAML file. ``arguments`` are values of
    the declared types, or ``"@env:VAR"`` and ``"@file:PATH"``, which keep the value out of every record; of an artifact its path
    or address as a text, or a mapping with ``uri`` and ``metadata``. ``taken_every`` is a duration (``"20s"``, or seconds).
    ``policy`` holds for every task, in the shape of ``policy.default``.
    ``containers`` says what container components run in: ``"podman"``, ``"docker"``, the first of them that answers
    (``"auto"``), or ``"host"``: as processes of this machine. With ``wait=False`` it returns as soon as the run has begun.

    Raises :class:`InputError` for anything wrong before the run begins. A run that fails raises nothing: look at
    :attr:`Run.status`.
    """
    compiled = load(Path(pipeline)) if isinstance(pipeline, str | Path) else compile_function(pipeline)
    options = RunOptions(
        arguments=dict(arguments or {}),
        config=Path(config).absolute() if config is not None else None,
        seed=seed,
        taken_every=_seconds(taken_every) if taken_every is not None else None,
        time_scale=time_scale,
        cache=cache,
        containers=containers,
        state=Path(state).absolute(),
        name=name,
        policy=dict(policy or {}),
    )
    request = {"compiled": compiled.to_data(), "options": options.to_data(), "progress": progress and wait}
    process = ask(_ENGINE, request, apart=True)
    begun = _listen(process, until_begun=not wait)
    folder = reading.find_run(Path(state), begun)
    started = Run(folder, process)
    return started.wait() if wait else started


def open_run(name: str = "last", state: str | Path = DEFAULT_STATE) -> Run:
    """A run that was started before, by name, unique beginning, or ``last``. Raises :class:`UnknownRun`."""
    return Run(reading.find_run(Path(state), name))


def _seconds(taken_every: str | float) -> float:
    try:
        return parse_duration(taken_every)
    except ValueError as error:
        raise InputError(f"taken_every: {error}") from error


def _listen(process: subprocess.Popen[str], *, until_begun: bool = False) -> str:
    """Print the progress that the engine's process tells, until it ends or has begun. Returns the run's name.

    Raises the error that it ended with before the run began.
    """
    name = ""
    try:
        with closing(answers(process)) as told:
            for said in told:
                if "run" in said:
                    name = str(said["run"])
                    if until_begun:
                        return name
                else:
                    print(said["line"])  # noqa: T201 (the user asked to see it)
    except KeyboardInterrupt:
        _stop(process)
        raise
    if not name:
        raise StateError(f"the engine's process ended with {process.wait()} before the run began")
    return name


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait()
