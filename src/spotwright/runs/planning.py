"""Plan a run: the graph of a compiled pipeline or of pod templates on a configuration's pools, with its arguments bound.

Planning reads only the user's files: it needs no container runtime, secret or mount. The next step checks
that this machine can run the plan (:mod:`spotwright.local.preflight`).

Before a run with a deadline, its feasibility is checked, with the observations of earlier runs on its pools. Components from
addresses with a commit are compared from run to run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.events import MarketKnown
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import RunState
from spotwright.errors import ConfigError, PipelineError, StateError
from spotwright.graph import TaskGraph
from spotwright.kfp.arguments import bind
from spotwright.kfp.compiled import Compiled
from spotwright.model.policy import Deadline
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration
from spotwright.model.task_names import no_such_task
from spotwright.records.journal import Journal
from spotwright.records.state_folder import LARGEST_FILE, StateFolder, write_atomically
from spotwright.records.stored_plan import StoredPlan, traces_of
from spotwright.regular_files import read_regular
from spotwright.runs.run_options import PlanOptions
from spotwright.scheduling.estimates import newest_boots

if TYPE_CHECKING:
    from spotwright.manifests.pod_graph import PodSource


__all__ = [
    "PlannedRun",
    "check_pins",
    "check_plan",
    "deadline_notes",
    "keep_pins",
    "keep_sightings",
    "known_market",
    "plan_run",
    "source_file",
]


class PlannedRun(NamedTuple):
    """A planned run. ``arguments`` have their declared types; references to secrets among them are not resolved.

    ``notes`` are for the user.
    """

    stored: StoredPlan
    options: PlanOptions
    arguments: Mapping[str, Any]
    notes: tuple[str, ...]


def plan_run(
    source: Compiled | PodSource, options: PlanOptions, *, partly: bool = False, real_nodes: bool = False
) -> PlannedRun:
    """Plan every task and bind the arguments; ``partly``: arguments may be missing, for a plan that is not run.

    ``real_nodes``: the run uses nodes of a cluster, which cost money, instead of simulated ones.

    Raises :class:`InputError` for a configuration, a policy or a pipeline that cannot run, and for arguments that are missing,
    unknown or of the wrong type.
    """
    config = _config(source, options)
    traces = traces_of(config, options.interrupt_every)
    stored = StoredPlan(source, config, options.interrupt_every, traces, options.policy, real_nodes)
    if not options.shared_config:
        _require_matches(config, stored.plan.graph)
    notes = (*source.warnings, *config.notes, *check_plan(stored))
    arguments = bind(stored.plan.graph, options.arguments, textual=options.textual, partly=partly)
    return PlannedRun(stored, options, arguments, notes)


def _config(source: Compiled | PodSource, options: PlanOptions) -> Config:
    if isinstance(options.config, Mapping):
        return configuration.from_mapping(options.config)
    return configuration.find(source_file(source) or options.folder or Path.cwd(), options.config)


def _require_matches(config: Config, graph: TaskGraph) -> None:
    """Raise :class:`ConfigError` for a pattern of ``policy.tasks`` that matches no task: its policy would have no effect."""
    written = graph.written_tasks()
    for pattern, layer in config.policy_tasks:
        if not any(task.meant_by(pattern) for task in written):
            end = no_such_task(pattern, [task.path for task in written])
            raise ConfigError(f"{layer.source}: policy.tasks {pattern!r} matches no task{end}")


def source_file(source: Compiled | PodSource) -> Path | None:
    """The user's file that holds the pipeline; ``None`` for pods, a command, and a function from a notebook or a console.

    The name of a notebook's cell (``<ipython-input-3-...>``, ``/tmp/ipykernel_7/123.py``) is not a file.
    """
    file = Path(source.source)
    return file if source.source and file.exists() else None


def check_plan(stored: StoredPlan) -> tuple[str, ...]:
    """Call :meth:`Plan.check`, and add the task's place in its source to errors, because plans do not know files."""
    try:
        return stored.plan.check()
    except PipelineError as error:
        if not error.task:
            raise
        raise PipelineError(f"{stored.place_of(error.task)}: {error}") from error


def check_pins(place: str, commits: Mapping[str, str], file: Path) -> tuple[str, ...]:
    """Compare digests by address with those in ``file``. Returns notes about new addresses.

    Raises :class:`PipelineError` for content that differs from before.
    """
    pins = _read_pins(file)
    for address, digest in commits.items():
        if pins.get(address, digest) != digest:
            raise PipelineError(
                f"{place}: the content of {address} changed although it names a commit: sha256 {digest}, before"
                f" {pins[address]}. Review it; to accept it, delete {file}"
            )
    return tuple(
        f"{address} names a commit, which cannot be verified; from now on its content is compared with sha256 {digest}. Append"
        f" #sha256={digest} to the address to have it verified everywhere"
        for address, digest in commits.items()
        if address not in pins
    )


