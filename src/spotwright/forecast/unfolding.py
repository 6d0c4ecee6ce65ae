"""Unfolds a plan before its run: the iterations of its loops and the branches of its conditions.

Values flow through the graph as in the run, by the engine's rules: arguments, defaults, constants, items of loops, collected
outputs. Values that only the run will have are unknown. A loop over a known list has its items. Conditions on known values are
decided. Conditions on unknown values in one graph are decided together: of the outcomes that some value gives (an if or its
else, never both), the most expensive is planned. Later decisions stay consistent with it.

A loop with unknown items has as many iterations as in an earlier run or as the user states, else one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any, NamedTuple

from spotwright.engine.events import RunMeta, TaskStatus
from spotwright.engine.io_resolution import Inputs, dag_outputs, inputs_of, is_unknown, items_of, scope_inputs, unknown
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import LoopState, RunState, ScopeState, TaskState
from spotwright.errors import InputError
from spotwright.graph import Condition, DagInput, Loop

__all__ = ["Step", "Unfolding", "Weight"]


class Weight(NamedTuple):
    """A task's weight in a plan: its price on on-demand if it may run there, else on spot, and its work in seconds."""

    cost: float = 0.0
    work: float = 0.0


@dataclass(slots=True)
class Step:
    """One task of a future run.

    ``inside`` has the steps of a DAG task: for a loop one list per iteration, else one. ``is_planned`` is false for a task that
    does not run: its condition does not hold, or it follows a task that does not run. ``kept`` has the implications of an open
    condition, and of the conditions inside its branch, for unknown values if the branch is taken.
    """

    planned: PlannedTask
    is_planned: bool = True
    inside: list[list[Step]] = field(default_factory=list)
    open_condition: _Open | None = None
    kept: _Kept = field(default_factory=dict)


