"""Resume a run after a crash, a stop or a failure, also with changed code, and cancel runs.

The lease is acquired first, which fences the earlier engine. Then every attempt that may still be alive is settled: its exit
record counts if it exists, otherwise it is ended and lost. Only then new attempts start. If the run had failed, its unfinished
tasks run again with fresh budgets. If the pipeline or the configuration has changed, the run gets a new version of its plan, and
tasks whose code has changed run again together with their downstream tasks.

A living engine cancels its run on request; the attempts of a dead engine are ended here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.decide import close_ended, decide
from spotwright.engine.events import AttemptEnded, CancelRequested, Event, RunReset, RunStatus, TaskStatus
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import Observer, drive
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.plan import Plan, PlannedTask, Scope
from spotwright.engine.ports import Clock, Lease
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import InputError, PipelineNotFound, StateError
from spotwright.graph import DagInput, TaskSpec
from spotwright.kfp.compiled import Compiled, file_digests
from spotwright.kfp.executors import code_fingerprint
from spotwright.kfp.loader import load
from spotwright.kfp.secrets import Secrets
from spotwright.model.attempts import Signals
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import StoredPlan, load_plans, save_plan, traces_of
from spotwright.runs import bodies
from spotwright.runs.planning import check_pins, keep_pins, keep_sightings, source_file
from spotwright.runs.runner import engine_started, leased, opened

if TYPE_CHECKING:
    from spotwright.manifests.pod_graph import PodSource
    from spotwright.runs.bodies import HostResources, LocalHooks


__all__ = ["Resumption", "Say", "cancel", "cancel_dead", "resume"]


Say = Callable[[str], None]
"""Shows the user a message."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """The last state of a resumed run; ``nothing_to_do`` if it had already succeeded."""

    state: RunState
    nothing_to_do: bool = False


def resume(
    folder: RunFolder,
    say: Say,
    observers: Sequence[Observer] = (),
    hooks: LocalHooks | None = None,
    *,
    reread: bool = True,
) -> Resumption:
    """Resume a run and drive it to its end.

    ``hooks`` are an early fork server. ``reread``: use the present pipeline and configuration files.
    Raises :class:`RunBusy` while another engine drives the run.
    """
    if folder.kfp.exists():
        raise InputError(
            f"run {folder.name} runs on Kubeflow Pipelines: follow it with: spotwright resume {folder.name}"
        )
    plans = load_plans(folder)
    with leased(folder) as journal:
        state = replay([stored.plan for stored in plans], (event for _, event in journal.events()))
        # A later version was written by an engine that ended before its reset was committed.
        current = plans[state.version - 1]
        newer = _changed_plan(current, say) if reread else None
        if newer is not None:
            _check_pins(folder, newer.source, say)
        if state.status is RunStatus.SUCCEEDED and newer is None:
            return Resumption(state, nothing_to_do=True)
        stored = newer or current
        # before any change
        host = bodies.check_machine(stored, _resources(state, stored), state.meta.containers)
        with opened(folder, journal, state, stored, host, hooks) as (world, clock):
            had_failed = frozenset(state.failed)
            started = engine_started(clock(), journal.epoch, state.meta, stored)
            _commit_recovery(state, journal, [*world.recover(state), started], clock)
            for path in [path for path in state.failed if path not in had_failed]:
                say(f"task {path} failed while the run had no engine ({state.tasks[path].why}): it runs again")
            if state.failed or state.cancelling or state.expired or newer is not None:
                _commit(state, journal, _reset(folder, state, newer, host.arguments, clock, say))
            world.begin(state)
            drive(state, journal, world, clock, observers=observers, lease=journal)
            keep_sightings(journal, state, clock())
    return Resumption(state)


def _commit_recovery(state: RunState, journal: Journal, recovery: Sequence[Event], clock: Clock) -> None:
    """Fold and commit the ends of earlier attempts, with the decisions that close these attempts."""
    for event in recovery:
        fold(state, event)
    decisions = close_ended(state, Snapshot(), clock())
    for event in decisions:
        fold(state, event)
    journal.append([*recovery, *decisions])


def _commit(state: RunState, journal: Journal, events: Sequence[Event]) -> None:
    for event in events:
        fold(state, event)
    journal.append(events)


def _reset(
    folder: RunFolder, state: RunState, newer: StoredPlan | None, arguments: Mapping[str, Any], clock: Clock, say: Say
) -> list[Event]:
    """The reset after which all tasks that did not succeed run again; with a ``newer`` plan it is saved and takes effect."""
    if newer is None:
        return [RunReset(clock(), version=state.version)]
    save_plan(folder, state.version + 1, newer)
    state.plans = [*state.plans[: state.version], newer.plan]
    again = list(_again(state, newer.plan, _changed(state.meta.arguments, arguments), say))
    if not again and not state.failed:
        say("succeeded tasks do not need to run again")
    return [RunReset(clock(), version=state.version + 1, again=tuple(again), arguments=arguments)]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """The parameters of the pipeline whose value has changed through their default or type."""
    return frozenset(name for name in now if name not in before or before[name] != now[name])


def _changed_plan(stored: StoredPlan, say: Say) -> StoredPlan | None:
    """The plan from the user's current files, if it differs from the run's; ``None`` if they are unchanged."""
    source, config = _source_now(stored.source, say), _config_now(stored, say)
    if _is_same_code(source, stored.source) and config.text == stored.config.text:
        return None
    newer = replace(stored, source=source, config=config, traces=traces_of(config, stored.interrupt_every))
    newer.plan.check()
    return newer


def _is_same_code(now: Compiled | PodSource, before: Compiled | PodSource) -> bool:
    if isinstance(now, Compiled) and isinstance(before, Compiled):
        return (now.ir, now.platform) == (before.ir, before.platform)
    return now == before


def _check_pins(folder: RunFolder, source: Compiled | PodSource, say: Say) -> None:
    file = StateFolder(folder.path.parents[1]).components
    for note in check_pins(source.source, source.commits, file):
        say(note)
    keep_pins(source.commits, file)


def _source_now(compiled: Compiled | PodSource, say: Say) -> Compiled | PodSource:
    """The recompiled pipeline, or the stored one if its files are unchanged. Pods have no file.

    A function has no digests of files. If its file does not define it at the top level (a notebook's cell, a function that
    makes pipelines), the pipeline cannot be recompiled.
    """
    if (
        not isinstance(compiled, Compiled)
        or not compiled.source
        or (compiled.files and file_digests(compiled.files) == compiled.files)
    ):
        return compiled
    file = source_file(compiled)
    if file is None:
        why = f"{compiled.source} is gone" if compiled.files else "the pipeline is a function without a file"
        say(f"{why}: continuing with the pipeline as compiled before")
        return compiled
    try:
        return load(file, pipeline=compiled.pipeline, scripts=True)
    except PipelineNotFound as error:
        if compiled.files:
            raise
        say(f"{error}: continuing with the pipeline as compiled before")
        return compiled


def _config_now(stored: StoredPlan, say: Say) -> Config:
    """The configuration from the same file as before; without one, from a new file."""
    path = Path(stored.config.path)
    if stored.config.is_file and not path.exists():
        say(f"{path} is gone: continuing with the pools and policy that the run started with")
        return stored.config
    file = source_file(stored.source)
    if stored.config.is_file:
        config = configuration.load(path)
    elif stored.config.is_built_in and file is not None:
        config = configuration.find(file)
    else:  # a mapping, or a pipeline without a file: no file to reread
        return stored.config
    if config.text != stored.config.text:
        say(f"{config.path} has changed: its pools and policy apply from now on")
    return config


def _again(state: RunState, plan: Plan, arguments: frozenset[str], say: Say) -> Iterator[str]:
    """The succeeded tasks that must rerun, because their code has changed or an upstream task reruns.

    ``arguments`` are the parameters of the pipeline whose value has changed.
    """
    again: set[str] = set()
    planned_paths: set[str] = set()
    messages: dict[str, None] = {}  # one line for all iterations of a loop
    for scope, planned in _walk(state, plan, plan.root):
        planned_paths.add(planned.path)
        before = state.tasks.get(planned.path)
        if before is None:
            messages[f"task {planned.spec_path} is new"] = None
            again.add(planned.path)
            continue
        if planned.spec.dag is None and not before.status.is_good:
            if _has_changed(planned.spec, before.plan.spec):
                messages[f"task {planned.spec_path} has changed"] = None
            continue
        why = _why_again(scope, planned, before, again, arguments)
        if why:
            if before.status.is_good and scope.path not in again:
                did = "succeeded" if before.status is TaskStatus.SUCCEEDED else "was skipped"
                messages[f"task {planned.spec_path} {did} before and runs again: {why}"] = None
            again.add(planned.path)
            yield planned.path
    gone = (task.plan.spec_path for path, task in state.tasks.items() if path not in planned_paths)
    messages.update(dict.fromkeys(f"task {path} is no longer in the pipeline" for path in gone))
    for message in messages:
        say(message)


def _why_again(
    scope: Scope, planned: PlannedTask, before: TaskState, again: set[str], arguments: frozenset[str]
) -> str:
    if _has_changed(planned.spec, before.plan.spec):
        return "its code has changed" if planned.spec.dag is None else "its inputs have changed"
    sources = () if scope.path else planned.spec.parameters.values()
    parameters = [each.name for each in sources if isinstance(each, DagInput) and each.name in arguments]
    if parameters:
        return f"the default of {', '.join(parameters)} has changed"
    changed = [name for name in planned.spec.after if scope.child(name) in again]
    if scope.path in again:
        changed.append(scope.path)
    return f"it follows {', '.join(changed)}" if changed else ""


def _has_changed(spec: TaskSpec, before: TaskSpec) -> bool:
    """Whether a task would do different work now. Only the inputs of a DAG count: its tasks are compared one by one."""
    if spec.dag is None or before.dag is None:
        return code_fingerprint(spec) != code_fingerprint(before)
    inputs = (spec.condition, spec.loop, dict(spec.parameters), dict(spec.artifacts))
    return inputs != (before.condition, before.loop, dict(before.parameters), dict(before.artifacts))


def _walk(state: RunState, plan: Plan, scope: Scope) -> Iterator[tuple[Scope, PlannedTask]]:
    """The tasks of the new plan that the run has unfolded, with every iteration of a loop."""
    for planned in plan.unfold(scope):
        yield scope, planned
        before = state.tasks.get(planned.path)
        if planned.spec.dag is None or before is None:
            continue
        if planned.spec.loop is None and before.inside is not None:
            yield from _walk(state, plan, plan.inside(planned))
        elif planned.spec.loop is not None and before.loop is not None:
            for iteration in range(len(before.loop.scopes)):
                yield from _walk(state, plan, plan.inside(planned, iteration))


def _resources(state: RunState, stored: StoredPlan) -> HostResources:
    """The run's arguments for this plan, with secrets reread from their sources."""
    return bodies.read_secrets_again(stored.plan, state.meta.given, textual=state.meta.textual)


