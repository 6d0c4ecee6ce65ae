"""Inject the interruptions of one trial through the port by which simulated pools reclaim nodes.

The backend (:mod:`spotwright.local.backend`) reports each attempt's progress to the injector and asks which nodes to reclaim.
An attempt whose injection waits for a file operation is traced; the tracer holds it until the backend has reclaimed the node or
delivered the notice.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import selectors
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from spotwright.engine.events import CancelRequested, Event
from spotwright.engine.ports import Clock
from spotwright.errors import StateError
from spotwright.local.backend import NodeRemoval
from spotwright.local.protocol import WORK, PrivateFolderSettings, StartOrder
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.generator_states import recording_environment
from spotwright.rehearsal.injection_points import (
    SAVES,
    AtOperation,
    AtTime,
    AtWork,
    Injection,
    InjectionKind,
    is_save,
)
from spotwright.rehearsal.loaded_saves import LoadWatcher
from spotwright.rehearsal.own_work import LONGEST_GAP, MeasuredBy, OwnWork
from spotwright.rehearsal.ranks import TakenRanks, notice_pattern, write_notices
from spotwright.rehearsal.syscall_tracer import SyscallTracer
from spotwright.rehearsal.trial_timing import TrialTiming
from spotwright.rehearsal.work_phase import ReadSampler, SeenBy, WorkPhase
from spotwright.supply.node_fit import AttemptKey

__all__ = ["NOT_PROCESS_1", "FaultInjector", "InjectionResult"]


_LAST_LOOK = 0.2
"""Seconds before the end of a notice at which the attempt's blocked signals are read."""

_LAUNCHER_GRACE = 35.0
"""Extra seconds for an attempt that lost a rank: torchrun gives the other ranks 30 s to end after SIGTERM, then kills them.
Source: ``torch/distributed/elastic/multiprocessing/api.py``, ``PContext.close``."""

_ORPHANS_SHARE, _LONGEST_ORPHANS = 0.25, 5.0
"""How long ranks without a launcher are observed: a share of the work, and at most these seconds."""


@dataclass(slots=True)
class InjectionResult:
    """A completed injection: its attempt, the age of the attempt in seconds, and the file operation.

    ``at_work``: the attempt had made its first step. ``orphans`` are, by rank, the commands of the ranks that outlived their
    launcher; ``orphans_saved`` is how often they wrote to saves without it.
    """

    attempt: int
    injection: Injection
    age: float
    operation: FileOperation | None = None
    in_save: bool = False  # the node was reclaimed inside the save after its notice
    at_work: bool = True
    orphans: Mapping[int, str] = field(default_factory=dict)
    orphans_saved: int = 0


@dataclass(slots=True)
class _CurrentAttempt:
    """The running attempt.

    The tracer's thread writes ``started_at``, ``triggered``, ``operation_counts`` and ``saves_at``, the backend's thread the
    rest.
    """

    key: AttemptKey
    injection: Injection | None
    folders: Mapping[Path, str]
    directory: str
    own_folders: tuple[str, ...] = ()  # of the run
    own_addresses: tuple[str, ...] = ()  # of the servers that the run itself offers
    started_at: float | None = None
    first_progress: float | None = None
    progress: float | None = None
    progress_at: list[float] = field(
        default_factory=list
    )  # of the first report and the last that differed, since the start
    saves_at: list[float] = field(default_factory=list)  # of the operations on saves, by the backend's clock
    taken: TakenRanks | None = None
    ranks_go_at: float | None = None  # the end of the notice of some ranks, or of the observation of orphans
    sampler: ReadSampler | None = None
    tracer: SyscallTracer | None = None
    loads: LoadWatcher | None = None
    operation_counts: Counter[tuple[str, FileCall | None]] = field(default_factory=Counter)  # by area, and by its calls
    triggered: list[tuple[FileOperation, bool]] = field(default_factory=list)  # bool: inside the save after a notice
    has_notice: bool = False
    check_signals_at: float | None = None  # shortly before the end of the notice
    is_taken: bool = False
    is_held: bool = False
    hides_loads: bool = False
    run_delay: float = 0.0  # seconds in which it waited for a processor, as last measured
    own_seconds: float | None = None  # its age at its end, without these waits
    own_begin: float | None = None  # its age without these waits when its work began; None: not yet, or not measured
    look_at: float = 0.0  # when to check again whether its work has begun
    life_ends_at: float | None = None  # at the earliest