class _Open(NamedTuple):
    """A condition on unknown values: its inputs as read, and the types of the unknown ones."""

    condition: Condition
    inputs: Mapping[str, Any]
    unknowns: Mapping[str, str]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for these unknown values. Raises ``ValueError`` if it cannot be evaluated."""
        return self.condition.holds(
            {name: values.get(value, value) if is_unknown(value) else value for name, value in self.inputs.items()}
        )

    @property
    def constants(self) -> tuple[Any, ...]:
        """The known values that it compares with unknown ones."""
        names, constants = self.condition.operands()
        known = (self.inputs.get(name) for name in names)
        return (*constants, *(value for value in known if not is_unknown(value)))


_Kept = dict[str, dict[str, tuple[_Open, bool]]]
"""By unknown value, the conditions planned to hold or not, by their texts."""

_MOST_VISITED = 100_000  # tasks, including groups and branches not taken
_MOST_TRIED = 50_000  # combinations of values tried together, times conditions
_MOST_TRIED_IN_ALL = 1_000_000  # in one plan
_MOST_KEPT = 50  # conditions kept for one unknown value
_LAST_TEXT = "\U0010ffff"  # sorts after all other texts and equals none


class Unfolding:
    """A plan unfolded under the arguments of a run: ``steps``, and the guesses made for them.

    ``arguments`` are the run's, ``None`` for missing ones. ``iterations`` returns the number of iterations of a loop from its
    path, its path in the graph and the number of its items, if known. ``weigh`` returns the weight of a leaf task, with its
    known values filled in.

    Raises :class:`InputError` for a run of more than 100,000 tasks.
    """

    def __init__(
        self,
        plan: Plan,
        arguments: Mapping[str, Any],
        iterations: Callable[[PlannedTask, int | None], int | None],
        weigh: Callable[[PlannedTask], Weight],
    ) -> None:
        self._plan, self._iterations, self._weigh = plan, iterations, weigh
        specs = plan.graph.root.parameters
        missing = [
            name
            for name, spec in specs.items()
            if arguments.get(name) is None and not spec.optional and not spec.has_default
        ]
        self._missing = {unknown(name): name for name in missing}
        known = {**arguments, **{name: unknown(name) for name in missing}}
        self._state = RunState([plan], meta=RunMeta(arguments=known))
        self._kept: list[_Kept] = [{}]  # one more for each branch being unfolded
        self._weights: dict[str, Weight] = {}
        self._tried = 0
        self.guessed: dict[str, None] = {}
        """The loops planned with one iteration, because only the run will know their number."""
        self.missing: dict[str, None] = {}
        """The missing arguments that decide a number of iterations or a branch."""
        self.failing: dict[str, str] = {}
        """The tasks at which the run would fail, with the reason."""
        self.decided: dict[str, tuple[Condition, bool]] = {}
        """The tasks with conditions decided by known values, and whether they hold in some iteration."""
        self.chosen: dict[str, tuple[Condition, bool]] = {}
        """The tasks with conditions on unknown values, and whether they are planned in some iteration."""
        self.untried: dict[str, None] = {}
        """The tasks with conditions assumed to hold, because there are too many values to try."""
        self.steps = self._scope(ScopeState(plan.root), None)

    def _scope(self, scope: ScopeState, of_owner: Inputs | None) -> list[Step]:
        """The steps of one scope in topological order, with its conditions decided."""
        try:
            outer = scope_inputs(self._state, scope, of_owner)
        except ValueError as error:  # a field that an item does not have
            self.failing.setdefault(scope.place.spec_path, str(error))
            outer = of_owner or Inputs({}, {})
        steps: dict[str, Step] = {}
        tasks: list[TaskState] = []
        for planned in self._plan.unfold(scope.place):
            task = TaskState(planned.path, scope, planned, missing=0, status=TaskStatus.SUCCEEDED)
            self._state.tasks[planned.path] = task
            if len(self._state.tasks) > _MOST_VISITED:
                raise InputError(
                    f"the run has more than {_MOST_VISITED:,} tasks: plan a part of it, or give loops fewer items"
                )
            tasks.append(task)
            steps[planned.spec.name] = self._step(task, outer, steps)
        self._choose(steps)
        for task, step in zip(tasks, steps.values(), strict=True):
            if not step.is_planned:
                task.status, task.parameters, task.artifacts = TaskStatus.SKIPPED, {}, {}
        return list(steps.values())

    def _step(self, task: TaskState, outer: Inputs, earlier: Mapping[str, Step]) -> Step:
        planned, spec = task.plan, task.plan.spec
        step = Step(planned)
        if _follows_unplanned(planned, earlier):
            step.is_planned = False
            return step
        inputs = Inputs({}, {})
        reads_part = any(isinstance(source, DagInput) and source.item for source in spec.parameters.values())
        if spec.dag is not None or spec.condition is not None or spec.deferred or reads_part:
            try:
                inputs = inputs_of(self._state, task, outer)
            except ValueError as error:  # a field that an item does not have
                self.failing.setdefault(planned.spec_path, str(error))
        if spec.condition is not None:
            self._decide(step, spec.condition, inputs)
            if not step.is_planned:
                return step
        if step.open_condition is not None:
            self._kept.append({})
            self._keep(step.open_condition, holds=True)
        if spec.dag is None:
            step.planned = self._with_values(planned, inputs.parameters)
            task.parameters = {name: unknown(f"{task.path}.{name}") for name in spec.outputs.parameters}
            task.artifacts = {
                name: unknown(f"{task.path}.{name}") if declared.is_list else {"uri": unknown(f"{task.path}.{name}")}
                for name, declared in spec.outputs.artifacts.items()
            }
        else:
            self._open(step, task, inputs)
        if step.open_condition is not None:
            step.kept = self._kept.pop()
        return step

    def _with_values(self, planned: PlannedTask, values: Mapping[str, Any]) -> PlannedTask:
        """The task with the settings that its known inputs decide."""
        if not planned.spec.deferred:
            return planned
        try:
            return self._plan.read_deferred(planned, values)
        except InputError:
            if any(map(is_unknown, values.values())):
                return planned
            raise

    def _open(self, step: Step, task: TaskState, inputs: Inputs) -> None:
        """Unfold a DAG task, and compute its outputs."""
        planned, loop = task.plan, task.plan.spec.loop
        if loop is None:
            task.inside = ScopeState(self._plan.inside(planned), task)
            step.inside = [self._scope(task.inside, inputs)]
            is_guess = False
        else:
            items, is_guess = self._items(task, loop, inputs)
            task.loop = LoopState(items)
            for index in range(len(items)):
                scope = ScopeState(self._plan.inside(planned, index), task)
                task.loop.scopes.append(scope)
                step.inside.append(self._scope(scope, inputs))
        outputs = dag_outputs(self._state, task)
        task.parameters, task.artifacts = outputs["parameters"], outputs["artifacts"]
        if is_guess:  # the number of outputs is unknown
            task.parameters = {name: unknown(f"{task.path}.{name}") for name in task.parameters}
            task.artifacts = {name: unknown(f"{task.path}.{name}") for name in task.artifacts}

    def _items(self, task: TaskState, loop: Loop, inputs: Inputs) -> tuple[Sequence[Any], bool]:
        """The items of a loop, and whether their number is a guess."""
        planned = task.plan
        value = (inputs.artifacts if loop.of_artifacts else inputs.parameters).get(loop.items)
        try:
            items = items_of(loop, inputs, self._plan.graph.dialect)
        except ValueError as error:
            if not is_unknown(value):
                self.failing.setdefault(planned.spec_path, str(error))
        else:
            self._iterations(planned, len(items))
            if len(items) > _MOST_VISITED:
                raise InputError(
                    f"task {planned.path}: it loops over {len(items):,} items, and a plan has at most {_MOST_VISITED:,} tasks: "
                    "give it fewer"
                )
            return items, False
        count = self._iterations(planned, None)
        if count is None and not self._is_missing(value) and planned.spec_path not in self.failing:
            self.guessed[planned.spec_path] = None
        return [unknown(f"{task.path}[{index}]") for index in range(count or 1)], count is None

    def _is_missing(self, value: Any) -> bool:
        """Whether a value is a missing argument's, which is then noted."""
        name = self._missing.get(value) if isinstance(value, str) else None
        if name is not None:
            self.missing[name] = None
        return name is not None

    def _decide(self, step: Step, condition: Condition, inputs: Inputs) -> None:
        """Decide a condition by known values, or leave it open for :meth:`_choose`."""
        spec, path = step.planned.spec, step.planned.spec_path
        specs = spec.parameter_specs
        values = self._plan.graph.dialect.condition_inputs(specs, inputs.parameters)
        unknowns = {
            values[name]: specs[name].type if name in specs else "STRING"
            for name in condition.operands()[0]
            if is_unknown(values.get(name))
        }
        try:
            holds = condition.holds({name: value for name, value in values.items() if not is_unknown(value)})
        except ValueError as error:
            if unknowns:
                for value in unknowns:
                    self._is_missing(value)
                step.open_condition = _Open(condition, values, unknowns)
            else:
                self.failing.setdefault(path, f"its condition {condition}: {error}")
            return
        step.is_planned = holds
        self.decided[path] = condition, holds or (path in self.decided and self.decided[path][1])

    def _keep(self, opened: _Open, *, holds: bool) -> None:
        """Keep a decision on one unknown value; a decision on several does not decide each."""
        if len(opened.unknowns) != 1:
            return
        [value] = opened.unknowns
        key = f"{opened.condition} {opened.constants!r}"
        if sum(len(kept.get(value, ())) for kept in self._kept) < _MOST_KEPT:
            self._kept[-1].setdefault(value, {}).setdefault(key, (opened, holds))

    def _possible(self, value: str, kind: str, opened: Iterable[_Open]) -> tuple[Any, ...]:
        """The possible values of an unknown one under the kept decisions, one for each outcome of these conditions."""
        kept = [each for layer in self._kept for each in layer.get(value, {}).values()]
        values = _candidates(kind, [each for one in (*(one for one, _ in kept), *opened) for each in one.constants])
        fitting = [each for each in values if all(_outcome([one], {value: each}) == (holds,) for one, holds in kept)]
        return tuple(fitting or values)

    def _choose(self, steps: Mapping[str, Step]) -> None:
        """Decide the open conditions of one scope; conditions that share an unknown value are decided together."""
        opened = {name: step.open_condition for name, step in steps.items() if step.open_condition is not None}
        for names in _groups(opened):
            self._choose_together(steps, {name: opened[name] for name in names})
        for step in steps.values():
            if step.is_planned and _follows_unplanned(step.planned, steps):
                step.is_planned = False
        for name, each in opened.items():
            step, path = steps[name], steps[name].planned.spec_path
            before = path in self.chosen and self.chosen[path][1]
            if path not in self.untried:
                self.chosen[path] = each.condition, step.is_planned or before
            if step.is_planned:
                for inner in (inner for kept in step.kept.values() for inner in kept.values()):
                    self._keep(inner[0], holds=inner[1])

    def _choose_together(self, steps: Mapping[str, Step], opened: Mapping[str, _Open]) -> None:
        unknowns = {value: kind for each in opened.values() for value, kind in each.unknowns.items()}
        possible = [self._possible(value, kind, opened.values()) for value, kind in unknowns.items()]
        tries = math.prod(map(len, possible)) * len(opened)
        self._tried += tries
        if tries > _MOST_TRIED or self._tried > _MOST_TRIED_IN_ALL:
            self.untried.update(dict.fromkeys(steps[name].planned.spec_path for name in opened))
            return
        outcomes: dict[tuple[bool, ...], None] = {}
        for values in product(*possible):
            outcome = _outcome(list(opened.values()), dict(zip(unknowns, values, strict=True)))
            if outcome is not None:
                outcomes[outcome] = None
        if not outcomes:
            return
        best = max(
            outcomes, key=lambda outcome: (self._weight(steps, dict(zip(opened, outcome, strict=True))), outcome)
        )
        for name, holds in zip(opened, best, strict=True):
            steps[name].is_planned = holds
            self._keep(opened[name], holds=holds)

    def _weight(self, steps: Mapping[str, Step], outcome: Mapping[str, bool]) -> Weight:
        """The weight of a scope in which these conditions hold or not."""
        left_out: set[str] = set()
        cost = work = 0.0
        for name, step in steps.items():
            follows = not step.planned.spec.after_all and not left_out.isdisjoint(step.planned.spec.after)
            if not step.is_planned or not outcome.get(name, True) or follows:
                left_out.add(name)
                continue
            own = self._weight_of(step)
            cost, work = cost + own.cost, work + own.work
        return Weight(round(cost, 9), round(work, 6))

    def _weight_of(self, step: Step) -> Weight:
        path = step.planned.path
        if path not in self._weights:
            inside = [self._weight({each.planned.spec.name: each for each in scope}, {}) for scope in step.inside]
            own = Weight(*map(sum, zip(*inside, strict=True))) if inside else Weight()
            self._weights[path] = own if step.planned.spec.dag is not None else self._weigh(step.planned)
        return self._weights[path]


