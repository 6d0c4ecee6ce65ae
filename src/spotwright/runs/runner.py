"""Start a run on this machine: prepare it, write its first files, take its lease, open its backend and drive it to its end.

:mod:`spotwright.runs.resume` continues an existing run; it shares :func:`leased` and :func:`opened`. Ctrl-C, SIGTERM and
requests of other processes become facts of the run.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from spotwright.config import Config
from spotwright.engine.events import (
    CancelRequested,
    EngineDetached,
    EngineStarted,
    Event,
    NoteAdded,
    RunCreated,
    RunMeta,
    StopRequested,
)
from spotwright.engine.fold import fold
from spotwright.engine.loop import DECISIONS_VERSION, Observer, drive
from spotwright.engine.ports import Backend, Clock, Requests
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.kfp.compiled import Compiled
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import StoredPlan, can_be_taken, save_forecast, save_plan
from spotwright.runs import bodies
from spotwright.runs.bodies import REQUEST_SIGNAL
from spotwright.runs.planning import (
    PlannedRun,
    check_pins,
    deadline_notes,
    keep_pins,
    keep_sightings,
    known_market,
    plan_run,
)
from spotwright.runs.run_options import PlanOptions, RunOptions, new_name
from spotwright.version import __version__

if TYPE_CHECKING:
    from spotwright.manifests.pod_graph import PodSource
    from spotwright.runs.bodies import HostResources, LocalHooks


__all__ = [
    "EngineSignals",
    "Prepared",
    "begin_records",
    "engine_started",
    "errors_after_start",
    "leased",
    "opened",
    "prepare",
    "start",
    "surviving_requests",
]


_REQUESTS: Mapping[str, Callable[[float], Event]] = {
    "cancel": CancelRequested,
    "detach": lambda at: EngineDetached(at, why="it was asked to hand the run over to another engine"),
}
_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def surviving_requests() -> Iterator[None]:
    """Keep SIGUSR1 from ending this process: requests may come before the engine listens, or after its end."""
    if REQUEST_SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(REQUEST_SIGNAL, _ignore)
    try:
        yield
    finally:
        signal.signal(REQUEST_SIGNAL, before)


class EngineSignals:
    """Signals as facts. A context manager: it restores the earlier handlers at its end.

    Earlier requests count. Outside the main thread Python allows no handlers, so signals do not reach the engine there.
    """

    def __init__(self, selector: selectors.BaseSelector, requests: Requests, clock: Clock) -> None:
        self._requests, self._clock = requests, clock
        self._receive, self._send = socket.socketpair()
        self._receive.setblocking(False)
        self._send.setblocking(False)
        selector.register(self._receive, selectors.EVENT_READ)
        self._before: dict[int, Any] = {}
        self._before_fd = -1
        self.kill: Callable[[], None] = lambda: None  # called at a second stop
        self._stops = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before_fd = signal.set_wakeup_fd(self._send.fileno(), warn_on_full_buffer=False)
            for number in (*_STOPS, *([REQUEST_SIGNAL] if REQUEST_SIGNAL else [])):
                self._before[number] = signal.signal(number, _ignore)
            if REQUEST_SIGNAL:
                self._send.send(bytes([REQUEST_SIGNAL]))  # check at once for earlier requests
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._before_fd)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._receive.close()
        self._send.close()

    def facts(self) -> list[Event]:
        """The stops and requests since the last call."""
        try:
            numbers = self._receive.recv(4096)
        except BlockingIOError:
            return []
        facts: list[Event] = []
        for number in numbers:
            if number in _STOPS:
                facts += self._stop(number)
            elif number == REQUEST_SIGNAL:
                facts += [_REQUESTS[kind](self._clock()) for kind in self._requests.take_requests()]
        return facts

    def _stop(self, number: int) -> list[Event]:
        self._stops += 1
        if self._stops > 1:
            self.kill()
            return []
        why = "stopped by the user" if number == signal.SIGINT else "stopped by SIGTERM"
        return [StopRequested(self._clock(), why=why)]


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: Python has written the number of the signal to the wake-up socket."""


class Prepared(NamedTuple):
    """A planned run that this machine can execute, not yet written. ``notes`` are for the user."""

    planned: PlannedRun
    host: HostResources
    options: RunOptions
    notes: tuple[str, ...]

    @property
    def stored(self) -> StoredPlan:
        """The plan as it will be stored."""
        return self.planned.stored


def prepare(source: Compiled | PodSource, planning: PlanOptions, running: RunOptions) -> Prepared:
    """Plan a run and check that this machine can execute it. Raises :class:`InputError`."""
    planned = plan_run(source, planning)
    pins = check_pins(source.source, source.commits, StateFolder.existing(running.state).components)
    host = bodies.check_machine(
        planned.stored, bodies.read_secrets(planned.stored.plan, planned.arguments), running.containers
    )
    unmet = bodies.unmet_requests(planned.stored.plan, host)
    late = deadline_notes(planned.stored.plan, bodies.local_clock()(), running.time_scale)
    return Prepared(planned, host, running, (*planned.notes, *pins, *unmet, *late))