def cancel_dead(folder: RunFolder) -> RunState:
    """Cancel a run without an engine: end the attempts that may still be alive, and journal the cancellation.

    An attempt that finished after its engine ended counts as finished. But if the run's secrets cannot be read here, and so not
    be hidden in its outputs, the outputs are deleted, and the task reruns if the run is ever resumed.
    """
    plans = load_plans(folder)
    with leased(folder) as journal:
        state = replay([stored.plan for stored in plans], (event for _, event in journal.events()))
        if state.status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED):
            raise InputError(f"run {folder.name} has ended already: it {_word(state.status)}")
        try:
            secrets: Secrets | None = _resources(state, plans[state.version - 1]).secrets
        except InputError:
            secrets = None
        clock = bodies.local_clock()
        events = bodies.settle(folder, journal.epoch, state, secrets)
        events.append(engine_started(clock(), journal.epoch, state.meta, plans[state.version - 1]))
        events.append(CancelRequested(clock()))
        for path in state.under_way:
            task = state.tasks[path]
            if task.last.bound_at is None:
                events.append(AttemptEnded(clock(), path, task.last.number, signals=Signals(cancelled=True)))
        for event in events:
            fold(state, event)
        while decisions := decide(state, Snapshot(), clock()):
            for event in decisions:
                fold(state, event)
            events += decisions
        journal.append(events)
        if secrets is not None:  # only now: the journal has the outputs with references in place of secrets
            bodies.hide_secrets(folder, state, secrets)
    return state


