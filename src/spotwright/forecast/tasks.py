"""The tasks of a forecast: the leaves of a plan with their durations, pools, prices and dependencies.

Loops, conditions and nested pipelines are unfolded (:mod:`spotwright.forecast.unfolding`) into one graph of tasks in
topological order. A task's duration was measured by an earlier run, is given in a file, is stated as ``expected_duration`` in
the configuration, or is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.config.document import MAX_BYTES, Entry, Location, Problems, Scalar, Table, read, read_text
from spotwright.engine.events import TaskStatus
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.errors import InputError
from spotwright.forecast.unfolding import Step, Unfolding, Weight
from spotwright.graph import Condition, RunsNowhere
from spotwright.model.attempts import Cause
from spotwright.model.not_judged import NotJudged
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration, parse_duration
from spotwright.model.task_names import matches, no_such_task, refusal
from spotwright.records.reader import RunReader
from spotwright.scheduling.ladder import Ladder, PodRequirements, build
from spotwright.views.node_time import share_of
from spotwright.views.text import shorten

__all__ = [
    "ASSUMED",
    "SAVE",
    "Durations",
    "Given",
    "Known",
    "Offer",
    "TaskToCome",
    "Tasks",
    "measured",
    "read_durations",
    "some",
    "tasks_of",
]


ASSUMED = 600.0
"""Assumed seconds of a task of unknown duration."""

SAVE = 60.0
"""Assumed seconds of one checkpoint save, unless a file states it."""

_ASSUMED = "assumed"
_KEYS = ("work", "save", "iterations")
_MOST_ITERATIONS = 20_000


class Given(NamedTuple):
    """One line's values, or an earlier run's measurements. Durations in seconds; ``None``: unknown."""

    work: float | None = None
    save: float | None = None
    iterations: int | None = None
    saves: bool = False
    where: str = ""


class Known(NamedTuple):
    """The duration of one task: its ``work`` with the source, whether it saves, and the time of one save."""

    work: float
    source: str
    saves: bool
    save: float


@dataclass
class Durations:
    """The durations of a forecast. ``given`` are patterns with their values; later ones take precedence.

    ``is_asked_for``: the user named them, so they take precedence over a policy's ``expected_duration``.
    """

    origin: str = ""
    given: Sequence[tuple[str, Given]] = ()
    remarks: Sequence[str] = ()
    used: set[str] = field(default_factory=set)
    ignored: dict[str, None] = field(default_factory=dict)
    is_asked_for: bool = True

    def of(self, path: str, spec_path: str, stated: float | None) -> Known:
        """The duration of a task; ``stated`` is its policy's ``expected_duration``."""
        work: float | None = None
        save: float | None = None
        saves = False
        for each in self._matching(path, spec_path):
            work = each.work if each.work is not None else work
            save = each.save if each.save is not None else save
            saves = saves or each.saves or each.save is not None
        if work is not None and (stated is None or self.is_asked_for):
            return Known(work, self.origin, saves, SAVE if save is None else save)
        if stated is not None:
            return Known(stated, "expected_duration in the policy", saves, SAVE if save is None else save)
        return Known(ASSUMED, _ASSUMED, saves, SAVE if save is None else save)

    def iterations(self, path: str, spec_path: str, known: int | None = None) -> int | None:
        """The number of iterations of a loop: of its items if known, else as given."""
        found = [each for each in self._matching(path, spec_path) if each.iterations is not None]
        if known is None:
            return found[-1].iterations if found else None
        if found and found[-1].where and found[-1].iterations != known:
            self.ignored[f"{found[-1].where}: {spec_path} has {known} items, so its iterations are not read here"] = (
                None
            )
        return known

    def _matching(self, *paths: str) -> Iterator[Given]:
        for pattern, each in self.given:
            if matches(pattern, *paths) if each.where else pattern in paths:  # a run's measurements have full paths
                self.used.add(pattern)
                yield each

    def check_used(self, paths: Sequence[str]) -> None:
        """Refuse a line that matches none of the graph's tasks, given by their paths. Raises :class:`InputError`."""
        for pattern, each in self.given:
            if each.where and pattern not in self.used and not any(matches(pattern, path) for path in paths):
                raise InputError(f"{each.where}: tasks.{pattern} matches no task{no_such_task(pattern, paths)}")

    def notes(self, tasks: Sequence[TaskToCome]) -> Iterator[str]:
        """Notes for the user on the durations of these tasks."""
        yield from (*self.remarks, *self.ignored)
        assumed = list(dict.fromkeys(task.spec_path for task in tasks if task.source == _ASSUMED))
        if assumed:
            yield (
                f"the duration of {some(assumed)} is not known: {format_duration(ASSUMED)} each is assumed; name an earlier run "
                "or a file with --durations, or set expected_duration in the policy"
            )