def start(
    prepared: Prepared,
    observers: Sequence[Observer] = (),
    hooks: LocalHooks | None = None,
    *,
    given: Callable[[RunState], Sequence[Event]] = lambda _: (),
) -> tuple[RunFolder, RunState]:
    """Create the run and drive it to its end. Returns the folder of the run and its last state.

    ``hooks`` are an early fork server and a rehearsal's interruptions; ``given`` returns facts that a
    rehearsal states at the start, such as tasks that count as succeeded.
    """
    options, source = prepared.options, prepared.stored.source
    state_folder = StateFolder.open(options.state)
    folder = state_folder.create(options.name if options.name is not None else new_name(source.pipeline))
    keep_pins(source.commits, state_folder.components)
    clock = bodies.local_clock()
    created = RunCreated(clock(), meta=_meta(folder.name, prepared))
    begin_records(folder, prepared.stored, created, options.forecast)
    with errors_after_start(), leased(folder) as journal:
        state = RunState([prepared.stored.plan])
        fold(state, created)
        for observe in observers:
            observe(state, [created])
        stated = given(state)
        facts: list[Event] = [
            engine_started(clock(), journal.epoch, state.meta, prepared.stored, replayable=not stated)
        ]
        facts += [NoteAdded(clock(), text=text) for text in prepared.notes]
        facts += stated
        market = known_market(state_folder, prepared.stored.plan, folder.name, clock())
        facts += [market] if market is not None else []
        with opened(folder, journal, state, prepared.stored, prepared.host, hooks) as (backend, clock):
            backend.begin(state)
            drive(state, journal, backend, clock, facts=facts, observers=observers, lease=journal)
            keep_sightings(journal, state, clock())
    return folder, state


def engine_started(
    at: float, epoch: int, meta: RunMeta, stored: StoredPlan, *, replayable: bool = True
) -> EngineStarted:
    """The event by which an engine takes a run. ``replayable`` is false if a rehearsal states facts that are not an engine's."""
    return EngineStarted(
        at,
        epoch=epoch,
        pid=os.getpid(),
        version=__version__,
        decisions=DECISIONS_VERSION if replayable else 0,
        caching=_uses_cache(meta.cache, stored.plan.config),
        environments=True,
    )


def _meta(run: str, prepared: Prepared) -> RunMeta:
    planning, options, source = prepared.planned.options, prepared.options, prepared.stored.source
    return RunMeta(
        run=run,
        pipeline=source.pipeline,
        source=source.source,
        config=prepared.stored.config.path,
        arguments=prepared.host.arguments,
        given=prepared.host.secrets.redact(_given(prepared)),
        textual=planning.textual,
        seed=options.seed if options.seed is not None else int.from_bytes(os.urandom(4)) >> 1,
        time_scale=options.time_scale,
        cache=options.cache,
        containers=options.containers,
    )


def _given(prepared: Prepared) -> dict[str, Any]:
    """The user's arguments; artifacts with absolute paths, because a resume may start in another folder."""
    artifacts = prepared.stored.plan.graph.root.artifacts
    bound = prepared.host.arguments
    given = prepared.planned.options.arguments
    return {name: bound[name] if name in artifacts else value for name, value in given.items()}


def begin_records(folder: RunFolder, stored: StoredPlan, created: Event, forecast: str = "") -> None:
    """Write the plan, the run's ``forecast``, and the journal's first event.

    The journal gets its name last, so every run that is listed can be resumed.

    Raises :class:`StateError` if they cannot be written, after removing the run.
    """
    beside = folder.journal.with_name("journal.new")
    try:
        save_plan(folder, 1, stored)
        if forecast:
            save_forecast(folder, forecast)
        with closing(Journal.create(beside)) as journal:
            journal.append([created])
        beside.rename(folder.journal)
    except SpotwrightError:
        import shutil

        shutil.rmtree(folder.path, ignore_errors=True)
        raise


@contextmanager
def errors_after_start() -> Iterator[None]:
    """Mark errors of the block as raised after the run has begun: the command line then exits with 1 instead of 2."""
    try:
        yield
    except SpotwrightError as error:
        error.after_start = True
        raise


@contextmanager
def leased(folder: RunFolder) -> Iterator[Journal]:
    """The journal of a run while this process holds its lease, released at the end, even after an error.

    Raises :class:`RunBusy` while another engine drives the run.
    """
    with closing(Journal.open(folder.journal)) as journal, surviving_requests():
        journal.take(bodies.this_process(), bodies.is_alive)
        try:
            yield journal
        finally:
            journal.give_up()


@contextmanager
def opened(
    folder: RunFolder,
    journal: Journal,
    state: RunState,
    stored: StoredPlan,
    host: HostResources,
    hooks: LocalHooks | None = None,
) -> Iterator[tuple[Backend, Clock]]:
    """The backend of a run whose lease is held, and its clock."""
    clock = bodies.local_clock()
    run = bodies.RunToExecute(folder, journal.epoch, state, stored, host, _uses_cache(state.meta.cache, stored.config))
    with (
        errors_after_start(),
        selectors.DefaultSelector() as selector,
        EngineSignals(selector, journal, clock) as signals,
        bodies.open_backend(run, selector, clock, signals.facts, hooks) as backend,
    ):
        signals.kill = backend.kill
        yield backend, clock


def _uses_cache(mode: str, config: Config) -> bool:
    """Whether earlier results are used. With ``auto`` not if nodes can be reclaimed, to show the effect of interruptions."""
    return mode == "on" or (mode == "auto" and not can_be_taken(config.pools))
