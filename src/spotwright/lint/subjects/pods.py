"""The pods of one template under lint: their spec, what may hold them, whether they run on spot, and what they are for.

Templates of Argo and executors of compiled pipelines are read into the same form, so that a rule about tolerations or
checkpoints is written once. Values that have no meaning at their place are left to the rule on shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from spotwright.kinds.kind import Duty, PodPlace, Retry, facts_of
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.objects import KubeObject
from spotwright.lint.subjects.reach import Reach, pairs_of, reach_of
from spotwright.lint.subjects.shapes import Shape, items_of, mapping_at, mapping_of, matching
from spotwright.model.scheduling_terms import Constraints, Expression
from spotwright.placing.context import QUEUE_LABEL, SPOT_LABEL
from spotwright.placing.documents import Document, ManifestError, Path
from spotwright.placing.pod_spec import METADATA, POD, REQUIRED_TERMS, check_value, pod_constraints

__all__ = ["Container", "Pods", "pods_of", "role_duty"]

_COORDINATORS = frozenset({"chief", "master", "ps", "launcher"})
_LEADERS = frozenset({"leader", "driver", "coordinator", "head", "launcher", "scheduler"})
_ROLE_LABEL = "spotwright.dev/role"
_HELD = ("tolerations", "affinity", "nodeSelector")


class Container(NamedTuple):
    """One container: where it stands, and its fields."""

    path: Path
    value: Shape

    @property
    def words(self) -> list[str]:
        """Its command and its arguments."""
        both = (*items_of(self.value.get("command")), *items_of(self.value.get("args")))
        return [str(word) for word in both if not isinstance(word, dict | list)]


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """The pods of one template. ``spec`` is the path of the pod spec or of its holder; ``where`` those of the parts of a holder.

    ``form`` is that of :class:`~spotwright.kinds.kind.PodPlace`, or ``K`` for an executor of a compiled pipeline.
    ``job`` is the path of the Job spec around them. ``label`` names them in messages.
    """

    document: Document
    owner: KubeObject | None
    label: str
    role: str
    spec: Path
    form: str
    duty: Duty
    value: Shape
    metadata: Shape
    constraints: Constraints
    reach: Reach
    containers: tuple[Container, ...]
    retry: Retry = Retry.OTHER
    job: Path | None = None
    where: Mapping[str, Path] | None = None
    is_placed: bool = False

    @property
    def on_spot(self) -> bool:
        """Whether the pods may run on spot nodes."""
        return self.reach is not Reach.NONE

    @property
    def asks_for_spot(self) -> bool:
        """Whether somebody meant them to run on spot nodes, and not only nothing keeps them off."""
        return self.reach > Reach.OPEN

    @property
    def is_work(self) -> bool:
        """Whether they do work that ends, and may be lost if somebody makes them again."""
        return self.duty in (Duty.WORKER, Duty.COORDINATOR)

    @property
    def conditions(self) -> list[Expression]:
        """What they ask of nodes by labels: the pairs of the selector, then the required and the preferred conditions."""
        terms = (*self.constraints.required, *(wish.term for wish in self.constraints.preferred))
        return [*pairs_of(self.constraints), *(one for term in terms for one in term.expressions)]

    @property
    def is_partial(self) -> bool:
        """Whether another object completes them: the patches of a TrainJob and its runtime only hold together."""
        return self.owner is not None and self.owner.group == "trainer.kubeflow.org"

    @property
    def wish(self) -> str:
        """What the label of Spotwright says: require, prefer or never; empty without one."""
        own = mapping_at(self.metadata, "labels").get(SPOT_LABEL)
        outer = mapping_at(self.owner.value, "metadata", "labels").get(SPOT_LABEL) if self.owner else None
        return str(own or outer or "")

    @property
    def is_queued(self) -> bool:
        """Whether a queue of Kueue admits them, which chooses their nodes."""
        owner = self.owner
        while owner is not None:
            if QUEUE_LABEL in mapping_at(owner.value, "metadata", "labels"):
                return True
            owner = owner.outer
        return QUEUE_LABEL in mapping_at(self.metadata, "labels")

    @property
    def annotations(self) -> Shape:
        """The annotations of the pods."""
        return mapping_at(self.metadata, "annotations")

    def at(self, *steps: str | int) -> Path:
        """The path in the document of steps inside the pod spec."""
        if self.where is not None and steps and steps[0] in self.where:
            return (*self.where[str(steps[0])], *steps[1:])
        return (*self.spec, *steps)

    @property
    def terms(self) -> Path:
        """The path of the required node selector terms."""
        if self.form == "K":
            return self.at("nodeAffinity")
        return self.at(*REQUIRED_TERMS)

    @property
    def selector(self) -> Path:
        """The path of the node selector."""
        return self.at("nodeSelector", "labels") if self.form == "K" else self.at("nodeSelector")

    @property
    def volumes(self) -> Iterator[tuple[Path, Shape]]:
        """Each volume with its path."""
        for index, volume in enumerate(items_of(self.value.get("volumes"))):
            yield self.at("volumes", index), mapping_of(volume)


def pods_of(owner: KubeObject, settings: Settings) -> Iterator[Pods | ManifestError]:
    """The pods of an object; an error with the line, in place of pods whose fields have another shape."""
    facts = facts_of(owner.group, owner.kind)
    if owner.group == "argoproj.io":
        yield from _argo(owner, facts.places[:1], settings)
        return
    for place in facts.places:
        for path in matching(owner.value, place.steps):
            found = _read(owner, place, path, facts.retry, settings)
            if found is not None:
                yield found


def _read(
    owner: KubeObject, place: PodPlace, path: Path, retry: Retry, settings: Settings
) -> Pods | ManifestError | None:
    holder = owner.mapping(*path)
    if place.form == "T" and not isinstance(holder.get("spec"), dict):
        return None  # the rule on fields at the wrong level says so
    spec = (*path, "spec") if place.form == "T" else path
    outer = owner.mapping(*place.inherits) if place.inherits else {}
    value = mapping_of(holder.get("spec")) if place.form == "T" else {**outer, **holder}
    metadata = mapping_of(holder.get("metadata")) if place.form == "T" else {}
    try:
        check_value(owner.document, owner.at(*spec), value, POD)
        check_value(owner.document, owner.at(*path, "metadata"), metadata, METADATA)
        constraints = _constraints(value)
    except ManifestError as error:
        return error
    role = _role(owner, path)
    return Pods(
        owner.document,
        owner,
        f"{owner.label} {role}".strip(),
        role,
        owner.at(*spec),
        place.form,
        role_duty(owner, place.duty, role, metadata),
        value,
        metadata,
        constraints,
        reach_of(constraints, settings),
        tuple(_containers(owner, spec, value)),
        retry,
        owner.at(*path[:-1]) if place.job else None,
        {key: owner.at(*place.inherits, key) for key in outer if key not in holder} or None,
        is_placed=owner.is_placed,
    )


def _constraints(value: Shape) -> Constraints:
    known = {key: one for key, one in value.items() if key in _HELD}
    return pod_constraints(known)


def _containers(owner: KubeObject, spec: Path, value: Shape) -> Iterator[Container]:
    for index, container in enumerate(items_of(value.get("containers"))):
        yield Container(owner.at(*spec, "containers", index), mapping_of(container))


def _role(owner: KubeObject, path: Path) -> str:
    """The role's name: that of its item in a list, or the last key that is no word of Kubernetes."""
    plain = {"spec", "template", "jobTemplate", "podTemplate", "taskPodTemplate", "taskRunTemplate", "podSpec"}
    if path and path[-1] == "submitterPodTemplate":
        return "submitter"
    for depth in range(len(path), 0, -1):
        step = path[depth - 1]
        if isinstance(step, int):
            item = owner.mapping(*path[:depth])
            return str(
                next(
                    (item[key] for key in ("name", "groupName", "pipelineTaskName") if isinstance(item.get(key), str)),
                    step,
                )
            )
        if step == "headGroupSpec":
            return "head"
        if step not in plain and not step.endswith(("Specs", "jobs", "Jobs")):
            return step
    return ""