def _word(status: RunStatus) -> str:
    return {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed"}.get(status, "was cancelled")


_POLL = 0.2  # seconds between two reads of a run that is ending


def cancel(folder: RunFolder, timeout: float = 60.0) -> RunState:
    """Cancel a run, driven by an engine or not, and wait until it has ended. Returns its last state.

    Raises :class:`InputError` if it has ended already, or does not end within ``timeout`` seconds, and :class:`StateError` if a
    process other than its engine holds its lease.
    """
    if folder.kfp.exists():
        raise InputError(f"run {folder.name} runs on Kubeflow Pipelines: end it with: spotwright cancel {folder.name}")
    journal = Journal.open(folder.journal)
    try:
        lease = journal.lease()
        if lease is None or not bodies.is_alive(lease.holder):
            return cancel_dead(folder)
        journal.request("cancel", time.time())
        if not bodies.wake(folder.journal, lease.holder) and _is_held_still(journal, lease):
            raise StateError(
                f"run {folder.name}: its journal names process {lease.holder['pid']} as its engine, but that process does not"
                f" run it; it was not signalled. If the folder was copied from elsewhere, remove it: {folder.path}"
            )
    finally:
        journal.close()
    return _wait_for_end(folder, timeout)


def _is_held_still(journal: Journal, lease: Lease) -> bool:
    """Whether a process still holds a lease that was read before: an ending engine releases it first."""
    return journal.lease() == lease and bodies.is_alive(lease.holder)


def _wait_for_end(folder: RunFolder, timeout: float) -> RunState:
    deadline = time.monotonic() + timeout
    reader = RunReader(folder, bodies.is_alive)
    while time.monotonic() < deadline:
        if not reader.is_driven:
            return reader.state if reader.state.status is not RunStatus.RUNNING else cancel_dead(folder)
        time.sleep(_POLL)
        reader.refresh()
    raise InputError(
        f"run {folder.name} has not ended within {timeout:g}s after the request to cancel it; see 'spotwright show {folder.name}'"
    )