def read_durations(path: Path) -> Durations:
    """Read a file of durations. Raises :class:`ConfigError` with the line of every problem."""
    problems = Problems(str(path))
    root, top = read(read_text(path, MAX_BYTES), problems), Location(problems)
    for name, entry in root.entries.items():
        if name != "tasks":
            top.unknown(entry.line, name, ("tasks",))
    tasks = root.entries.get("tasks")
    if tasks is None or not isinstance(tasks.node, Table) or not tasks.node.entries:
        raise problems.stop(
            tasks.line if tasks else 1, "tasks", "expected a mapping from tasks to durations, such as {train: 2h}"
        )
    given = [
        (pattern, _given(pattern, entry, top.key("tasks").key(pattern), f"{path}:{entry.line}"))
        for pattern, entry in tasks.node.entries.items()
    ]
    problems.raise_any()
    return Durations(f"given in {path.name}", given)


def _given(pattern: str, entry: Entry, location: Location, where: str) -> Given:
    why = refusal(pattern)
    if why:
        location.wrong(entry.line, why)
    if isinstance(entry.node, Scalar):
        return Given(work=_duration(entry.node, location), where=where)
    if not isinstance(entry.node, Table):
        location.expected(entry.node, "a duration such as 2h, or {work: 2h, save: 30s}")
        return Given(where=where)
    fields = entry.node.entries
    for name, value in fields.items():
        if name not in _KEYS:
            location.unknown(value.line, name, _KEYS)
    save = _field("save", fields, location)
    return Given(_field("work", fields, location), save, _iterations(fields, location), save is not None, where)


def _field(name: str, fields: Mapping[str, Entry], location: Location) -> float | None:
    entry = fields.get(name)
    if entry is None:
        return None
    if isinstance(entry.node, Scalar):
        return _duration(entry.node, location.key(name))
    location.key(name).expected(entry.node, "a duration such as 2h")
    return None


def _duration(node: Scalar, location: Location) -> float | None:
    """A duration above 0: a task without duration cannot be planned."""
    try:
        seconds = parse_duration(node.text)
    except ValueError:
        location.expected(node, "a duration such as 30s, 5m or 2h")
        return None
    if seconds <= 0:
        location.expected(node, "a duration above 0")
        return None
    return seconds


def _iterations(fields: Mapping[str, Entry], location: Location) -> int | None:
    entry = fields.get("iterations")
    if entry is None:
        return None
    node = entry.node
    if isinstance(node, Scalar) and node.kind == "int" and 0 < int(node.text) <= _MOST_ITERATIONS:
        return int(node.text)
    location.key("iterations").expected(node, f"a whole number from 1 to {_MOST_ITERATIONS}")
    return None


_SHOWN = 100  # characters of a condition in a note
_MOST = 20_000  # tasks: a thousand markets of each are 160 MB per figure
_RELATIVE = {True: 1 / 3, False: 1.0}  # prices without a pool's price: spot costs a third, as in the engine's decisions


class Offer(NamedTuple):
    """A pool for one task: the hourly price of the ``share`` of a node that it takes, and a node's boot in seconds."""

    pool: str
    price: float
    boot: float
    share: float = 1.0


class TaskToCome(NamedTuple):
    """One task of the run to come; durations in seconds.

    ``after`` are the indexes of its dependencies. ``spot`` are the spot pools of its ladder in order, ``on_demand`` the pool
    for its fallback; ``needs_spot`` says why it has none. ``saves``: it saves its work, and resumes after an interruption;
    ``save`` is the duration of a save. A task without offers needs no node and takes no time.
    """

    path: str
    spec_path: str
    after: tuple[int, ...]
    work: float
    source: str
    saves: bool
    save: float
    spot: tuple[Offer, ...]
    on_demand: Offer | None
    policy: Policy
    needs_spot: str = ""

    @property
    def overhead(self) -> float:
        """The seconds of a launch under a deadline: the longest boot of its pools, as in the engine."""
        return max((offer.boot for offer in (*self.spot, *filter(None, (self.on_demand,)))), default=0.0)


