"""The Python API: ``run = spot.run(my_pipeline, ...)`` in scripts and notebooks, with the engine of the command line.

The engine runs in a separate process (:mod:`spotwright.runs.engine_process`), so that a notebook keeps its memory, threads and
Ctrl-C, and a run survives its kernel. :class:`Run` reads the journal, so it also works for runs that were started elsewhere.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from spotwright.engine.io_resolution import run_outputs
from spotwright.errors import InputError, StateError
from spotwright.kfp.commands import is_script
from spotwright.kfp.loader import compile_function, load
from spotwright.model.quantities import parse_duration
from spotwright.records.reader import RunReader, list_logs
from spotwright.records.state_folder import RunFolder, StateFolder, nearest_state
from spotwright.runs.bodies import is_alive, require_lasting, require_platform
from spotwright.runs.run_options import ConfigSource, PlanOptions, RunOptions, config_option
from spotwright.runs.subprocess_rpc import answers, ask, stop
from spotwright.views.account import Account, account
from spotwright.views.notebook import Report, TaskTable, run_html
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text
from spotwright.visible_text import visible

__all__ = ["Run", "open_run", "run"]


_ENGINE = "spotwright.runs.engine_process"
_POLL = 0.2  # seconds between two reads of a run that another process drives


class Run:
    """A run of a pipeline. Each property reads the journal, so it shows the present state of the run."""

    def __init__(self, folder: RunFolder, process: subprocess.Popen[str] | None = None) -> None:
        self._folder = folder
        self._process = process
        self._reader: RunReader | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the run, as for ``spotwright show``."""
        return self._folder.name

    @property
    def status(self) -> str:
        """``running``, ``stopped``, ``succeeded``, ``failed`` or ``cancelled``."""
        with self._look() as reader:
            return reader.state.status.value

    @property
    def tasks(self) -> TaskTable:
        """The tasks by path, each with its attempts, as plain data; shown as a table in a notebook."""
        return TaskTable(self._view())

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the pipeline. If it declares none: ``task.output`` of its last tasks."""
        with self._look() as reader:
            return run_outputs(reader.state)

    def logs(self, task: str | None = None, attempt: int | None = None) -> str:
        """The logs of the whole run, of a task, or of one attempt; 0 is the build of the task's Python environment.

        Raises :class:`UnknownRun` for a task or attempt that the run does not have.
        """
        with self._look() as reader:
            logs = list_logs(reader, task, attempt)
        if attempt is not None:
            return logs[0].text()
        return "".join(f"{log.heading}\n{log.text()}" for log in logs)

    def report(self) -> Report:
        """The cost of the run, the waste, and the savings of spot: text when printed, a table in a notebook, ``json()``."""
        return Report(self.account(), self.name)

    def account(self) -> Account:
        """The report as exact values."""
        with self._look() as reader:
            return account(reader.state, reader.now)

    def wait(self) -> Run:
        """Wait until the run has ended. Ctrl-C or a notebook's stop button first stops the run cleanly."""
        if self._process is None:
            while self._is_driven():
                time.sleep(_POLL)
            return self
        try:
            self._process.wait()
        except KeyboardInterrupt:
            stop(self._process)
            raise
        return self

    def cancel(self) -> Run:
        """Cancel the run and wait until all its processes have ended. Raises :class:`InputError` if it has ended."""
        require_platform()
        from spotwright.runs import resume as cancellation

        cancellation.cancel(self._folder)
        return self

    def resume(self, *, as_compiled: bool = False, progress: bool = True) -> Run:
        """Resume after a stop, a crash or a failure, with the present code of the pipeline, and wait for the end.

        ``as_compiled`` does not reread the files of the pipeline and the configuration.
        """
        state = str(self._folder.path.parent.parent)
        request = {"resume": self.name, "as_compiled": as_compiled, "state": state, "progress": progress}
        process = ask(_ENGINE, request)
        _listen(process)
        return Run(self._folder, process).wait()

    @contextmanager
    def _look(self) -> Iterator[RunReader]:
        """The present run, for one thread at a time: the reader folds new events into its state."""
        with self._lock:
            if self._reader is None:
                self._reader = RunReader(self._folder, is_alive)
            else:
                self._reader.refresh()
            yield self._reader

    def _is_driven(self) -> bool:
        with self._look() as reader:
            return reader.is_driven

    def _view(self) -> dict[str, Any]:
        with self._look() as reader:
            return run_view(reader.state, self.name, reader.now)

    def __repr__(self) -> str:
        return show_text(self._view())

    def _repr_html_(self) -> str:
        with self._look() as reader:
            view = run_view(reader.state, self.name, reader.now)
            return run_html(view, account(reader.state, reader.now))