def role_duty(owner: KubeObject, duty: Duty, role: str, metadata: Shape) -> Duty:
    """What pods of a role are for, where the kind alone does not say it."""
    if duty is Duty.SERVING and owner.group == "apps":
        labels = {**mapping_at(owner.value, "metadata", "labels"), **mapping_of(metadata.get("labels"))}
        is_worker = labels.get(_ROLE_LABEL) == "worker" or labels.get(SPOT_LABEL) not in (None, "never")
        return Duty.WORKER if is_worker else Duty.SERVING
    name = role.lower()
    if duty is Duty.WORKER and owner.group == "kubeflow.org" and name in _COORDINATORS:
        return Duty.COORDINATOR
    if duty is Duty.WORKER and owner.group in ("jobset.x-k8s.io", "batch.volcano.sh") and name in _LEADERS:
        return Duty.COORDINATOR
    return duty


def _argo(owner: KubeObject, places: tuple[PodPlace, ...], settings: Settings) -> Iterator[Pods | ManifestError]:
    """The templates of a workflow that run pods, each with what it takes from the workflow.

    The template's own tolerations, affinity and node selector replace those of the workflow, they are not merged with them.
    Source: argo-workflows, ``workflow/controller/workflowpod.go``, ``addSchedulingConstraints``.
    """
    top = places[0].steps if places else ("spec",)
    workflow = owner.mapping(*top)
    for index, template in enumerate(items_of(workflow.get("templates"))):
        here: Path = (*top, "templates", index)
        found = list(_argo_containers(owner, here, mapping_of(template)))
        if not found:
            continue
        value, where = dict(template), {}
        layers = ((here, mapping_of(template)), ((*top, "templateDefaults"), mapping_at(workflow, "templateDefaults")))
        for name in (*_HELD, "volumes"):
            for path, layer in (*layers, (top, workflow)):
                if layer.get(name) is not None:
                    value[name], where[name] = layer[name], owner.at(*path, name)
                    break
        try:
            check_value(
                owner.document, owner.at(*here), value, {key: POD[key] for key in (*_HELD, "volumes") if key in POD}
            )
            constraints = _constraints(value)
        except ManifestError as error:
            yield error
            continue
        role = str(mapping_of(template).get("name") or index)
        yield Pods(
            owner.document,
            owner,
            f"{owner.label} {role}".strip(),
            role,
            owner.at(*here),
            "H",
            Duty.WORKER,
            value,
            mapping_at(template, "metadata"),
            constraints,
            reach_of(constraints, settings),
            tuple(found),
            where=where,
            is_placed=owner.is_placed,
        )


def _argo_containers(owner: KubeObject, here: Path, template: Shape) -> Iterator[Container]:
    for name in ("container", "script"):
        value: Any = template.get(name)
        if isinstance(value, dict):
            yield Container(owner.at(*here, name), value)
    for index, value in enumerate(items_of(mapping_at(template, "containerSet").get("containers"))):
        yield Container(owner.at(*here, "containerSet", "containers", index), mapping_of(value))
