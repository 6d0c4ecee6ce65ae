"""An engine for one run on this machine: everything that a run needs, put together and taken apart again.

:func:`start` makes a run and drives it; :mod:`spotwright.runs.resume` takes one up again. Both end in :func:`execute`.
"""

from __future__ import annotations

import os
import secrets as randomness
import selectors
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.events import Event
from spotwright.engine.fold import fold
from spotwright.engine.loop import Clock, Observer, drive
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.local.attempts import Places
from spotwright.local.clients import Engine
from spotwright.local.clock import steady_clock
from spotwright.local.identity import Identity, marks, mine, open_process
from spotwright.local.metadata import Metadata, has_metadata
from spotwright.local.processes import Processes
from spotwright.local.taking import Taker
from spotwright.local.watch import Watch
from spotwright.local.world import Machine, Results, World
from spotwright.model.pools import Pool
from spotwright.pipelines.arguments import bind, references
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.secrets import Secrets
from spotwright.records.cache import Cache
from spotwright.records.folders import RunFolder, StateFolder
from spotwright.records.journal import Journal, Lease
from spotwright.runs.early import EarlyServer, new_name
from spotwright.runs.grounds import check_grounds, check_plan, objects_of, unmet
from spotwright.runs.options import RunOptions
from spotwright.runs.pins import check_pins, keep_pins
from spotwright.runs.plans import StoredPlan, can_be_taken, save_plan, traces_of
from spotwright.runs.wakes import Wakes
from spotwright.supply.nodes import Supply

__all__ = [
    "Prepared",
    "bind_again",
    "containers_of",
    "execute",
    "is_alive",
    "owner",
    "places_of",
    "prepare",
    "start",
]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is checked and ready to start: nothing has been written yet. ``notes`` are to be said to the user."""

    stored: StoredPlan
    options: RunOptions
    arguments: dict[str, Any]
    secrets: Secrets
    notes: tuple[str, ...]


MakeTaker = Callable[[selectors.BaseSelector, Clock], Taker]
"""Makes who else takes nodes, once the run's selector and clock are there."""


@dataclass(frozen=True, slots=True)
class Aids:
    """What an engine may be given: a fork server that was started already, and who takes nodes beside the pools."""

    server: EarlyServer | None = None
    taker: MakeTaker | None = None


def prepare(compiled: Compiled, options: RunOptions) -> Prepared:
    """Check everything that can be wrong before anything starts. Raises :class:`InputError`."""
    config = configuration.find(compiled.source or Path.cwd(), options.config)
    traces = traces_of(config, options.taken_every)
    stored = StoredPlan(compiled, config, options.taken_every, traces, options.policy)
    plan = stored.plan
    notes = [*compiled.warnings, *([config.note] if config.note else []), *check_plan(compiled, plan)]
    notes += check_pins(compiled.source, compiled.commits, StateFolder.existing(options.state).components)
    notes += unmet(plan, check_grounds(compiled, plan, options.containers))
    arguments, secrets = _bind_arguments(plan, options.arguments, textual=options.textual)
    return Prepared(stored, options, arguments, secrets, tuple(notes))


def _bind_arguments(plan: Plan, given: Mapping[str, Any], *, textual: bool) -> tuple[dict[str, Any], Secrets]:
    """Give every parameter of a pipeline its value, secrets as markers, and the secrets that the markers stand for.

    Among these are the secrets that the pipeline takes from the cluster. Raises :class:`InputError` for arguments that are
    missing, unknown or of the wrong type, and for references to nothing.
    """
    bound = bind(plan.pipeline, given, textual=textual)
    secrets, stored = Secrets.resolve(bound, os.environ, _text_of, objects_of(plan).secrets)
    return stored, secrets


def bind_again(plan: Plan, given: Mapping[str, Any], *, textual: bool) -> tuple[dict[str, Any], Secrets]:
    """The same for arguments as the journal keeps them: secrets that were given in plain have been hidden there."""
    known = references(plan.pipeline, given)
    secrets, _ = Secrets.resolve(known, os.environ, _text_of, objects_of(plan).secrets)
    return _bind_arguments(plan, secrets.reveal(given), textual=textual)


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def start(
    prepared: Prepared,
    observers: Sequence[Observer] = (),
    server: EarlyServer | None = None,
    *,
    given: Callable[[RunState], Sequence[Event]] = lambda _: (),
    taker: MakeTaker | None = None,
) -> tuple[RunFolder, RunState]:
    """Make the run and drive it to its end, with a fork server that was started for it already if there is one.

    A rehearsal gives facts that hold from the start (``given``) and takes nodes itself (``taker``). Returns where the run lies
    and how it ended.
    """
    options, compiled = prepared.options, prepared.stored.compiled
    state_folder = StateFolder.open(options.state)
    folder = state_folder.create(options.name if options.name is not None else new_name(compiled.pipeline))
    keep_pins(compiled.commits, state_folder.components)
    clock = steady_clock()
    created = Event("created", clock(), data=_meta(folder.name, prepared))
    _begin(folder, prepared.stored, created)
    with begun(), closing(Journal.open(folder.journal)) as journal:
        epoch = journal.take(owner(), is_alive)
        state = RunState([prepared.stored.plan])
        fold(state, created)
        for observe in observers:
            observe(state, [created])
        facts = [Event("engine", clock(), data={"epoch": epoch, "pid": os.getpid()})]
        facts += [Event("note", clock(), data={"text": text}) for text in prepared.notes]
        facts += given(state)
        execute(folder, journal, state, facts, prepared.stored, prepared.secrets, observers, Aids(server, taker))
    return folder, state