def keep_pins(commits: Mapping[str, str], file: Path) -> None:
    """Store the digests of new addresses; stored ones stay."""
    pins = _read_pins(file)
    if not commits.keys() <= pins.keys():
        write_atomically(file, json.dumps({**commits, **pins}, indent=1, sort_keys=True) + "\n")


def _read_pins(file: Path) -> dict[str, str]:
    try:
        pins: dict[str, str] = json.loads(read_regular(file, LARGEST_FILE))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file}: cannot be read ({error}); delete it to pin all components again") from error
    return pins


_RUNS = 50  # the newest runs that are searched for counts
_LARGEST = 20_000_000  # bytes of a journal that is searched


def deadline_notes(plan: Plan, now: float, time_scale: float = 1.0) -> Iterator[str]:
    """Notes before a run with a deadline: that it is infeasible, and which tasks lack ``expected_duration``."""
    worst: tuple[float, str, float] | None = None
    silent: list[str] = []
    starts: dict[str, float] = {}
    for planned in plan.unfold(""):
        work = plan.stated_work(planned)
        start = max((starts[name] for name in planned.spec.after), default=0.0)
        starts[planned.spec.name] = start + work
        deadline = planned.policy.deadline
        if deadline is None:
            continue
        if planned.ladder.rungs and not planned.policy.expected_duration:
            silent.append(planned.path)
        need = start + work + planned.downstream + _launch(plan, planned, time_scale)
        excess = need - _after(deadline, now)
        if excess > (0.0 if worst is None else worst[0]):
            worst = excess, planned.path, need
    if worst is not None:
        excess, path, need = worst
        yield (
            f"the deadline cannot be met: on on-demand alone the stated work on the longest path through {path} takes "
            f"{format_duration(need)} with a launch, {format_duration(excess)} too long; the nearest deadline that can be met is "
            f"{format_duration(need)} after the start. The run goes on, on on-demand at once"
        )
    if silent:
        named = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
        yield f"tasks without 'expected_duration' run on on-demand under a deadline: {named}"


def known_market(folder: StateFolder, plan: Plan, own: str, at: float) -> MarketKnown | None:
    """The counts of the newest runs of a state folder, except ``own``, for the pools of a plan."""
    if not _has_deadline(plan):
        return None
    kinds = {name: _kind(pool) for name, pool in plan.config.pools.items()}
    sums: dict[str, list[float]] = {}
    boots: dict[str, tuple[float, ...]] = {}
    runs = 0
    for run in list(reversed(folder.runs()))[:_RUNS]:
        counted = None if run.name == own else _counted(run.journal)
        if counted is None:
            continue
        runs += 1
        for pool, counts in counted.pools.items():
            if kinds.get(pool) == counted.kinds.get(pool) and plan.config.pools[pool].is_spot:
                before = sums.get(pool, [0.0] * len(counts))
                sums[pool] = [one + other for one, other in zip(before, counts, strict=True)]
        for pool, seen in counted.boots.items():
            if kinds.get(pool) == counted.kinds.get(pool):
                boots[pool] = newest_boots(seen, boots.get(pool, ()))
    pools = {pool: tuple(counts) for pool, counts in sums.items()}
    return MarketKnown(at, pools=pools, runs=runs, boots=boots) if pools or boots else None


def keep_sightings(journal: Journal, state: RunState, at: float) -> None:
    """Append a run's counts for its pools to the end of its journal, for later runs."""
    pools = state.plan.config.pools
    boots = {name: seen for name, seen in state.boots.items() if name in pools}
    if not state.sightings and not (boots and _has_deadline(state.plan)):
        return
    from spotwright.deadlines.hazards import listed

    counts = {name: listed(seen.counts()) for name, seen in state.sightings.items() if name in pools}
    kinds = {name: _kind(pools[name]) for name in (*counts, *boots)}
    event = MarketKnown(at, pools=counts, own=True, kinds=kinds, boots=boots)
    fold(state, event)
    journal.append([event])


def _counted(file: Path) -> MarketKnown | None:
    """The last row of counts in a journal, if its run wrote one at its end; ``None`` for an unreadable journal."""
    try:
        if file.stat().st_size > _LARGEST:
            return None
        with closing(Journal.read(file)) as journal:
            event = journal.last(MarketKnown.kind)
    except (OSError, StateError):  # a run that is being deleted, or of another version
        return None
    return event if isinstance(event, MarketKnown) and event.own else None


def _has_deadline(plan: Plan) -> bool:
    return any(planned.policy.deadline is not None for planned in plan.every_task())


def _launch(plan: Plan, planned: PlannedTask, time_scale: float) -> float:
    """The shortest time until an on-demand node of a task is ready, in real seconds."""
    pools = [
        plan.config.pools[name] for index in planned.ladder.on_demand for name in planned.ladder.rungs[index].pools
    ]
    return min((pool.boot for pool in pools), default=0.0) / time_scale


def _after(deadline: Deadline, now: float) -> float:
    return deadline.moment(now) - now


def _kind(pool: Pool) -> str:
    """The identity of a pool's supply."""
    return repr((pool.provider, pool.machine, pool.zones, pool.region, pool.max_lifetime, tuple(pool.simulate)))
