"""The task graph of pod templates: of a Job, a JobSet, a TrainJob or bare pods, each template one task.

Needs are read from the pod spec as for placement (:mod:`spotwright.placing.pods`): requests, tolerations, node selector and
node affinity. The policy comes from the same labels and annotations as for ``place``. Such a task has no inputs or outputs: its
exit code alone decides success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar

from spotwright.errors import InputError
from spotwright.graph import Dag, PodTemplate, TaskGraph, TaskSpec
from spotwright.kube.pod import refusals_of, scheduling_of
from spotwright.model.policy import Layer
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints
from spotwright.placing.context import Level, own_layer
from spotwright.placing.documents import Path
from spotwright.placing.pod_spec import PodSpecError, pod_requests, tell_assumptions

__all__ = ["PodSource", "PodTask", "pod_graph"]


@dataclass(frozen=True, slots=True)
class PodTask:
    """One pod template: the ``kind`` of object that it belongs to, its name among the tasks, and its pod spec.

    ``after`` names the tasks that must succeed before. ``labels`` and ``annotations`` belong to the pod or its object;
    ``spotwright.dev/policy`` and ``spotwright.dev/spot`` set the policy. ``retries`` is the object's own number of retries
    after errors (a Job's ``backoffLimit``); ``None``: only the policy decides.
    """

    kind: str
    name: str
    spec: Mapping[str, Any]
    after: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    retries: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def to_data(self) -> dict[str, Any]:
        """The value as JSON data, without empty parts."""
        return {name: value for name, value in asdict(self).items() if value not in (None, (), {})}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> PodTask:
        """The value from the result of :meth:`to_data`."""
        return cls(**{"spec": {}, **data, "after": tuple(data.get("after", ()))})


@dataclass(frozen=True, slots=True)
class PodSource:
    """Pod templates as the source of a run's plan, named ``pipeline``; a run stores it and makes the same graph again.

    Unlike a compiled pipeline it has no file, so a resume uses the stored templates.
    """

    pipeline: str
    tasks: tuple[PodTask, ...]

    source: ClassVar[str] = ""
    warnings: ClassVar[tuple[str, ...]] = ()
    commits: ClassVar[dict[str, str]] = {}

    def graph(self, pools: Mapping[str, Pool]) -> TaskGraph:
        """The graph of the templates; raises the errors of :func:`pod_graph`."""
        return pod_graph(self.pipeline, self.tasks, pools)

    def place_of(self, path: str) -> str:
        """The kind and name of the template that is a task."""
        return next(str(task) for task in self.tasks if task.name == path)

    def to_data(self) -> dict[str, Any]:
        """The value as JSON data."""
        return {"name": self.pipeline, "tasks": [task.to_data() for task in self.tasks]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> PodSource:
        """The value from the result of :meth:`to_data`."""
        return cls(data["name"], tuple(PodTask.from_data(task) for task in data["tasks"]))


def pod_graph(name: str, tasks: Sequence[PodTask], pools: Mapping[str, Pool]) -> TaskGraph:
    """The graph of these templates, upstream before downstream, otherwise in the given order.

    A condition on nodes that cannot be compared with the pools (a placeholder, an architecture that no pool states) counts as
    met and is one of the graph's notes. Raises :class:`InputError` that names the template for a spec or a policy that cannot
    be read, for a name that is used twice or is not a path segment, and for a template that waits for itself or an unknown one.
    """
    by_name: dict[str, PodTask] = {}
    for task in tasks:
        _check_name(task, by_name)
        by_name[task.name] = task
    notes: dict[str, None] = {}
    specs = {name: _task(by_name[name], pools, notes) for name in _in_order(by_name)}
    root = Dag("root", tasks=specs)
    return TaskGraph(name, root, {"root": root}, notes=tuple(notes), read_template=_read_template)


def _read_template(known: TaskSpec | None, data: Mapping[str, Any], pools: Mapping[str, Pool]) -> TaskSpec:
    """A template from the data of a :class:`PodTask`; without a spec, the known one with its new retries.

    The spec is not kept: pods are not started from it, and a run may have thousands of templates. Raises the errors of
    :func:`pod_graph`.
    """
    if known is not None and "spec" not in data:
        own = known.retry or Layer(f"{known.component} {known.name}", {})
        return replace(known, retry=Layer(own.source, {**own.values, "errors.retries": data["retries"]}))
    task = PodTask.from_data(data)
    _check_name(task, {})
    return replace(_task(task, pools, {}), executor=PodTemplate(task.kind, {}))


def _check_name(task: PodTask, others: Mapping[str, PodTask]) -> None:
    if task.name in others:
        raise InputError(f"{task} has the name of {others[task.name]}: each task of a run needs a unique name")
    if "/" in task.name or task.name in ("", ".", ".."):
        raise InputError(f"{task}: a task's name is neither empty nor . or .., and holds no slash")


def _in_order(tasks: Mapping[str, PodTask]) -> tuple[str, ...]:
    for task in tasks.values():
        for upstream in task.after:
            if upstream not in tasks:
                raise InputError(f"{task} waits for {upstream!r}, which is not one of {', '.join(tasks)}")
    try:
        return tuple(TopologicalSorter({name: task.after for name, task in tasks.items()}).static_order())
    except CycleError as error:
        raise InputError(f"these tasks wait for each other in a circle: {', '.join(error.args[1][:-1])}") from error


def _task(task: PodTask, pools: Mapping[str, Pool], notes: dict[str, None]) -> TaskSpec:
    try:
        requests = pod_requests(task.spec)
    except PodSpecError as error:
        raise InputError(f"{task}: {'.'.join(map(str, error.path))}: {error}") from error
    return TaskSpec(
        name=task.name,
        component=task.kind,
        executor=PodTemplate(task.kind, task.spec),
        after=task.after,
        requests=requests,
        retry=_own_settings(task),
        policy=_policy(task),
        caching=False,
        constraints=_constraints(task, pools, notes),
        labels=task.labels,
        annotations=task.annotations,
    )


def _constraints(task: PodTask, pools: Mapping[str, Pool], notes: dict[str, None]) -> Constraints:
    def note(_level: Level, _path: Path, text: str) -> None:
        notes[f"{task}: {text}"] = None

    for one in refusals_of(task.spec):
        raise InputError(f"{task}: {'.'.join(map(str, one.path))}: {one.text}")
    constraints = scheduling_of(task.spec)
    tell_assumptions(constraints, pools, note)
    return constraints


def _own_settings(task: PodTask) -> Layer | None:
    """The settings of the template in Kubernetes' own fields; a policy overrides them."""
    values: dict[str, Any] = {}
    if task.retries is not None:
        values["errors.retries"] = task.retries
    for key, policy_field in (("activeDeadlineSeconds", "timeout"), ("terminationGracePeriodSeconds", "grace_period")):
        if isinstance(task.spec.get(key), int):
            values[policy_field] = float(task.spec[key])
    return Layer(str(task), values) if values else None


def _policy(task: PodTask) -> Layer | None:
    try:
        return own_layer(task.labels, task.annotations, str(task))
    except ValueError as error:
        raise InputError(f"{task}: {error}") from error