_MOST_SLOWNESS = 10.0


def _slowness(attempt: _CurrentAttempt, age: float) -> float:
    """The factor by which waits for a processor have lengthened an attempt so far.

    A notice is stretched by it, so that other load on the machine does not change what an attempt can save within its notice.
    """
    if attempt.tracer is None or age <= 0:
        return 1.0
    at_work = max(age - attempt.tracer.run_delay, age / _MOST_SLOWNESS)
    return max(1.0, age / at_work)


class FaultInjector:
    """Injects the interruptions of one trial.

    ``injections`` are for attempts 1, 2, ... in order. ``prepare`` readies an attempt's folders and returns the ones to watch,
    with their areas; ``readable`` are further paths that attempts see below their private folders. ``trace``: record the file
    operations of every attempt. Without ``timing`` there are no injections. ``passes_on_sigterm``: an attempt's main process is
    Spotwright's, and only passes SIGTERM on. ``ranks``: how many ranks the step has, each with a notice file; 0: not a
    distributed training. ``has_variables``: attempts have the variables that code reads, ``SPOTWRIGHT_CHECKPOINT`` first.
    """

    def __init__(  # noqa: PLR0913 (each is a separate fact)
        self,
        selector: selectors.BaseSelector,
        clock: Clock,
        *,
        injections: Sequence[Injection],
        timing: TrialTiming | None,
        prepare: Callable[[StartOrder], Mapping[Path, str]],
        readable: Sequence[str] = (),
        passes_on_sigterm: bool = False,
        is_traced: Callable[[str], bool] = lambda _: False,
        ranks: int = 0,
        has_variables: bool = True,
    ) -> None:
        self._ranks, self._has_variables = ranks, has_variables
        self._readable = tuple(readable)
        self._passes_on_sigterm = passes_on_sigterm
        self._clock, self._injections, self._timing, self._prepare = clock, injections, timing, prepare
        self._is_traced = is_traced
        self._attempts: dict[AttemptKey, _CurrentAttempt] = {}
        self._selector = selector
        self._cut_at = clock() + timing.left if timing is not None and timing.left < math.inf else None
        self._wake_receiver, self._wake_sender = socket.socketpair()
        for end in (self._wake_receiver, self._wake_sender):
            end.setblocking(False)
        selector.register(self._wake_receiver, selectors.EVENT_READ, self._clear_wake_up)
        self.results: list[InjectionResult] = []
        self.traces: dict[str, list[AttemptTrace]] = {}  # of the attempts that have ended, by task
        self.timed_out = False
        self.is_cut = False  # the budget ended
        self.missing_ranks = ""  # why the nodes of some ranks could not be reclaimed

    def close(self) -> None:
        """Close the sockets that wake the backend's selector. Call it after the run."""
        self._wake_receiver.close()
        self._wake_sender.close()

    # -- reports from the backend

    def starting(self, key: AttemptKey, order: StartOrder) -> StartOrder:
        """Prepare the attempt's folders; make a traced attempt hold for the tracer."""
        injection = self._injections[key.number - 1] if key.number <= len(self._injections) else None
        try:
            own_folders = order.private.own if order.private is not None else (order.directory,)
            addresses = _addresses_in(order.env)
            attempt = _CurrentAttempt(key, injection, self._prepare(order), order.directory, own_folders, addresses)
        except OSError as error:
            raise StateError(f"{order.directory}: the attempt's files cannot be copied there: {error}") from error
        self._attempts[key] = attempt
        if key.number > 1 and self._is_traced(key.task):
            self._watch_loads(attempt)
        env = {**order.env, **(self._timing.environment if self._timing is not None else {})}
        if self._ranks:
            env |= {"SPOTWRIGHT_NOTICE_FILE": notice_pattern(order.directory), "SPOTWRIGHT_NOTICE_URL": ""}
        env |= recording_environment(Path(order.directory), env, is_command=self._passes_on_sigterm)
        if self._passes_on_sigterm and not self._ranks:  # ranks outlive a killed launcher only outside a container
            env["SPOTWRIGHT_NO_PID_NAMESPACE"] = str(Path(order.directory, NOT_PROCESS_1))
        if not self._has_variables:
            env = {name: value for name, value in env.items() if name in _OF_THE_ATTEMPT or not name.startswith(_OURS)}
            shutil.rmtree(Path(order.directory, WORK, _DEFAULT_FOLDER), ignore_errors=True)  # from an earlier run here
        traced, host = self._is_traced(key.task), _host_of(order)
        return replace(order, hold=traced, env=env, private=self._private(order.private), host=host)

    def _watch_loads(self, attempt: _CurrentAttempt) -> None:
        try:
            attempt.loads = LoadWatcher(path for path, area in attempt.folders.items() if area == SAVES)
        except OSError:  # too many inotify instances: this attempt's loads are unknown
            attempt.hides_loads = True
            return
        self._selector.register(attempt.loads.descriptor, selectors.EVENT_READ, attempt.loads.read)

    def _private(self, settings: PrivateFolderSettings | None) -> PrivateFolderSettings | None:
        """Let only the run's own files outlive an attempt; user-named paths and everything else stay readable."""
        if settings is None:
            return None
        readable = (*settings.named, *settings.readable, *self._readable)
        return PrivateFolderSettings(own=settings.own, readable=readable, everything=True)

    def started(self, key: AttemptKey, shim: int) -> None:
        """Note the start time. A traced attempt starts when its code begins: its shim may need a while to prepare it."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if not self._is_traced(key.task):
            attempt.started_at = self._clock()
            return
        attempt.tracer = SyscallTracer(
            shim,
            attempt.folders,
            lambda operation: self._must_hold(attempt, operation),
            attempt.own_folders,
            lambda: self._code_begins(attempt),
            passes_on_sigterm=self._passes_on_sigterm,
        )
        attempt.tracer.start()
        tracer = attempt.tracer
        attempt.sampler = ReadSampler(  # of each attempt, because waits sampled more often are longer
            lambda: tracer.process,
            lambda: tracer.run_delay,
            lambda: tracer.cpu_seconds,
            looks_for_ranks=self._ranks > 0 and attempt.injection is None and key.number == 1,
        )
        attempt.sampler.start()

    def reported(self, key: AttemptKey, progress: float) -> None:
        """Note the attempt's progress, which triggers injections at a share of the work."""
        attempt = self._attempts.get(key)
        if attempt is not None:
            if attempt.started_at is not None and progress != attempt.progress:
                attempt.progress_at[1:] = [self._clock() - attempt.started_at]
            attempt.progress = progress
            if attempt.first_progress is None:
                attempt.first_progress = progress

    def ended(self, key: AttemptKey) -> None:
        """Collect the traced operations of an attempt whose processes have all ended."""
        attempt = self._attempts.pop(key, None)
        if attempt is not None and attempt.tracer is not None:
            attempt.tracer.finish()
            trace = attempt.tracer.trace()
            foreign = tuple(each for each in trace.connections if each not in attempt.own_addresses)
            loads: tuple[str, ...] | None = None if attempt.hides_loads else ()
            if attempt.loads is not None:
                self._selector.unregister(attempt.loads.descriptor)
                loads = attempt.loads.close()
            reads = attempt.sampler.finish() if attempt.sampler is not None else ()
            ranks = tuple(sorted(attempt.sampler.ranks)) if attempt.sampler is not None else ()
            used = tuple(attempt.sampler.used) if attempt.sampler is not None else ()
            waited = max(attempt.run_delay, used[-1][1] if used else 0.0)
            self._measure_end(attempt)
            seen = replace(trace, connections=foreign, loads=loads, reads=reads, ranks=ranks, waited=waited)
            seen = replace(seen, own_seconds=attempt.own_seconds, own_begin=attempt.own_begin, used=used)
            self.traces.setdefault(key.task, []).append(replace(seen, progress_at=tuple(attempt.progress_at)))

    # -- questions from the backend

    def next_moment(self) -> float | None:
        """The time of the next injection, of an attempt's limit, or of the end of the budget."""
        moments = [moment for attempt in self._interruptible() for moment in self._moments(attempt)]
        if self._cut_at is not None and not self.timed_out:
            moments.append(self._cut_at)
        return min(moments, default=None)

    def _interruptible(self) -> Iterator[_CurrentAttempt]:
        """The running attempts whose nodes are not reclaimed yet; none in an undisturbed execution."""
        if self._timing is not None:
            yield from (each for each in self._attempts.values() if each.started_at is not None and not each.is_taken)

    def _looks_for_begin(self, attempt: _CurrentAttempt) -> bool:
        own = self._timing.own if self._timing is not None else None
        return own is not None and own.measured_by is MeasuredBy.TIME and attempt.own_begin is None

    def _look_for_begin(self, attempt: _CurrentAttempt, now: float) -> None:
        """Note when the work of an attempt measured by time begins: once it has computed as long as the imports.

        Or after several times their duration: imports may compute less if earlier ones left a cache.
        """
        tracer, own = attempt.tracer, self._timing.own if self._timing is not None else None
        if own is None or tracer is None or attempt.started_at is None or now < attempt.look_at:
            return
        attempt.look_at = now + _NEXT_LOOK
        attempt.run_delay = max(attempt.run_delay, tracer.run_delay)
        age = max(0.0, now - attempt.started_at - attempt.run_delay)
        if tracer.cpu_seconds >= _NEARLY * own.start_computes or age >= _LATEST_BEGIN * own.start:
            attempt.own_begin = age

    def _moments(self, attempt: _CurrentAttempt) -> Iterator[float]:
        if self._looks_for_begin(attempt):
            yield attempt.look_at
        if self._timing is not None and attempt.started_at is not None:
            yield attempt.started_at + self._limit(attempt, self._timing)
        injection_time = self._injection_time(attempt)
        if injection_time is not None and not attempt.has_notice:
            yield injection_time
        if attempt.check_signals_at is not None:
            yield attempt.check_signals_at
        if attempt.ranks_go_at is not None:
            yield attempt.ranks_go_at

    def _limit(self, attempt: _CurrentAttempt, timing: TrialTiming) -> float:
        """The age at which an attempt is given up."""
        more = _LAUNCHER_GRACE if attempt.taken is not None else 0.0
        return min(timing.limit + attempt.run_delay, timing.last_limit) + more

    def requests(self, now: float) -> list[Event]:
        """Cancel the run once an attempt exceeds its limit, or the budget has ended."""
        if self.timed_out:
            return []
        self.is_cut = self._cut_at is not None and now >= self._cut_at
        if not self.is_cut and not any(self._exceeds_limit(attempt, now) for attempt in self._interruptible()):
            return []
        self.timed_out = True
        return [CancelRequested(now)]

    def _exceeds_limit(self, attempt: _CurrentAttempt, now: float) -> bool:
        timing = self._timing
        if timing is None or attempt.started_at is None or attempt.tracer is None:
            return False
        age = now - attempt.started_at
        if age >= timing.limit + attempt.run_delay:
            attempt.run_delay = max(attempt.run_delay, attempt.tracer.run_delay)
        return age >= self._limit(attempt, timing)

    def due(self, now: float) -> list[NodeRemoval]:
        """The nodes of attempts whose injection is triggered; all nodes after an exceeded limit."""
        return [
            removal for attempt in list(self._interruptible()) if (removal := self._removal(attempt, now)) is not None
        ]

    def _removal(self, attempt: _CurrentAttempt, now: float) -> NodeRemoval | None:
        if self.timed_out:
            attempt.is_taken = True
            return NodeRemoval(attempt.key, 0.0, "the rehearsal gives it up")
        if self._looks_for_begin(attempt):
            self._look_for_begin(attempt, now)
        if attempt.triggered:
            return self._inject(attempt, now, *attempt.triggered.pop(0))
        if attempt.check_signals_at is not None and now >= attempt.check_signals_at and attempt.tracer is not None:
            attempt.check_signals_at = None
            attempt.tracer.note_blocked_sigterm()
        if attempt.ranks_go_at is not None and now >= attempt.ranks_go_at:
            self._ranks_go(attempt)
        if self._is_due(attempt, now):
            return self._inject(attempt, now, None, False)
        return None

    def _is_due(self, attempt: _CurrentAttempt, now: float) -> bool:
        """Whether an injection at a share of the work is due, after measuring the wait for a processor again."""
        moment = self._injection_time(attempt)
        if moment is None or now < moment or attempt.has_notice:
            return False
        self._measure(attempt, now)
        moment = self._injection_time(attempt)
        return moment is not None and now >= moment

    def _measure(self, attempt: _CurrentAttempt, now: float) -> None:
        """Measure an attempt's wait for a processor, and the end of its life if processor time measures it."""
        tracer, timing = attempt.tracer, self._timing
        if tracer is None or timing is None:
            return
        attempt.run_delay = max(attempt.run_delay, tracer.run_delay)
        trigger = attempt.injection.trigger if attempt.injection is not None else None
        own = timing.own
        if isinstance(trigger, AtWork) and own is not None and own.measured_by is MeasuredBy.PROCESSOR:
            lacks = own.target(_share(trigger, timing)) - tracer.cpu_seconds
            attempt.life_ends_at = now + max(_SHORTEST_LOOK, lacks / _PROCESSORS) if lacks > 0 else now

    def _measure_end(self, attempt: _CurrentAttempt) -> None:
        """Note the age of an attempt without its waits, when its code ends or its node is reclaimed."""
        tracer = attempt.tracer
        if tracer is None or attempt.started_at is None or attempt.own_seconds is not None:
            return
        age = self._clock() - attempt.started_at
        attempt.run_delay = max(attempt.run_delay, tracer.run_delay)
        attempt.own_seconds = max(0.0, age - attempt.run_delay)

    def performed(self) -> None:
        """Release held attempts: those with a notice continue, those being killed stay stopped."""
        for attempt in self._attempts.values():
            if attempt.is_held and attempt.tracer is not None:
                attempt.is_held = False
                attempt.tracer.release(resume=not attempt.is_taken)

    # -- injections

    def _injection_time(self, attempt: _CurrentAttempt) -> float | None:
        """When an injection at a share of the work is due; None until enough progress is reported, or for other triggers."""
        if attempt.injection is None or attempt.started_at is None or self._timing is None:
            return None
        trigger, timing = attempt.injection.trigger, self._timing
        if isinstance(trigger, AtTime):
            return attempt.started_at + trigger.share * timing.undisturbed
        if not isinstance(trigger, AtWork):
            return None
        share = _share(trigger, timing)
        if timing.own is None:
            return attempt.started_at + timing.work.moment(share)
        return _done_at(
            attempt, attempt.started_at, timing.own, share, is_life=attempt.injection.kind is InjectionKind.LIVES
        )

    def _inject(
        self, attempt: _CurrentAttempt, now: float, operation: FileOperation | None, in_save: bool
    ) -> NodeRemoval | None:
        injection, timing, started_at = attempt.injection, self._timing, attempt.started_at
        if injection is None or timing is None or started_at is None:
            raise ValueError("an attempt without an injection is not interrupted")
        attempt.is_held = operation is not None
        if injection.kind is InjectionKind.RANK and not self._find_ranks(attempt, injection):
            return None
        if in_save:
            self.results[-1].in_save, self.results[-1].operation = True, operation
            attempt.is_taken = True
            return NodeRemoval(attempt.key, 0.0, "inside the save after its notice")
        is_measured = isinstance(injection.trigger, AtWork) and timing.own is not None
        at_work = is_measured or operation is not None or _is_at_work(attempt, timing.work, now - started_at)
        self.results.append(
            InjectionResult(attempt.key.number, injection, now - started_at, operation, at_work=at_work)
        )
        notice = timing.notice * _slowness(attempt, now - started_at) if injection.notice else 0.0
        if notice > 0 and self._ranks:
            ranks = injection.ranks or range(self._ranks)
            write_notices(attempt.directory, ranks, now, now + notice, f"rehearsed: {injection.kind}")
        if attempt.taken is not None:
            return self._take_ranks(attempt, attempt.taken, now, notice)
        attempt.has_notice, attempt.is_taken = True, notice <= 0
        if attempt.is_taken:
            self._measure_end(attempt)
        if notice > 0 and attempt.tracer is not None:
            attempt.check_signals_at = now + notice - min(_LAST_LOOK, notice / 4)
        return NodeRemoval(attempt.key, notice, f"rehearsed: {injection.kind}")

    def _find_ranks(self, attempt: _CurrentAttempt, injection: Injection) -> bool:
        """Find the processes of the ranks whose nodes are reclaimed; if one is missing, the attempt is not interrupted."""
        main = attempt.tracer.process if attempt.tracer is not None else 0
        taken = TakenRanks(main, injection.ranks, of_launcher=injection.of_launcher)
        attempt.has_notice, self.missing_ranks = True, taken.missing
        attempt.taken = taken if not taken.missing else None
        return attempt.taken is not None

    def _take_ranks(self, attempt: _CurrentAttempt, taken: TakenRanks, now: float, notice: float) -> NodeRemoval:
        """Send SIGTERM to the ranks at their notice, or kill them. The launcher decides how the attempt continues."""
        injection = self.results[-1].injection
        if notice > 0:
            taken.terminate()
            attempt.ranks_go_at = now + notice
        else:
            taken.kill()
        if injection.of_launcher and self._timing is not None:
            self.results[-1].orphans_saved = -len(attempt.saves_at)
            attempt.ranks_go_at = now + min(_LONGEST_ORPHANS, _ORPHANS_SHARE * self._timing.work.seconds)
        return NodeRemoval(attempt.key, notice, f"rehearsed: {injection.kind}", of_part=True)

    def _ranks_go(self, attempt: _CurrentAttempt) -> None:
        """End the notice of some ranks, or the observation of ranks without a launcher."""
        attempt.ranks_go_at = None
        if attempt.taken is None:
            return
        result = self.results[-1]
        if result.injection.of_launcher:
            result.orphans = attempt.taken.end_orphans()
            result.orphans_saved += len(attempt.saves_at)
        else:
            attempt.taken.kill()

    # -- the tracer's thread

    def _code_begins(self, attempt: _CurrentAttempt) -> None:
        attempt.started_at = self._clock()
        self._wake_world()

    def _must_hold(self, attempt: _CurrentAttempt, operation: FileOperation) -> bool:
        """Whether this operation triggers the attempt's injection; if so, hold the attempt and wake the backend."""
        injection = attempt.injection
        if operation.call is FileCall.EXIT:
            self._measure_end(attempt)
        counts, keys = attempt.operation_counts, ((operation.area, None), (operation.area, operation.call))
        reached = [AtOperation(area, counts[area, call], call) for area, call in keys]
        counts.update(keys)
        if is_save(operation):
            attempt.saves_at.append(self._clock())
        if injection is None:
            return False
        if operation.area == SAVES and isinstance(injection.trigger, AtWork) and not attempt.has_notice:
            self._wake_world()  # the moment of the injection may count from this save
        is_trigger = injection.trigger in reached or self._completes_life(attempt, injection, operation)
        writes_save = operation.area == SAVES and operation.call in (FileCall.OPEN, FileCall.WRITE)
        is_save_after_notice = attempt.has_notice and injection.in_save and writes_save
        if not is_trigger and not is_save_after_notice:
            return False
        attempt.triggered.append((operation, not is_trigger))
        self._wake_world()
        return True

    def _completes_life(self, attempt: _CurrentAttempt, injection: Injection, operation: FileOperation) -> bool:
        """Whether an operation on saves ends the life of an attempt whose work is measured by them."""
        own = self._timing.own if self._timing is not None else None
        trigger, is_life = injection.trigger, injection.kind is InjectionKind.LIVES
        if own is None or not own.saves or not is_life or not isinstance(trigger, AtWork) or attempt.has_notice:
            return False
        return is_save(operation) and len(attempt.saves_at) == own.last_operation(trigger.share) + 1

    def _wake_world(self) -> None:
        with contextlib.suppress(OSError):  # full: the selector wakes already; closed: the run is over
            self._wake_sender.send(b"!")

    def _clear_wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_receiver.recv(4096)