class Tasks(NamedTuple):
    """All tasks in topological order, with notes for the user, the pools without a price, and why the run will fail."""

    tasks: tuple[TaskToCome, ...]
    notes: tuple[str, ...]
    unpriced: tuple[str, ...]
    failing: tuple[str, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()


def tasks_of(plan: Plan, durations: Durations, arguments: Mapping[str, Any]) -> Tasks:
    """Unfold a plan with the durations of its tasks; ``arguments`` are the run's, ``None`` for missing ones.

    Raises :class:`InputError` for durations that match no task, and for a run of more than 20,000 tasks.
    """
    walk = _Walk(plan, durations)
    unfolding = Unfolding(plan, arguments, walk.iterations, walk.weigh)
    walk.scope(unfolding.steps, ())
    durations.check_used(sorted({planned.spec_path for planned in plan.every_task()}))
    notes, failing = tuple(_about(unfolding, walk)), tuple(_failing(unfolding))
    if not any(task.work for task in walk.tasks):
        why = f" ({'; '.join((*failing, *notes))})" if failing or notes else ""
        raise InputError(
            f"pipeline {plan.graph.name} has no task that runs on a node, so there is nothing to plan{why}"
        )
    used = {offer.pool for task in walk.tasks for offer in (*task.spot, *filter(None, (task.on_demand,)))}
    unpriced = tuple(name for name, pool in plan.config.pools.items() if name in used and pool.price is None)
    tasks = [_relative(task) for task in walk.tasks] if unpriced else walk.tasks
    every = (one for planned in plan.every_task() for one in planned.ladder.not_judged)
    not_judged = tuple(dict.fromkeys(one for one in every if one.name in used))
    return Tasks(tuple(tasks), (*notes, *durations.notes(tasks)), unpriced, failing, not_judged)


@dataclass
class _Walk:
    """The traversal of a future run's steps, task by task."""

    plan: Plan
    durations: Durations
    tasks: list[TaskToCome] = field(default_factory=list)
    ladders: dict[tuple[int, int, int], Ladder] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)  # keeps the objects alive whose ids are keys

    def iterations(self, planned: PlannedTask, known: int | None) -> int | None:
        """The number of iterations of a loop."""
        return self.durations.iterations(planned.path, planned.spec_path, known)

    def weigh(self, planned: PlannedTask) -> Weight:
        """The weight of a task."""
        task = self._task(planned, ())
        offer = task.on_demand or next(iter(task.spot), None)
        return Weight(offer.price * task.work if offer is not None else 0.0, task.work)

    def scope(self, steps: Sequence[Step], before: tuple[int, ...]) -> tuple[int, ...]:
        """Add the tasks of a scope that starts after the tasks ``before``; return its last tasks."""
        ends: dict[str, tuple[int, ...]] = {}
        followed: set[str] = set()
        for step in steps:
            name, after = step.planned.spec.name, step.planned.spec.after
            followed.update(after)
            inputs = tuple(dict.fromkeys(index for each in after for index in ends.get(each, ()))) or before
            ends[name] = self._step(step, inputs) if step.is_planned else inputs
        last = [index for name, indexes in ends.items() if name not in followed for index in indexes]
        return tuple(dict.fromkeys(last)) or before

    def _step(self, step: Step, before: tuple[int, ...]) -> tuple[int, ...]:
        loop = step.planned.spec.loop
        if step.planned.spec.dag is None:
            return (self._leaf(step.planned, before),)
        if loop is None:
            return self.scope(step.inside[0], before)
        ends: list[tuple[int, ...]] = []
        for index, inside in enumerate(step.inside):
            earlier = ends[index - loop.limit] if 0 < loop.limit <= index else ()
            ends.append(self.scope(inside, (*before, *earlier)))
        return tuple(dict.fromkeys(index for each in ends for index in each)) or before

    def _leaf(self, planned: PlannedTask, before: tuple[int, ...]) -> int:
        if len(self.tasks) >= _MOST:
            raise InputError(f"the run has more than {_MOST} tasks: plan a part of it, or give loops fewer items")
        self.tasks.append(self._task(planned, before))
        return len(self.tasks) - 1

    def _task(self, planned: PlannedTask, before: tuple[int, ...]) -> TaskToCome:
        if isinstance(planned.spec.executor, RunsNowhere):
            return TaskToCome(
                planned.path, planned.spec_path, before, 0.0, "runs on no node", False, 0.0, (), None, planned.policy
            )
        return self._on_nodes(planned, before)

    def _on_nodes(self, planned: PlannedTask, before: tuple[int, ...]) -> TaskToCome:
        policy, ladder = self._ladder(planned)
        known = self.durations.of(planned.path, planned.spec_path, policy.expected_duration)
        offers = [self._offer(name, planned.work) for rung in ladder.rungs for name in rung.pools]
        spot = tuple(offer for pool, offer in offers if pool.is_spot)
        on_demand = next((offer for pool, offer in offers if not pool.is_spot), None)
        saves = known.saves or policy.checkpoint is not None
        return TaskToCome(
            planned.path,
            planned.spec_path,
            before,
            known.work,
            known.source,
            saves,
            known.save,
            spot,
            on_demand,
            policy,
            "" if on_demand is not None or not spot else self._why_no_on_demand(policy, ladder),
        )

    def _why_no_on_demand(self, policy: Policy, ladder: Ladder) -> str:
        """Why a task can only run on spot, as the end of a sentence."""
        if policy.spot is Spot.REQUIRE:
            return "must run on spot (spot: require)"
        pools = [name for name, pool in self.plan.config.pools.items() if not pool.is_spot]
        if not pools:
            return "has no on-demand pool, because none is configured"
        if policy.ladder is not None and not {*pools} & {*policy.ladder}:
            return "has no on-demand pool in its ladder"
        reasons = (f"{name}: {ladder.refusals[name]}" for name in pools if name in ladder.refusals)
        return f"fits no on-demand pool ({'; '.join(reasons)})"

    def _ladder(self, planned: PlannedTask) -> tuple[Policy, Ladder]:
        """The policy and the ladder of a task; without ``spot``, it is planned with ``spot: prefer``."""
        policy, ladder = planned.policy, planned.ladder
        if policy.spot is not None and ladder.rungs:
            return policy, ladder
        key = (id(policy), id(planned.work), id(ladder))
        if key not in self.ladders:
            self.kept += [policy, planned.work, ladder]
            preferring = replace(policy, spot=policy.spot or Spot.PREFER)
            self.ladders[key] = build(planned.work, preferring, self.plan.config.pools)
            if not self.ladders[key].rungs:  # its requirements are known only during the run
                self.ladders[key] = build(PodRequirements(), preferring, self.plan.config.pools)
        return policy, self.ladders[key]

    def _offer(self, name: str, work: PodRequirements) -> tuple[Pool, Offer]:
        pool = self.plan.config.pools[name]
        price = pool.price if pool.price is not None else _RELATIVE[pool.is_spot]
        share = float(share_of(work.requests, pool.node))
        return pool, Offer(name, float(price) * share, pool.boot, share)