def run(  # noqa: PLR0913 (each is a separate option)
    pipeline: Callable[..., Any] | str | Path,
    arguments: Mapping[str, Any] | None = None,
    *,
    config: ConfigSource | None = None,
    seed: int | None = None,
    interrupt_every: str | float | None = None,
    time_scale: float = 1.0,
    cache: str | bool = "auto",
    containers: str = "auto",
    state: str | Path | None = None,
    name: str | None = None,
    policy: Mapping[str, Any] | None = None,
    wait: bool = True,
    progress: bool = True,
) -> Run:
    """Run a pipeline on this machine and return its :class:`Run`.

    ``pipeline`` is a function with ``@dsl.pipeline``, or the path of a .py or compiled YAML file. ``arguments`` are values of
    the declared types, or ``"@env:VAR"`` and ``"@file:PATH"``, which keep the value out of every record; for an artifact a path
    or address, or a mapping with ``uri`` and ``metadata``. ``interrupt_every`` is a duration (``"20s"``, or seconds).
    ``config`` is the path of a ``spotwright.yaml`` or a mapping in its shape; by default the nearest file, from the pipeline's
    folder up to the root of the repository. ``policy`` applies to every task, in the shape of ``policy.default``. ``cache``
    says whether earlier results are reused: ``True`` or ``"on"``, ``False`` or ``"off"``, or ``"auto"``: unless nodes are
    interrupted. ``containers`` is the runtime of container components: ``"podman"``, ``"docker"``, the first of them that
    answers (``"auto"``), or ``"host"``: processes of this machine. ``state`` is the state folder: by default ``.spotwright`` in
    the current folder, else the nearest one above it. With ``wait=False`` the call returns once the run has begun.

    Raises :class:`InputError` for any fault before the run begins. A failing run does not raise: check :attr:`Run.status`.
    """
    state = nearest_state() if state is None else Path(state)
    if isinstance(pipeline, str | Path) and is_script(Path(pipeline)):
        require_lasting(Path.cwd())
    compiled = load(Path(pipeline), scripts=True) if isinstance(pipeline, str | Path) else compile_function(pipeline)
    planning = PlanOptions(
        arguments=dict(arguments or {}),
        config=config_option(config),
        interrupt_every=_seconds(interrupt_every) if interrupt_every is not None else None,
        policy=dict(policy or {}),
    )
    running = RunOptions(
        seed=seed,
        time_scale=time_scale,
        cache=("on" if cache else "off") if isinstance(cache, bool) else cache,
        containers=containers,
        state=state.absolute(),
        name=name,
    )
    request = {
        "compiled": compiled.to_data(),
        "planning": planning.to_data(),
        "running": running.to_data(),
        "progress": progress and wait,
    }
    process = ask(_ENGINE, request)
    run_name = _listen(process, until_begun=not wait)
    folder = StateFolder.existing(state).find(run_name)
    started = Run(folder, process)
    return started.wait() if wait else started


def open_run(name: str = "last", state: str | Path | None = None) -> Run:
    """An existing run by its name, a unique beginning of it, or ``last``; ``state`` as for :func:`run`.

    Raises :class:`UnknownRun`.
    """
    return Run(StateFolder.existing(nearest_state() if state is None else Path(state)).find(name))


def _seconds(interrupt_every: str | float) -> float:
    try:
        return parse_duration(interrupt_every)
    except ValueError as error:
        raise InputError(f"interrupt_every: {error}") from error


def _listen(process: subprocess.Popen[str], *, until_begun: bool = False) -> str:
    """Print the progress lines of the engine's process until it ends, or until the run has begun. Returns the run's name.

    Raises the error with which the process refused the run.
    """
    name = ""
    try:
        with closing(answers(process)) as messages:
            for message in messages:
                if "run" in message:
                    name = str(message["run"])
                    if until_begun:
                        return name
                else:
                    print(visible(message["line"], block=True))  # noqa: T201 (the user asked to see it)
    except KeyboardInterrupt:
        stop(process)
        raise
    if not name:
        raise StateError(f"the engine's process ended with {process.wait()} before the run began")
    return name
