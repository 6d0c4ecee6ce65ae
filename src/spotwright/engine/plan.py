"""What a run is made of before anything happens: the pipeline's graph, the pools, and the policy of every task.

The journal holds what happened; the plan holds what could. Both together are enough to fold a state and to decide, so a run
stores its compiled pipeline and its configuration beside the journal and never reads the user's files again while it runs.
A run that is resumed with mended code has a second version of its plan; earlier events are folded with the earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotwright.config import Config
from spotwright.errors import ConfigError, InputError, PipelineError
from spotwright.model.kfp_settings import inherit_retry
from spotwright.model.policy import Layer, Policy, Spot, meant, resolve
from spotwright.model.policy_values import check
from spotwright.pipelines.spec import RUNS_NOWHERE, Dag, Pipeline, TaskSpec
from spotwright.scheduling.ladder import Ladder, Work, build

__all__ = ["Plan", "Planned", "Scope"]

_NO_WORK, _NO_LADDER = Work(), Ladder(())


@dataclass(frozen=True, slots=True)
class Scope:
    """A pipeline in the place where it unfolds: the root, a task that is a pipeline, or one iteration of a loop.

    ``path`` is that of its task, empty for the root. Iterations count from zero, and their number stands behind the names of
    their tasks: ``loop/train-3``. ``retry`` is what its tasks inherit, ``beyond`` the seconds of stated work after it, and
    ``written`` its path in the compiled pipeline, which knows no iterations.
    """

    dag: Dag
    path: str = ""
    iteration: int | None = None
    retry: Layer | None = None
    beyond: float = 0.0
    written: str = ""

    def child(self, name: str) -> str:
        """The path of one of its tasks."""
        path = f"{self.path}/{name}" if self.path else name
        return path if self.iteration is None else f"{path}-{self.iteration}"

    def child_written(self, name: str) -> str:
        """The path of one of its tasks in the compiled pipeline."""
        return f"{self.written}/{name}" if self.written else name


@dataclass(frozen=True, slots=True)
class Planned:
    """One task of the run with everything that is known of it before it starts."""

    path: str
    spec: TaskSpec
    policy: Policy
    work: Work
    ladder: Ladder
    downstream: float = 0.0  # seconds of stated work on the longest path after it: what a deadline must leave room for
    written: str = ""  # its path in the compiled pipeline: without the numbers of iterations


@dataclass(slots=True)
class Plan:
    """A pipeline on pools under a policy. ``flags`` is the strongest layer: what the command line said."""

    pipeline: Pipeline
    config: Config
    flags: Layer | None = None
    _settled: dict[str, Planned] = field(default_factory=dict)
    _unfolded: dict[str, list[Planned]] = field(default_factory=dict)
    _inherited: dict[tuple[int, int], tuple[Layer, list[TaskSpec]]] = field(default_factory=dict)
    _after: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _policies: dict[tuple[int, ...], tuple[Policy, list[Layer]]] = field(default_factory=dict)
    _ladders: dict[tuple[int, int, int], tuple[Work, Ladder]] = field(default_factory=dict)

    @property
    def root(self) -> Scope:
        """The pipeline itself."""
        return Scope(self.pipeline.root)

    def inside(self, planned: Planned, iteration: int | None = None) -> Scope:
        """The pipeline that a task is, or one iteration of the loop that it is."""
        spec = planned.spec
        return Scope(
            self.pipeline.dags[str(spec.dag)], planned.path, iteration, spec.retry, planned.downstream, planned.written
        )

    def unfold(self, scope: Scope | str = "") -> list[Planned]:
        """The tasks of a pipeline, upstream before downstream, each with its policy; of a task's path its first iteration.

        Raises :class:`PipelineError` for a task that can run on no pool.
        """
        if isinstance(scope, str):
            scope = self._scope_of(scope)
        if scope.iteration is not None or scope.path != scope.written:
            return self._tasks(scope)  # there may be any number of iterations: none is kept here
        if scope.path not in self._unfolded:
            self._unfolded[scope.path] = self._tasks(scope)
        return self._unfolded[scope.path]

    def check(self) -> tuple[str, ...]:
        """Plan every task of every pipeline once, so that what cannot run is refused before anything does.

        Returns what is to be said to the user once (a fallback that is missing, settings that mean nothing here).
        """
        notes: dict[str, list[str]] = {}
        for planned in self._walk(self.root):
            if planned.ladder.note:
                notes.setdefault(planned.ladder.note, []).append(planned.written)
        said = [f"{note} (task {_some(paths)})" for note, paths in notes.items()]
        if self.pipeline.ignored:
            said.append(f"settings without a meaning on one machine, left out: {', '.join(self.pipeline.ignored)}")
        return (*said, *self.pipeline.notes)

    def settle(self, planned: Planned, values: Mapping[str, Any]) -> Planned:
        """The same task once its inputs are known, where its resources or placement depend on them."""
        if not planned.spec.deferred:
            return planned
        known = self._settled.get(planned.path)
        if known is None:
            from spotwright.pipelines.settings import settled

            known = self._plan(planned.path, planned.written, settled(planned.spec, values))
            known = self._settled[planned.path] = replace(known, downstream=planned.downstream)
        return known

    def _scope_of(self, path: str) -> Scope:
        scope = self.root
        for name in path.split("/") if path else ():
            here = f"{scope.path}/{name}" if scope.path else name
            scope = self._first_inside(next(each for each in self.unfold(scope) if each.path == here))
        return scope

    def _first_inside(self, planned: Planned) -> Scope:
        return self.inside(planned, None if planned.spec.loop is None else 0)

    def _walk(self, scope: Scope) -> Iterator[Planned]:
        for planned in self.unfold(scope):
            yield planned
            if planned.spec.dag is not None:
                yield from self._walk(self._first_inside(planned))

    def _tasks(self, scope: Scope) -> list[Planned]:
        planned = self._bare_tasks(scope)
        after = self._work_after(scope, planned)
        if not scope.beyond and not any(after.values()):
            return planned
        return [replace(each, downstream=after.get(each.spec.name, 0.0) + scope.beyond) for each in planned]

    def _bare_tasks(self, scope: Scope) -> list[Planned]:
        return [self._plan(scope.child(s.name), scope.child_written(s.name), s) for s in self._specs(scope)]

    def _specs(self, scope: Scope) -> Iterable[TaskSpec]:
        """The tasks of a scope, with what they inherit from it; the same objects for every iteration."""
        if scope.retry is None:
            return scope.dag.tasks.values()
        key = (id(scope.dag), id(scope.retry))
        if key not in self._inherited:
            specs = [replace(s, retry=inherit_retry(s.retry, scope.retry)) for s in scope.dag.tasks.values()]
            self._inherited[key] = scope.retry, specs  # it stays alive with the key
        return self._inherited[key][1]

    def _work_after(self, scope: Scope, tasks: list[Planned]) -> Mapping[str, float]:
        """The longest stated work that follows each task of a pipeline, by name; every iteration has that of the first."""
        if scope.written not in self._after:
            self._after[scope.written] = _after_each(tasks, self._stated_work)
        return self._after[scope.written]

    def _stated_work(self, planned: Planned) -> float:
        """How long a task takes as far as was said; of a pipeline the longest path through it, of a loop one iteration."""
        if planned.spec.dag is None:
            return planned.policy.work or 0.0
        scope = self._first_inside(planned)
        inside = self._bare_tasks(scope)
        after = self._work_after(scope, inside)
        return max((self._stated_work(each) + after.get(each.spec.name, 0.0) for each in inside), default=0.0)

    def _plan(self, path: str, written: str, spec: TaskSpec) -> Planned:
        policy = self._policy(path, written, spec)
        if spec.dag is not None or isinstance(spec.executor, RUNS_NOWHERE):
            return Planned(path, spec, policy, _NO_WORK, _NO_LADDER, written=written)
        work, ladder = self._ladder(spec, policy)
        if not ladder.rungs and not spec.deferred:
            error = PipelineError(_cannot_run(path, policy, ladder, self.config))
            error.task = written
            raise error
        return Planned(path, spec, policy, work, ladder, written=written)

    def _ladder(self, spec: TaskSpec, policy: Policy) -> tuple[Work, Ladder]:
        """The ladder of a task; equal tasks share what was read of them, and so their ladder."""
        key = (id(policy), id(spec.requests), id(spec.constraints))
        if key not in self._ladders:
            work = Work(spec.requests, spec.constraints)  # keeps alive what the key names; _policies keeps the policy
            self._ladders[key] = work, build(work, policy, self.config.pools)
        return self._ladders[key]

    def _policy(self, path: str, written: str, spec: TaskSpec) -> Policy:
        """The policy of a task; tasks with the same layers share it."""
        layers = self._layers(path, written, spec)
        key = tuple(map(id, layers))
        if key not in self._policies:
            self._policies[key] = self._resolved(path, spec, layers), layers  # they stay alive with the key
        return self._policies[key][0]

    def _layers(self, path: str, written: str, spec: TaskSpec) -> list[Layer]:
        """Precedence of the design: flags > policy.tasks > the pipeline > KFP's own settings > policy.default > built in."""
        default, tasks = self.config.layers_for(*dict.fromkeys((path, written)))
        layers = [*default]
        layers += [layer for layer in (spec.retry, self.pipeline.policy, spec.policy) if layer is not None]
        layers += tasks
        if self.config.is_built_in and written in self.pipeline.placed:
            layers.append(self.pipeline.placed[written])
        if self.flags is not None:
            layers.append(self.flags)
        return layers

    def _resolved(self, path: str, spec: TaskSpec, layers: list[Layer]) -> Policy:
        policy = meant(resolve(layers, spec.retry))
        problems = check(policy, layers)
        if problems:
            raise ConfigError(f"policy of task {path}: {problems[0]}")
        for name in policy.ladder or ():
            if name not in self.config.pools:
                raise InputError(
                    f"policy of task {path}: ladder names the pool {name!r}, which is not configured; "
                    f"the pools are {', '.join(self.config.pools)}"
                )
        return policy


def _after_each(tasks: list[Planned], work: Callable[[Planned], float]) -> dict[str, float]:
    """The longest work that follows each task of one pipeline, by name."""
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
    return f"task {path} fits no pool: {reasons}"


def _some(paths: list[str]) -> str:
    return ", ".join(paths) if len(paths) <= 3 else f"{', '.join(paths[:3])} and {len(paths) - 3} more"