def _about(unfolding: Unfolding, walk: _Walk) -> Iterator[str]:
    """Notes for the user on guesses and assumptions about the tasks."""
    if unfolding.missing:
        names = list(unfolding.missing)
        yield (
            f"loops or conditions read arguments without a value ({some(names)}): 1 iteration and the dearest branch are "
            f"planned; give them, such as --arg {names[0]}=VALUE"
        )
    guessed = list(_seen(unfolding, unfolding.guessed))
    if guessed:
        yield (
            f"only the run will know the items of {some(guessed)}: 1 iteration each is planned; give the number with "
            f"--durations: an earlier run, or a file (tasks: {{{guessed[0]}: {{iterations: 12}}}})"
        )
    if unfolding.untried:
        yield f"conditions read too many values to try, so that every branch is planned: {some(list(unfolding.untried))}"
    left_out = _with_conditions(unfolding.decided, _seen(unfolding, unfolding.decided), holds=False)
    if left_out:
        yield f"not planned, because the condition does not hold: {some(left_out)}"
    chosen = list(_seen(unfolding, unfolding.chosen))
    taken, others = (_with_conditions(unfolding.chosen, chosen, holds=holds) for holds in (True, False))
    if taken or others:
        ways = [f"{word} {some(paths)}" for word, paths in (("with", taken), ("without", others)) if paths]
        yield f"only the run will know which conditions hold; the dearest way is planned: {', '.join(ways)}"
    preferring = list(dict.fromkeys(task.spec_path for task in walk.tasks if task.policy.spot is None and task.work))
    if preferring:
        yield f"tasks without a spot policy are planned with spot: prefer ({some(preferring)})"


def _failing(unfolding: Unfolding) -> Iterator[str]:
    """The tasks at which the run will fail, with the reason."""
    for path in _seen(unfolding, unfolding.failing):
        yield f"the run will fail at {path}, and is planned as if it went on: {unfolding.failing[path]}"