def _meta(run: str, prepared: Prepared) -> dict[str, Any]:
    options, compiled = prepared.options, prepared.stored.compiled
    return {
        "run": run,
        "pipeline": compiled.pipeline,
        "source": compiled.source,
        "config": prepared.stored.config.path,
        "explicit_config": str(options.config.absolute()) if options.config is not None else None,
        "arguments": prepared.arguments,
        "given": prepared.secrets.redact(_given(prepared)),
        "textual": options.textual,
        "seed": options.seed if options.seed is not None else randomness.randbelow(2**31),
        "time_scale": options.time_scale,
        "cache": options.cache,
        "containers": options.containers,
    }


def _given(prepared: Prepared) -> dict[str, Any]:
    """The arguments as they were given; artifacts as they were found, because a resumed run may have another folder."""
    artifacts = prepared.stored.plan.pipeline.root.artifacts
    found = prepared.arguments
    return {name: found[name] if name in artifacts else value for name, value in prepared.options.arguments.items()}


def _begin(folder: RunFolder, stored: StoredPlan, created: Event) -> None:
    """Write the plan and the journal's first event. The journal gets its name last: a run that is there can be resumed.

    Where they cannot be written nothing of the run stays. Raises :class:`StateError`.
    """
    beside = folder.journal.with_name("journal.new")
    try:
        save_plan(folder, 1, stored)
        with closing(Journal.create(beside)) as journal:
            journal.append([created])
        beside.rename(folder.journal)
    except SpotwrightError:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


@contextmanager
def begun() -> Iterator[None]:
    """Errors that come out of the block came after the run had begun, and say so."""
    try:
        yield
    except SpotwrightError as error:
        error.begun = True
        raise


def execute(
    folder: RunFolder,
    journal: Journal,
    state: RunState,
    facts: Sequence[Event],
    stored: StoredPlan,
    secrets: Secrets,
    observers: Sequence[Observer],
    aids: Aids = Aids(),
) -> None:
    """Drive a run whose lease is held: open the world, let the loop run, give the lease back."""
    meta, clock = state.meta, steady_clock()
    with begun(), selectors.DefaultSelector() as selector, Wakes(selector, journal, clock) as wakes:
        pools = state.plan.config.pools
        state_folder = StateFolder(folder.path.parent.parent)
        places = replace(
            places_of(folder, journal.epoch, secrets),
            containers=containers_of(state, stored),
            objects=objects_of(state.plan),
        )
        supply = Supply(
            pools,
            seed=meta["seed"],
            scale=float(meta["time_scale"]),
            now=clock(),
            traces=stored.traces,
            made=Counter(node.pool for node in state.nodes.values()),
        )
        with (
            _processes(selector, folder, aids.server) as processes,
            _metadata(selector, folder, pools, float(meta["time_scale"])) as metadata,
        ):
            results = _results(meta["cache"], state.plan.config, state_folder)
            machine = Machine(selector, processes, Watch(selector), metadata)
            world = World(
                machine, supply, places, clock, pools=pools, results=results, wakes=wakes.facts,
                taker=aids.taker(selector, clock) if aids.taker is not None else None,
            )  # fmt: skip
            wakes.hurry = world.hurry
            world.begin(state)
            drive(state, journal, world, clock, facts=facts, observers=observers)
    journal.give_up()


def containers_of(state: RunState, stored: StoredPlan) -> Engine | None:
    """What executes the container components of a run; see :func:`check_grounds`, which is asked again."""
    return check_grounds(stored.compiled, stored.plan, state.meta.get("containers", "auto"))


def places_of(folder: RunFolder, epoch: int, secrets: Secrets) -> Places:
    """Where the attempts of a run find things, as absolute paths."""
    here = RunFolder(folder.path.absolute())
    state = StateFolder(here.path.parent.parent)
    return Places(folder.name, epoch, str(here.path.parent), here.attempt, here.checkpoint, state.volume, secrets)


@contextmanager
def _processes(selector: selectors.BaseSelector, folder: RunFolder, server: EarlyServer | None) -> Iterator[Processes]:
    processes = Processes(selector, run=folder.name, folder=folder.path.absolute())
    try:
        processes.warm(server.take() if server is not None else None)
        yield processes
    finally:
        processes.close()


@contextmanager
def _metadata(
    selector: selectors.BaseSelector, folder: RunFolder, pools: Mapping[str, Pool], scale: float
) -> Iterator[Metadata | None]:
    """The metadata servers of the nodes of clouds; nothing at all where the run has no pool of them."""
    if not any(has_metadata(pool) for pool in pools.values()):
        yield None
        return
    with closing(Metadata(selector, marks(folder.name, folder.path.absolute()), scale=scale)) as metadata:
        yield metadata


def _results(mode: str, config: Config, state_folder: StateFolder) -> Results | None:
    if mode == "off" or (mode == "auto" and can_be_taken(config.pools)):
        return None
    cache = Cache(state_folder.cache)
    return Results(cache.find, cache.keep)


def owner() -> Lease:
    """This process, as a lease names it."""
    return mine()._asdict()


def is_alive(lease: Lease) -> bool:
    """Whether the process that holds a lease still runs."""
    descriptor = open_process(Identity(lease["pid"], lease["starttime"], lease["boot_id"]))
    if descriptor is None:
        return False
    os.close(descriptor)
    return True
