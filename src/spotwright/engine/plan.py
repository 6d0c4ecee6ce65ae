"""The plan of a run: a task graph on pools, with the policy, the requirements and the ladder of every task.

The state of a run follows from its journal and its plan. So a run stores the source of its graph and its configuration beside
the journal, and does not read the user's files again. A run resumed with changed code has a second version of its plan; earlier
events are folded with the earlier version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spotwright.config import Config
from spotwright.errors import ConfigError, InputError, PipelineError
from spotwright.graph import Dag, Loop, RunsNowhere, TaskGraph, TaskSpec
from spotwright.model.policy import (
    EXIT_HANDLER,
    Layer,
    Policy,
    Spot,
    inherit_retry,
    lost_deadline,
    resolve_layers,
    without_deadlines,
)
from spotwright.model.pools import DEFAULT_CPU, Capacity, Pool
from spotwright.scheduling.ladder import Ladder, PodRequirements, build

__all__ = ["Plan", "PlannedTask", "Scope"]

_NO_WORK, _NO_LADDER = PodRequirements(), Ladder(())


class Scope(NamedTuple):
    """One unfolding of a DAG: the root, a DAG task, or one iteration of a loop.

    ``path`` is its task's, empty for the root. Iterations count from zero, and their number is appended to the names of their
    tasks: ``loop/train-3``. ``retry`` is the layer that its tasks inherit, ``work_after`` the seconds of stated work after the
    scope, ``steps_after`` the number of tasks with it, and ``spec_path`` its path in the graph, without iterations.
    """

    dag: Dag
    path: str = ""
    iteration: int | None = None
    retry: Layer | None = None
    work_after: float = 0.0
    spec_path: str = ""
    steps_after: float = 0.0

    def child(self, name: str) -> str:
        """The path of one of its tasks."""
        path = f"{self.path}/{name}" if self.path else name
        return path if self.iteration is None else f"{path}-{self.iteration}"

    def child_spec_path(self, name: str) -> str:
        """The path of one of its tasks in the graph."""
        return f"{self.spec_path}/{name}" if self.spec_path else name


class PlannedTask(NamedTuple):
    """One task of the run with its policy, its requirements and its ladder."""

    path: str
    spec: TaskSpec
    policy: Policy
    work: PodRequirements
    ladder: Ladder
    downstream: float = 0.0  # seconds of stated work on the longest path after it, for its deadline
    spec_path: str = ""  # its path in the graph, without iteration numbers
    steps_after: float = 0.0  # the most tasks with stated work on a path after it: each may need a launch


@dataclass(slots=True)
class Plan:
    """A graph on pools under a policy. ``flags`` is the strongest layer: the command line's.

    ``found`` are the names of undeclared pools that were read from nodes: they have a name and a capacity for the report, and
    are rungs only for work that fits no other pool, because such work is not placed. ``keeps_deadlines``: false on a cluster,
    where a deadline has no effect.
    """

    graph: TaskGraph
    config: Config
    flags: Layer | None = None
    found: frozenset[str] = frozenset()
    keeps_deadlines: bool = True
    _complete: dict[str, PlannedTask] = field(default_factory=dict)
    _unfolded: dict[str, list[PlannedTask]] = field(default_factory=dict)
    _inherited: dict[tuple[int, int], tuple[Layer, list[TaskSpec]]] = field(default_factory=dict)
    _after: dict[tuple[str, bool], Mapping[str, float]] = field(default_factory=dict)
    _policies: dict[tuple[int, ...], tuple[Policy, list[Layer]]] = field(default_factory=dict)
    _ladders: dict[tuple[int, int, int], tuple[PodRequirements, Ladder]] = field(default_factory=dict)

    def with_pool(self, name: str, *, is_spot: bool) -> Plan:
        """The plan with one more pool that was read from a node."""
        pool = Pool(name, Capacity.SPOT if is_spot else Capacity.ON_DEMAND)
        config = replace(self.config, pools={**self.config.pools, name: pool})
        return replace(self._bare, config=config, found=self.found | {name})

    def with_template(self, data: Mapping[str, Any]) -> Plan:
        """The plan with one more task, or with more details of a task. Raises the errors of :meth:`TaskGraph.with_template`."""
        return replace(self._bare, graph=self.graph.with_template(data, self.config.pools))

    @property
    def _bare(self) -> Plan:
        """The plan without cached results."""
        return Plan(self.graph, self.config, self.flags, self.found, self.keeps_deadlines)

    @property
    def root(self) -> Scope:
        """The scope of the root DAG."""
        return Scope(self.graph.root)

    def inside(self, planned: PlannedTask, iteration: int | None = None, items: int = 0) -> Scope:
        """The scope of a DAG task, or of one iteration of a loop over ``items`` items.

        The work after an iteration is the work after the loop, plus that of the iterations that a limit makes wait for it.
        """
        spec = planned.spec
        limit = spec.loop.limit if spec.loop is not None else 0
        later = (items - 1 - iteration) // limit if items and iteration is not None and limit else 0
        work, steps = (later * self._work_inside(planned), later * self._steps_inside(planned)) if later else (0.0, 0.0)
        return Scope(
            self.graph.dags[str(spec.dag)],
            planned.path,
            iteration,
            spec.retry,
            planned.downstream + work,
            planned.spec_path,
            planned.steps_after + steps,
        )

    def unfold(self, scope: Scope | str = "") -> list[PlannedTask]:
        """The tasks of a scope in topological order. The path of a loop means its first iteration.

        Raises :class:`PipelineError` for a task that cannot run on any pool.
        """
        if isinstance(scope, str):
            scope = self._scope_of(scope)
        if scope.iteration is not None or scope.path != scope.spec_path:
            return self._tasks(scope)  # not cached: a loop may have any number of iterations
        if scope.path not in self._unfolded:
            self._unfolded[scope.path] = self._tasks(scope)
        return self._unfolded[scope.path]

    def check(self) -> tuple[str, ...]:
        """Plan every task of every DAG once, so that a task without a pool is refused before the run starts.

        Returns notes for the user: a missing fallback, settings that have no effect on one machine.
        """
        notes: dict[str, list[str]] = {}
        without_requests: list[str] = []
        for planned in self.every_task(self.root):
            for note in filter(None, (planned.ladder.note, planned.ladder.unstated)):
                notes.setdefault(note, []).append(planned.spec_path)
            if planned.ladder.rungs and not planned.spec.deferred and not any(planned.work.requests.values()):
                without_requests.append(planned.spec_path)
        lines = [f"{note} (task {_some(paths)})" for note, paths in notes.items()]
        if without_requests and (len(without_requests) > 1 or self._has_loop):  # a single task does not share its node
            lines.append(_default_share_note(without_requests))
        if self.graph.ignored:
            lines.append(
                f"settings that have no effect on one machine and are ignored: {', '.join(self.graph.ignored)}"
            )
        return (*lines, *self.graph.notes)

    def read_deferred(self, planned: PlannedTask, values: Mapping[str, Any]) -> PlannedTask:
        """The task with its deferred settings, read from the values of its inputs. Raises :class:`PipelineError`."""
        if not planned.spec.deferred:
            return planned
        complete = self._complete.get(planned.path)
        if complete is None:
            spec = self.graph.dialect.read_deferred(planned.spec, values)
            complete = self._plan(planned.path, planned.spec_path, spec)
            complete = complete._replace(downstream=planned.downstream, steps_after=planned.steps_after)
            self._complete[planned.path] = complete
        return complete

    def instance(self, template: str, path: str) -> PlannedTask:
        """A workload's task made from a task of the root DAG. Raises :class:`KeyError` for an unknown template.

        Its policy depends on its own path and the template's.
        """
        return self._plan(path, template, self.graph.root.tasks[template])

    @property
    def described(self) -> Mapping[str, Pool]:
        """The declared pools."""
        pools = self.config.pools
        return {name: pool for name, pool in pools.items() if name not in self.found} if self.found else pools

    @property
    def _has_loop(self) -> bool:
        return any(spec.loop is not None for dag in self.graph.dags.values() for spec in dag.tasks.values())

    def _scope_of(self, path_of_task: str) -> Scope:
        scope = self.root
        for name in path_of_task.split("/") if path_of_task else ():
            path = f"{scope.path}/{name}" if scope.path else name
            scope = self._first_inside(next(task for task in self.unfold(scope) if task.path == path))
        return scope

    def _first_inside(self, planned: PlannedTask) -> Scope:
        return self.inside(planned, None if planned.spec.loop is None else 0)

    def every_task(self, scope: Scope | None = None) -> Iterator[PlannedTask]:
        """Every task once; for a loop, the first iteration's tasks."""
        for planned in self.unfold(self.root if scope is None else scope):
            yield planned
            if planned.spec.dag is not None:
                yield from self.every_task(self._first_inside(planned))

    def _tasks(self, scope: Scope) -> list[PlannedTask]:
        planned = self._bare_tasks(scope)
        after, steps = self._work_after(scope, planned), self._steps_after(scope, planned)
        if not scope.work_after and not any(after.values()):
            return planned
        return [
            each._replace(
                downstream=after.get(each.spec.name, 0.0) + scope.work_after,
                steps_after=steps.get(each.spec.name, 0.0) + scope.steps_after,
            )
            for each in planned
        ]

    def _bare_tasks(self, scope: Scope) -> list[PlannedTask]:
        return [self._plan(scope.child(s.name), scope.child_spec_path(s.name), s) for s in self._specs(scope)]

    def _specs(self, scope: Scope) -> Iterable[TaskSpec]:
        """The tasks of a scope, with their inherited retry settings; the same objects for every iteration."""
        if scope.retry is None:
            return scope.dag.tasks.values()
        key = (id(scope.dag), id(scope.retry))
        if key not in self._inherited:
            specs = [replace(s, retry=inherit_retry(s.retry, scope.retry)) for s in scope.dag.tasks.values()]
            self._inherited[key] = scope.retry, specs  # keeps alive the objects of the key
        return self._inherited[key][1]

    def _work_after(self, scope: Scope, tasks: list[PlannedTask]) -> Mapping[str, float]:
        """The longest stated work after each task of a scope, by name; all iterations share the first one's."""
        if (scope.spec_path, False) not in self._after:
            self._after[scope.spec_path, False] = _after_each(tasks, self.stated_work)
        return self._after[scope.spec_path, False]

    def _steps_after(self, scope: Scope, tasks: list[PlannedTask]) -> Mapping[str, float]:
        """The most tasks with stated work on a path after each task of a scope, by name."""
        if (scope.spec_path, True) not in self._after:
            self._after[scope.spec_path, True] = _after_each(tasks, self._steps)
        return self._after[scope.spec_path, True]

    def _steps(self, planned: PlannedTask) -> float:
        """The tasks with stated work in a task: itself, or those on the longest path through its DAG."""
        if planned.spec.dag is None:
            return 1.0 if planned.policy.expected_duration else 0.0
        return _rounds(planned.spec.loop) * self._steps_inside(planned)

    def stated_work(self, planned: PlannedTask) -> float:
        """The stated work of a task in seconds; of a DAG the longest path through it.

        Iterations of a loop run in parallel. Under a limit they follow each other if the graph has the items; otherwise the
        work of a loop is one iteration's.
        """
        if planned.spec.dag is None:
            return planned.policy.expected_duration or 0.0
        return _rounds(planned.spec.loop) * self._work_inside(planned)

    def _steps_inside(self, planned: PlannedTask) -> float:
        """The most tasks with stated work on a path through a DAG, or through one iteration of a loop."""
        scope = self._first_inside(planned)
        inside = self._bare_tasks(scope)
        after = self._steps_after(scope, inside)
        return max((self._steps(each) + after.get(each.spec.name, 0.0) for each in inside), default=0.0)

    def _work_inside(self, planned: PlannedTask) -> float:
        """The longest stated work on a path through a DAG, or through one iteration of a loop."""
        scope = self._first_inside(planned)
        inside = self._bare_tasks(scope)
        after = self._work_after(scope, inside)
        return max((self.stated_work(each) + after.get(each.spec.name, 0.0) for each in inside), default=0.0)

    def _plan(self, path: str, spec_path: str, spec: TaskSpec) -> PlannedTask:
        policy = self._policy(path, spec_path, spec)
        if spec.dag is not None or isinstance(spec.executor, RunsNowhere):
            return PlannedTask(path, spec, policy, _NO_WORK, _NO_LADDER, spec_path=spec_path)
        work, ladder = self._ladder(spec, policy)
        if not ladder.rungs and not spec.deferred:
            error = PipelineError(_cannot_run(path, policy, ladder, self.config))
            error.task = spec_path
            raise error
        return PlannedTask(path, spec, policy, work, ladder, spec_path=spec_path)

    def _ladder(self, spec: TaskSpec, policy: Policy) -> tuple[PodRequirements, Ladder]:
        """The requirements and the ladder of a task. Equal tasks share their requests and constraints, and so their ladder."""
        key = (id(policy), id(spec.requests), id(spec.constraints))
        if key not in self._ladders:
            work = PodRequirements(
                spec.requests, spec.constraints
            )  # keeps alive the objects of the key; _policies keeps the policy
            described = build(work, policy, self.described)
            self._ladders[key] = work, described if described.rungs else build(work, policy, self.config.pools)
        return self._ladders[key]

    def _policy(self, path: str, spec_path: str, spec: TaskSpec) -> Policy:
        """The policy of a task, shared by tasks with the same layers."""
        layers = self._layers(path, spec_path, spec)
        key = tuple(map(id, layers))
        if key not in self._policies:
            self._policies[key] = self._resolved(path, spec, layers), layers  # keeps alive the objects of the key
        return self._policies[key][0]

    def _layers(self, path: str, spec_path: str, spec: TaskSpec) -> list[Layer]:
        """Precedence of the design: flags > policy.tasks > the graph > its source's own settings > policy.default > built in."""
        default, tasks = self.config.layers_for(*dict.fromkeys((path, spec_path)))
        layers = [*default]
        if self._is_of_exit(spec_path) and any(layer.values.get("spot") for layer in default) and self._has_on_demand:
            layers.append(EXIT_HANDLER)
        layers += [layer for layer in (spec.retry, self.graph.policy, spec.policy) if layer is not None]
        layers += tasks
        if self.config.is_built_in and spec_path in self.graph.placed:
            layers.append(self.graph.placed[spec_path])
        if self.flags is not None:
            layers.append(self.flags)
        return layers

    @property
    def _has_on_demand(self) -> bool:
        return any(not pool.is_spot for pool in self.config.pools.values())

    def _is_of_exit(self, spec_path: str) -> bool:
        """Whether a task is or is inside an exit handler, by its path in the graph."""
        dag = self.graph.root
        for name in spec_path.split("/"):
            spec = dag.tasks.get(name)
            if spec is None or spec.after_all:
                return spec is not None
            if spec.dag is not None:
                dag = self.graph.dags[spec.dag]
        return False

    def lost_deadline(self, planned: PlannedTask) -> str:
        """The message about a task's deadline that has no effect; empty without one."""
        if self.keeps_deadlines:
            return ""
        return lost_deadline(self._layers(planned.path, planned.spec_path, planned.spec))

    def _resolved(self, path: str, spec: TaskSpec, layers: list[Layer]) -> Policy:
        if not self.keeps_deadlines:
            layers = without_deadlines(layers)
        policy, problems = resolve_layers(layers, spec.retry)
        if problems and EXIT_HANDLER not in layers:
            raise ConfigError(f"policy of task {path}: {problems[0]}")
        for name in policy.ladder or ():
            if name not in self.config.pools:
                raise InputError(
                    f"policy of task {path}: ladder names the pool {name!r}, which is not configured; "
                    f"the pools are {', '.join(self.config.pools)}"
                )
        return policy


