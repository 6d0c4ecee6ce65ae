"""What a run is made of before anything happens: the pipeline's graph, the pools, and the policy of every task.

The journal holds what happened; the plan holds what could. Both together are enough to fold a state and to decide, so a run
stores its compiled pipeline and its configuration beside the journal and never reads the user's files again while it runs.
A run that is resumed with mended code has a second version of its plan; earlier events are folded with the earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotwright.config import Config
from spotwright.errors import ConfigError, InputError, PipelineError
from spotwright.model.kfp_settings import inherit_retry
from spotwright.model.policy import Layer, Policy, Spot, meant, resolve
from spotwright.model.policy_values import check
from spotwright.pipelines.graph import Dag, Pipeline, TaskSpec
from spotwright.scheduling.ladder import Ladder, Work, build

__all__ = ["Plan", "Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """One task of the run with everything that is known of it before it starts."""

    path: str
    spec: TaskSpec
    policy: Policy
    work: Work
    ladder: Ladder
    downstream: float = 0.0  # seconds of stated work on the longest path after it: what a deadline must leave room for


@dataclass(slots=True)
class Plan:
    """A pipeline on pools under a policy. ``flags`` is the strongest layer: what the command line said."""

    pipeline: Pipeline
    config: Config
    flags: Layer | None = None
    _settled: dict[str, Planned] = field(default_factory=dict)
    _planned: dict[str, list[Planned]] = field(default_factory=dict)
    _unfolded: dict[str, list[Planned]] = field(default_factory=dict)
    _policies: dict[tuple[int, ...], tuple[Policy, list[Layer]]] = field(default_factory=dict)
    _ladders: dict[tuple[int, int, int], tuple[Work, Ladder]] = field(default_factory=dict)

    def unfold(self, scope: str) -> list[Planned]:
        """The tasks of a pipeline by its path (``""``: the root), upstream before downstream, each with its policy.

        Raises :class:`PipelineError` for a task that can run on no pool.
        """
        if scope not in self._unfolded:
            above, _, _ = scope.rpartition("/")
            beyond = next((p.downstream for p in self.unfold(above) if p.path == scope), 0.0) if scope else 0.0
            self._unfolded[scope] = self._with_downstream(self._tasks(scope), beyond)
        return self._unfolded[scope]

    def dag(self, scope: str) -> Dag:
        """The DAG that a path names; the root for ``""``."""
        return self._dag(scope)[0]

    def check(self) -> tuple[str, ...]:
        """Plan every task of every pipeline once, so that what cannot run is refused before anything does.

        Returns what is to be said to the user once (a fallback that is missing, settings that mean nothing here).
        """
        notes: dict[str, list[str]] = {}
        for planned in self._walk(""):
            if planned.ladder.note:
                notes.setdefault(planned.ladder.note, []).append(planned.path)
        said = [f"{note} (task {_some(paths)})" for note, paths in notes.items()]
        if self.pipeline.ignored:
            said.append(f"settings without a meaning on one machine, left out: {', '.join(self.pipeline.ignored)}")
        return tuple(said)

    def settle(self, planned: Planned, values: Mapping[str, Any]) -> Planned:
        """The same task once its inputs are known, where its resources or placement depend on them."""
        if not planned.spec.deferred:
            return planned
        known = self._settled.get(planned.path)
        if known is None:
            from spotwright.pipelines.settings import settled

            known = self._settled[planned.path] = self._plan(planned.path, settled(planned.spec, values))
        return known

    def _dag(self, scope: str) -> tuple[Dag, Layer | None]:
        """The DAG of a scope, with the ``set_retry`` that its tasks inherit from the nearest pipeline task above them."""
        dag, retry = self.pipeline.root, None
        for name in scope.split("/") if scope else ():
            task = dag.tasks[name]
            retry = task.retry or retry
            dag = self.pipeline.dags[str(task.dag)]
        return dag, retry

    def _walk(self, scope: str) -> list[Planned]:
        found: list[Planned] = []
        for planned in self.unfold(scope):
            found.append(planned)
            if planned.spec.dag is not None:
                found.extend(self._walk(planned.path))
        return found

    def _tasks(self, scope: str) -> list[Planned]:
        if scope not in self._planned:
            dag, retry = self._dag(scope)
            specs = [
                s if retry is None else replace(s, retry=inherit_retry(s.retry, retry)) for s in dag.tasks.values()
            ]
            self._planned[scope] = [self._plan(f"{scope}/{s.name}" if scope else s.name, s) for s in specs]
        return self._planned[scope]

    def _with_downstream(self, tasks: list[Planned], beyond: float) -> list[Planned]:
        """Fill in the longest stated work after each task, ``beyond`` what comes after all of them; last task first."""
        after = _after_each(tasks, self._stated_work)
        if not beyond and not any(after.values()):
            return tasks
        return [replace(planned, downstream=after.get(planned.spec.name, 0.0) + beyond) for planned in tasks]

    def _stated_work(self, planned: Planned) -> float:
        """How long a task takes as far as was said; of a pipeline the longest path through it."""
        if planned.spec.dag is None:
            return planned.policy.work or 0.0
        inside = self._tasks(planned.path)
        after = _after_each(inside, self._stated_work)
        return max((self._stated_work(each) + after.get(each.spec.name, 0.0) for each in inside), default=0.0)

    def _plan(self, path: str, spec: TaskSpec) -> Planned:
        policy = self._policy(path, spec)
        if spec.dag is not None:
            return Planned(path, spec, policy, Work(spec.requests, spec.constraints), Ladder(()))
        work, ladder = self._ladder(spec, policy)
        if not ladder.rungs and not spec.deferred:
            raise PipelineError(_cannot_run(path, policy, ladder, self.config))
        return Planned(path, spec, policy, work, ladder)

    def _ladder(self, spec: TaskSpec, policy: Policy) -> tuple[Work, Ladder]:
        """The ladder of a task; equal tasks share what was read of them, and so their ladder."""
        key = (id(policy), id(spec.requests), id(spec.constraints))
        if key not in self._ladders:
            work = Work(spec.requests, spec.constraints)  # keeps alive what the key names; _policies keeps the policy
            self._ladders[key] = work, build(work, policy, self.config.pools)
        return self._ladders[key]

    def _policy(self, path: str, spec: TaskSpec) -> Policy:
        """The policy of a task; tasks with the same layers share it."""
        layers = self._layers(path, spec)
        key = tuple(map(id, layers))
        if key not in self._policies:
            self._policies[key] = self._resolved(path, spec, layers), layers  # they stay alive with the key
        return self._policies[key][0]

    def _layers(self, path: str, spec: TaskSpec) -> list[Layer]:
        """Precedence of the design: flags > policy.tasks > the pipeline > KFP's own settings > policy.default > built in."""
        default, tasks = self.config.layers_for(path)
        layers = [*default]
        layers += [layer for layer in (spec.retry, self.pipeline.policy, spec.policy) if layer is not None]
        layers += tasks
        if self.config.is_built_in and path in self.pipeline.placed:
            layers.append(self.pipeline.placed[path])
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