def _follows_unplanned(planned: PlannedTask, steps: Mapping[str, Step]) -> bool:
    """Whether a task is skipped because one before it is, as in a run; exit tasks never are."""
    return not planned.spec.after_all and any(not steps[name].is_planned for name in planned.spec.after)


def _outcome(opened: Sequence[_Open], values: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """Which conditions hold for these values; ``None`` if one cannot be evaluated."""
    try:
        return tuple(each.holds(values) for each in opened)
    except ValueError:
        return None


def _groups(opened: Mapping[str, _Open]) -> list[list[str]]:
    """The names of the conditions, grouped by shared unknown values."""
    groups: list[tuple[set[str], set[str]]] = []
    for name, each in opened.items():
        values, names = set(each.unknowns), {name}
        for other in [group for group in groups if not group[0].isdisjoint(values)]:
            groups.remove(other)
            values |= other[0]
            names |= other[1]
        groups.append((values, names))
    return [[name for name in opened if name in names] for _, names in groups]


def _candidates(kind: str, constants: Sequence[Any]) -> tuple[Any, ...]:
    """Values of a parameter's type for every outcome of comparisons with these constants; empty for lists and mappings."""
    texts = [each for each in constants if isinstance(each, str)]
    limits = sorted({float(each) for each in constants if isinstance(each, int | float) and not isinstance(each, bool)})
    between = [(one + other) / 2 for one, other in pairwise(limits)]
    numbers = [each + step for each in limits for step in (0.0, -1.0, 1.0)] + between
    found = [int(each) if each.is_integer() else each for each in numbers]
    values: Sequence[Any] = ()
    if kind == "BOOLEAN":
        values = (True, False)
    elif kind == "STRING":
        values = (*texts, *map(str, found), "", _LAST_TEXT)
    elif kind == "NUMBER_INTEGER":
        values = [each for each in found if isinstance(each, int)] or (0, 1)
    elif kind == "NUMBER_DOUBLE":
        values = found or (0, 1)
    return tuple(dict.fromkeys(values))