def _rounds(loop: Loop | None) -> int:
    """The least number of sequential iterations of a loop; 1 for a DAG without a loop."""
    if loop is None or not loop.limit or loop.items:
        return 1
    return -(-len(loop.raw) // loop.limit)


def _after_each(tasks: list[PlannedTask], work: Callable[[PlannedTask], float]) -> dict[str, float]:
    """The longest work, or the most steps, after each task of one DAG, by name."""
    after: dict[str, float] = {}
    for planned in reversed(tasks):
        tail = after.get(planned.spec.name, 0.0) + work(planned)
        for name in planned.spec.after:
            after[name] = max(after.get(name, 0.0), tail)
    return after


def _cannot_run(path: str, policy: Policy, ladder: Ladder, config: Config) -> str:
    reasons = "; ".join(f"{pool}: {why}" for pool, why in ladder.refusals.items())
    if policy.spot is Spot.REQUIRE and not any(pool.is_spot for pool in config.pools.values()):
        return f"task {path} requires spot ({policy.sources['spot']}), and no spot pool is configured: add one or say prefer"
    return f"task {path} fits no pool: {reasons}{ladder.remedy(path)}"


def _default_share_note(paths: list[str]) -> str:
    return (
        f"tasks without resource requests take {DEFAULT_CPU / 1000:g} cpu each of a simulated node ({_some(paths)}); "
        "set_cpu_request and set_memory_request in the pipeline change that"
    )


def _some(paths: list[str]) -> str:
    return ", ".join(paths) if len(paths) <= 3 else f"{', '.join(paths[:3])} and {len(paths) - 3} more"