_NEARLY, _LATEST_BEGIN = 0.9, 3.0  # times the computing time of the imports, and times their duration
_NEXT_LOOK = 0.02  # seconds
_SHORTEST_LOOK = 0.01  # seconds: the kernel counts in hundredths
_PROCESSORS = len(os.sched_getaffinity(0))


def _share(trigger: AtWork, timing: TrialTiming) -> float:
    return timing.before_end(trigger.share) if trigger.of_notice else trigger.share


def _done_at(attempt: _CurrentAttempt, started_at: float, own: OwnWork, share: float, *, is_life: bool) -> float | None:
    """The earliest time at which an attempt has done this share since its own work began; ``None``: still unknown.

    By saves, the tracer ends a life; time does where an attempt no longer saves. Other interruptions come between two saves.
    """
    if own.measured_by is MeasuredBy.PROGRESS:
        done = own.done(None, 0.0, (attempt.first_progress, attempt.progress)) or 0.0
        return started_at if done >= share else None
    if own.measured_by is MeasuredBy.PROCESSOR:
        return attempt.life_ends_at or started_at + own.target(share) / _PROCESSORS
    if own.measured_by is MeasuredBy.FILES:
        count, rest = own.last_save(share)
        begun = started_at + own.start
        if not is_life and len(attempt.saves_at) >= count:
            return (attempt.saves_at[count - 1] if count else begun) + rest * own.seconds
        begun = attempt.saves_at[-1] if attempt.saves_at else begun
        return begun + max(share, LONGEST_GAP) * own.seconds + attempt.run_delay
    if attempt.own_begin is None:
        return None  # its work has not visibly begun
    return started_at + attempt.own_begin + share * own.seconds + attempt.run_delay