def _seen(unfolding: Unfolding, paths: Iterable[str]) -> Iterator[str]:
    """The paths that are not in an omitted branch."""
    gone = {path for path, (_, planned) in unfolding.chosen.items() if not planned}
    return (path for path in paths if gone.isdisjoint(_groups_around(path)))


def _with_conditions(told: Mapping[str, tuple[Condition, bool]], paths: Iterable[str], *, holds: bool) -> list[str]:
    """The tasks whose conditions hold, or do not, with their conditions; outer ones first."""
    outer_first = sorted(paths, key=lambda path: path.count("/"))
    return [f"{path} ({shorten(str(told[path][0]), _SHOWN)})" for path in outer_first if told[path][1] is holds]


def _groups_around(path: str) -> Iterator[str]:
    """The paths of the tasks that contain a task."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _relative(task: TaskToCome) -> TaskToCome:
    """The task with prices relative to an hour on on-demand, if some pools have no price."""
    spot = tuple(offer._replace(price=_RELATIVE[True]) for offer in task.spot)
    on_demand = None if task.on_demand is None else task.on_demand._replace(price=_RELATIVE[False])
    return task._replace(spot=spot, on_demand=on_demand)


def some(names: Sequence[str]) -> str:
    """The first three of these names, for a sentence."""
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


_LEAST = 0.05  # the share of the work that the last attempt must have done to extrapolate from it


def measured(state: RunState, run: str) -> Durations:
    """The durations of a run's succeeded tasks; for a task in a loop also the mean over its iterations.

    Raises :class:`InputError` for a run in which no task succeeded.
    """
    works: dict[str, list[float]] = {}
    own: list[tuple[str, Given]] = []
    saving: set[str] = set()
    for task in state.tasks.values():
        work = _work(task)
        if work is None:
            continue
        saves = any(attempt.first_progress for attempt in task.attempts[1:])
        works.setdefault(task.plan.spec_path or task.path, []).append(work)
        saving.update({task.plan.spec_path or task.path} if saves else ())
        own.append((task.path, Given(work)))
    if not works:
        raise InputError(f"run {run}: no task of it ran and succeeded, so it has no durations to plan with")
    means = [(path, Given(sum(each) / len(each), saves=path in saving)) for path, each in works.items()]
    counts: dict[str, list[int]] = {}
    for task in state.tasks.values():
        if task.loop is not None:
            counts.setdefault(task.plan.spec_path or task.path, []).append(len(task.loop.items))
            own.append((task.path, Given(iterations=len(task.loop.items))))
    usual = [(path, Given(iterations=round(sum(each) / len(each)))) for path, each in counts.items()]
    return Durations(f"measured in {run}", list(chain(means, usual, own)), tuple(_remarks(state, run)))


def measured_last(pipeline: str, newest_first: Iterable[RunReader]) -> Durations:
    """The durations measured by the last run of a pipeline; empty without a run."""
    for reader in newest_first:
        if reader.state.meta.pipeline == pipeline and any(map(_work, reader.state.tasks.values())):
            name = reader.folder.name
            found = measured(reader.state, name)
            said = (
                f"durations come from {name}, the last run of {pipeline} in this state folder; --durations names others"
            )
            return replace(found, remarks=(said, *found.remarks), is_asked_for=False)
    return Durations()


def _work(task: TaskState) -> float | None:
    """The seconds of work of a task that succeeded on a node; ``None`` for others."""
    if task.status is not TaskStatus.SUCCEEDED or task.cached_from is not None or not task.attempts:
        return None
    last = task.last
    seconds = _seconds(last)
    if last.cause is not Cause.SUCCEEDED or seconds is None or seconds <= 0:
        return None
    began = last.first_progress if len(task.attempts) > 1 else None
    return seconds / max(_LEAST, 1.0 - (began or 0.0))


def _seconds(attempt: AttemptState) -> float | None:
    """The time of an attempt on its node, by its exit record if it has one."""
    if attempt.runs_since is None or attempt.ended_at is None:
        return None
    recorded = attempt.ended.ended_at if attempt.ended is not None else None
    return (attempt.ended_at if recorded is None else min(recorded, attempt.ended_at)) - attempt.runs_since


def _remarks(state: RunState, run: str) -> Iterator[str]:
    cached = sum(task.cached_from is not None for task in state.tasks.values())
    if cached:
        yield f"{cached} tasks of {run} used earlier results, so it did not measure them"