def _is_at_work(attempt: _CurrentAttempt, work: WorkPhase, age: float) -> bool:
    """Whether an attempt has made its first step: it has advanced since its first report, has saved, or is old enough."""
    if work.seen_by is SeenBy.PROGRESS:
        first = attempt.first_progress
        return bool(attempt.saves_at) or (first is not None and (attempt.progress or 0.0) > first)
    if work.seen_by is SeenBy.SAVES:
        return bool(attempt.saves_at)
    return age >= work.begin


_OURS = "SPOTWRIGHT_"
NOT_PROCESS_1 = "not-process-1"  # in an attempt's folder: why the kernel did not make its command process 1
_OF_THE_ATTEMPT = (
    "SPOTWRIGHT_NO_PID_NAMESPACE",
    "SPOTWRIGHT_RUN",
    "SPOTWRIGHT_TASK",
    "SPOTWRIGHT_ATTEMPT",
)  # they identify its processes
_DEFAULT_FOLDER = "spotwright-checkpoint"  # of spotwright.checkpoint, in the working directory


def _host_of(order: StartOrder) -> str:
    """An attempt's host name, unique as a pod's."""
    task = re.sub(r"[^a-z0-9]+", "-", order.task.lower()).strip("-")[:50]
    return f"{task or 'step'}-{order.attempt}"


def _addresses_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """Host and port of each URL in Spotwright's variables: the notice is served there."""
    urls = (urlsplit(value) for name, value in env.items() if name.startswith("SPOTWRIGHT_") and "://" in value)
    return tuple(url.netloc for url in urls if url.netloc)
