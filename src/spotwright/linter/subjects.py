"""The subjects of rules: objects, pod templates, compiled pipelines and Python files, each with the lines of its parts.

An object is a document, an item of a list, or the trial inside an experiment. A document under lint may hold anything anywhere,
so rules read values of any shape with the functions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from spotwright.kfp.compiled import IrError, unfold
from spotwright.kfp.kfp_settings import pod_fields, read_resources, runtime_field
from spotwright.kfp.placed_record import RECORD
from spotwright.kinds.argo_steps import argo_version, code_paths, effective, templates
from spotwright.kinds.kind import Claim, Kind, PodLevels, Retry, kind_of
from spotwright.kinds.situation import PodGroup, held_objects, pipeline_groups, pod_claims, pod_groups, pods_of_tasks
from spotwright.kube.admission import additions, admitted
from spotwright.kube.pod import TERMS, Refusal, refusals_of, scheduling_of
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import Reach, reach_of
from spotwright.manifests.record import ANNOTATION, AT, annotations_at
from spotwright.model.pools import Resources
from spotwright.model.scheduling_terms import Constraints, Expression
from spotwright.placing.context import DEFAULT_QUEUE, QUEUE_LABEL, SPOT_LABEL, hook_of, name_of
from spotwright.placing.document_pair import EXECUTORS, PIPELINE, PLATFORMS, PipelinePair
from spotwright.placing.documents import Document, ManifestError, Path
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import METADATA, POD, check_value, pod_requests
from spotwright.placing.pods import PodRole

__all__ = [
    "Container",
    "FileObjects",
    "KubeObject",
    "Pipeline",
    "Pods",
    "Shape",
    "Task",
    "init_containers",
    "is_whole",
    "items_of",
    "mapping_at",
    "mapping_of",
    "objects_in",
    "pipeline_of",
    "pipeline_pods",
    "pods_of",
    "role_duty",
    "texts_of",
    "with_inner",
]


Shape = Mapping[str, Any]
"""A mapping of a document."""

_EMPTY: Shape = {}


def mapping_of(value: Any) -> Shape:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else _EMPTY


def mapping_at(value: Any, *path: str | int) -> Shape:
    """The mapping at a path, else an empty one."""
    return mapping_of(value_at(value, path))


def items_of(value: Any) -> Sequence[Any]:
    """The items if the value is a list, else none."""
    return value if isinstance(value, list) else ()


def is_whole(value: Any) -> bool:
    """Whether the value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def texts_of(value: Any) -> Iterator[str]:
    """The texts in a list; a text counts as a list of one."""
    for item in [value] if isinstance(value, str) else items_of(value):
        if isinstance(item, str):
            yield item


@dataclass(slots=True)
class FileObjects:
    """The objects of a file, then those beside it: of equal kind, name and namespace the first; and volumes by their claims.

    ``named`` has them by kind and name, and there by namespace.
    """

    every: list[KubeObject] = field(default_factory=list)
    named: dict[tuple[str, str], dict[str, KubeObject]] = field(default_factory=dict)
    claimed: dict[str, KubeObject] = field(default_factory=dict)
    kinds: dict[str, list[Shape]] = field(default_factory=dict)

    def add(self, one: KubeObject) -> None:
        """Add an object."""
        same, namespace = self.named.setdefault((one.kind, one.name), {}), one.namespace
        if namespace not in same:
            same[namespace] = one
            self.every.append(one)
            self.kinds.setdefault(one.kind, []).append(one.value)
        claim = one.get("spec", "claimRef", "name") if one.kind == "PersistentVolume" else None
        if isinstance(claim, str):
            self.claimed.setdefault(claim, one)

    def __iter__(self) -> Iterator[KubeObject]:
        """Each object."""
        return iter(self.every)

    def of_kind(self, kind: str) -> Sequence[Shape]:
        """The fields of each object of a kind."""
        return self.kinds.get(kind, ())


@dataclass(frozen=True, slots=True, eq=False)
class KubeObject:
    """One object. ``base`` is its path in the document, ``outer`` the object around it.

    ``beside`` are all objects of the file, in which references are looked up.
    """

    document: Document
    base: Path
    value: Shape
    outer: KubeObject | None = None
    beside: FileObjects = field(default_factory=FileObjects, repr=False)

    @property
    def api_version(self) -> str:
        """Its ``apiVersion``, empty if it has none."""
        return str(self.value.get("apiVersion") or "")

    @property
    def group(self) -> str:
        """The group of its ``apiVersion``; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def kind(self) -> str:
        """Its ``kind``, empty if it has none."""
        return str(self.value.get("kind") or "")

    @property
    def name(self) -> str:
        """Its name, or that of the object around it."""
        return name_of(self.value.get("metadata")) or (self.outer.name if self.outer is not None else "")

    @property
    def label(self) -> str:
        """The object as messages name it: ``Job train``."""
        return f"{self.kind} {self.name}".strip()

    @property
    def is_live(self) -> bool:
        """Whether it was read from a cluster, which fills in unwritten fields."""
        return mapping_at(self.value, "metadata").get("uid") is not None or "status" in self.value

    @property
    def is_owned(self) -> bool:
        """Whether a controller has made it."""
        return bool(mapping_at(self.value, "metadata").get("ownerReferences"))

    @property
    def is_placed(self) -> bool:
        """Whether ``place`` wrote into it or into the object around it, and so has reported its findings."""
        own = any(ANNOTATION in mapping_at(self.value, *at) for at in (AT[:-1], annotations_at(self.value)))
        return own or (self.outer is not None and self.outer.is_placed)

    @property
    def record(self) -> Kind:
        """The record of its kind."""
        return kind_of(self.api_version, self.kind)

    @property
    def may_be_mended(self) -> bool:
        """Whether its fields can be fixed in place: not after ``place``, nor in a string of the object around it."""
        return not self.is_placed and (self.outer is None or self.document is self.outer.document)

    @property
    def has_default_queue(self) -> bool:
        """Whether the file has the LocalQueue into which Kueue puts work of its kind and namespace that names no queue."""
        queue = self.find("LocalQueue", DEFAULT_QUEUE) if self.record.is_queued else None
        return queue is not None and self.namespace in ("", queue.namespace)

    @property
    def namespace(self) -> str:
        """Its namespace, or that of the object around it; empty if neither says it."""
        own = mapping_at(self.value, "metadata").get("namespace")
        return str(own or (self.outer.namespace if self.outer is not None else ""))

    def at(self, *steps: str | int) -> Path:
        """The path in the document of steps inside the object."""
        return (*self.base, *steps)

    def get(self, *steps: str | int, default: Any = None) -> Any:
        """The value at steps inside the object."""
        return value_at(self.value, steps, default)

    def mapping(self, *steps: str | int) -> Shape:
        """The mapping at steps inside the object, else an empty one."""
        return mapping_of(self.get(*steps))

    def items(self, *steps: str | int) -> Sequence[Any]:
        """The list at steps inside the object, else an empty one."""
        return items_of(self.get(*steps))

    def find(self, kind: str, name: str) -> KubeObject | None:
        """An object of the same file by its kind and its name; of several, the one in its own namespace, else the first."""
        same = self.beside.named.get((kind, name), {})
        return same.get(self.namespace) or next(iter(same.values()), None)


def objects_in(document: Document, beside: FileObjects) -> list[KubeObject]:
    """The objects of one document, itself or the items of a list, which are added to ``beside``."""
    found = list(_objects(document, (), document.get((), None), beside))
    for one in found:
        beside.add(one)
    return found


def with_inner(outer: KubeObject) -> Iterator[KubeObject]:
    """An object, and behind it those that it holds: the trial of an experiment, the manifest in a step, at any depth."""
    yield outer
    with suppress(ManifestError):  # invalid YAML, which place refuses: a rule says so
        for held in held_objects(outer.document, outer.base, outer.value, outer.beside.of_kind):
            document = held.document
            if document.file != outer.document.file or isinstance(outer.document, _OneLine):
                document = _OneLine.of(document, outer.document, held.path)
            yield from with_inner(KubeObject(document, held.base, held.value, outer, outer.beside))


class _OneLine(Document):
    """A document in a folded or quoted string; all its values are at the line of that string."""

    __slots__ = ()

    @classmethod
    def of(cls, inner: Document, outer: Document, path: Path) -> Document:
        """A document as one line of another, the line of a path there."""
        line = outer.line(path)
        return cls(outer.file, inner.text, inner.root, inner.start, inner.end, inner.index, line, inner.shared)

    def line(self, path: Path) -> int:  # noqa: ARG002 (all are at one line)
        """The line of the text."""
        return self.above


def _objects(document: Document, base: Path, value: Any, beside: FileObjects) -> Iterator[KubeObject]:
    if not isinstance(value, dict):
        if value is not None:  # a text or a list, which a rule reports
            yield KubeObject(document, base, {}, None, beside)
        return
    items = value.get("items")
    if str(value.get("kind") or "").endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield KubeObject(document, (*base, "items", index), item, None, beside)
        return
    yield KubeObject(document, base, value, None, beside)


_ROLE_LABEL = "spotwright.dev/role"
_HELD = ("tolerations", "affinity", "nodeSelector", "priorityClassName")
_LEVEL = {key: POD[key] for key in (*_HELD, "volumes") if key in POD}


class Container(NamedTuple):
    """One container: its path, and its fields."""

    path: Path
    value: Shape

    @property
    def words(self) -> list[str]:
        """Its command and its arguments."""
        both = (*items_of(self.value.get("command")), *items_of(self.value.get("args")))
        return [str(word) for word in both if not isinstance(word, dict | list)]


class Source(Protocol):
    """Where pods were read: a document, or the calls in a Python file."""

    def line(self, path: Path, /) -> int:
        """The line of a path."""

    def show(self, path: Path, /) -> str:
        """The path for people, or empty."""

    def get(self, path: Path, default: Any = ..., /) -> Any:
        """The value at a path."""


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """The pods of one template. ``spec`` is the path of the pod spec or of its holder; ``where`` the paths of a holder's parts.

    ``form`` is as in :class:`~spotwright.kinds.kind.PodPlace`, or ``K`` for an executor of a compiled pipeline.
    ``job`` is the path of the Job spec around them. ``label`` names them in messages. ``group`` has how
    many there are and in what order, ``claims`` come from :func:`~spotwright.kinds.situation.pod_claims`, with paths
    from the owner. ``as_admitted`` is the pod spec with what the cluster adds, as far as given objects show it, and
    ``containers`` have their part of it; it is empty in a pipeline.
    """

    document: Source
    owner: KubeObject | None
    label: str
    role: str
    spec: Path
    form: str
    duty: PodRole
    value: Shape
    metadata: Shape
    constraints: Constraints
    reach: Reach
    containers: tuple[Container, ...]
    retry: Retry = Retry.OTHER
    job: Path | None = None
    where: Mapping[Path, Path] = field(default_factory=dict)
    is_placed: bool = False
    group: PodGroup | None = None
    claims: tuple[Claim, ...] = ()
    as_admitted: Shape = field(default_factory=dict)

    @property
    def are_several(self) -> bool:
        """Whether several of them run at once, by their object."""
        return self.group is not None and (self.group.at_once or 0) > 1

    @property
    def on_spot(self) -> bool:
        """Whether the pods may run on spot nodes."""
        return self.reach is not Reach.NONE

    @property
    def asks_for_spot(self) -> bool:
        """Whether they are meant to run on spot nodes, instead of merely not being kept off."""
        return self.reach > Reach.OPEN

    @property
    def is_work(self) -> bool:
        """Whether they do work that ends, and may be lost if they are recreated."""
        return self.duty in (PodRole.WORKER, PodRole.COORDINATOR)

    @property
    def conditions(self) -> list[Expression]:
        """What they ask of nodes by labels: the pairs of the selector, then the required and the preferred conditions."""
        terms = (*self.constraints.required, *(wish.term for wish in self.constraints.preferred))
        return [*self.constraints.pairs, *(one for term in terms for one in term.expressions)]

    def with_maker(self, *keys: str) -> str:
        """Their label, as the subject of a sentence on labels that they select, with the object that adds one of these.

        ``Job a``, or ``Job a, by its namespace team,``.
        """
        maker = next((self.makers[key] for key in keys if key in self.makers), "")
        return f"{self.label}, by its {maker}," if maker else self.label

    @property
    def makers(self) -> Mapping[str, str]:
        """The objects that add labels to their node selector, by the label."""
        own, found = mapping_of(self.value.get("nodeSelector")), dict[str, str]()
        if self.owner is not None and self.constraints.selector.keys() - own.keys():
            for one in additions(self.value, self.owner.namespace, self.owner.beside.of_kind):
                found = {**dict.fromkeys(one.selector, one.maker), **found}
        return {key: maker for key, maker in found.items() if key not in own}

    @property
    def refusals(self) -> Iterable[Refusal]:
        """What the API server refuses in the fields by which their nodes are chosen, each with its path in :meth:`at`."""
        return pod_fields(self.value).refusals if self.form == "K" else refusals_of(self.value)

    @property
    def requests(self) -> Resources:
        """The requests of one pod, as far as they can be read; a separate rule checks the form of quantities."""
        try:
            if self.form == "K":
                return read_resources(mapping_at(self.containers[0].value, "resources"))[0]
            return pod_requests(self.as_admitted)
        except (ValueError, TypeError, AttributeError, IndexError):
            return {}

    @property
    def is_partial(self) -> bool:
        """Whether another object completes them: the patches of a TrainJob and its runtime only hold together."""
        return self.owner is not None and self.owner.record.is_partial

    @property
    def wish(self) -> str:
        """The value of Spotwright's label: require, prefer or never; empty without one."""
        own = mapping_at(self.metadata, "labels").get(SPOT_LABEL)
        outer = mapping_at(self.owner.value, "metadata", "labels").get(SPOT_LABEL) if self.owner else None
        return str(own or outer or "")

    @property
    def is_queued(self) -> bool:
        """Whether a Kueue queue, which chooses their nodes, admits them; the default queue counts if it is in the same file."""
        owner = self.owner
        while owner is not None:
            if QUEUE_LABEL in mapping_at(owner.value, "metadata", "labels") or owner.has_default_queue:
                return True
            owner = owner.outer
        return QUEUE_LABEL in mapping_at(self.metadata, "labels")

    @property
    def annotations(self) -> Shape:
        """The annotations of the pods."""
        return mapping_at(self.metadata, "annotations")

    @property
    def annotations_at(self) -> Path | None:
        """The path of their annotations; ``None`` where the object has no place for them."""
        if self.form == "T":
            return (*self.spec[:-1], "metadata", "annotations")
        if self.form == "K":
            return (*self.spec, "podMetadata", "annotations")
        own = self.owner.record.annotations if self.owner is not None else ()
        return (*self.spec, *own) if own else None

    def at(self, *steps: str | int) -> Path:
        """The path in the document of steps inside the pod spec."""
        for length in range(len(steps) if self.where else 0, 0, -1):
            if (place := self.where.get(steps[:length])) is not None:
                return (*place, *steps[length:])
        return (*self.spec, *steps)

    @property
    def terms(self) -> Path:
        """The path of the required node selector terms."""
        if self.form == "K":
            return self.at("nodeAffinity")
        return self.at(*TERMS)

    @property
    def selector(self) -> Path:
        """The path of the node selector."""
        return self.at("nodeSelector", "labels") if self.form == "K" else self.at("nodeSelector")

    def selected(self, label: str) -> Path:
        """The path of a label of the node selector."""
        return self.at("nodeSelector", label) if ("nodeSelector", label) in self.where else (*self.selector, label)

    @property
    def volumes(self) -> Iterator[tuple[Path, Shape]]:
        """Each volume with its path."""
        for index, volume in enumerate(items_of((self.as_admitted or self.value).get("volumes"))):
            yield self.at("volumes", index), mapping_of(volume)


def init_containers(pods: Pods) -> Iterator[Container]:
    """The init containers of the pods."""
    for index, value in enumerate(items_of(pods.value.get("initContainers"))):
        yield Container(pods.at("initContainers", index), mapping_of(value))


def pods_of(owner: KubeObject, settings: Settings) -> Iterator[Pods | ManifestError]:
    """The pods of an object; an error with the line instead where fields have another shape."""
    record = owner.record
    if record.retry is Retry.STEP:
        yield from _argo(owner, settings)
        return
    for group in pod_groups(owner.value, settings.pod_paths):
        if group.place.form == "T" and not isinstance(owner.get(*group.path, "spec"), dict):
            continue  # the rule on fields at the wrong level says so
        tasks = list(group.place.tasks(owner.value, group.path)) if group.place.tasks is not None else []
        for name, levels in tasks or [("", group.place.levels(owner.value, group.path))]:
            yield _read(owner, pods_of_tasks(group, {name}) if name else group, levels, name, settings)


def _read(owner: KubeObject, group: PodGroup, levels: PodLevels, task: str, settings: Settings) -> Pods | ManifestError:
    """The pods of a template, or those of one task that has it."""
    place, path = group.place, group.path
    spec, form, value, metadata, where = levels
    try:
        check_value(owner.document, owner.at(*spec), value, POD)
        check_value(owner.document, owner.at(*((*spec[:-1], "metadata") if form == "T" else spec)), metadata, METADATA)
        labels = _labels(owner, place.duty, metadata)
        pod = admitted(value, owner.namespace, owner.beside.of_kind, labels)
        constraints = scheduling_of(pod)
    except ManifestError as error:
        return error
    role = task or _role(owner, path)
    claims = [one for one in pod_claims(owner.value, group) if not task or one.tasks is None or task in one.tasks]
    return Pods(
        owner.document,
        owner,
        f"{owner.label} {role}".strip(),
        role,
        owner.at(*spec),
        form,
        role_duty(owner, place.duty, role, metadata),
        value,
        metadata,
        constraints,
        reach_of(constraints, settings),
        tuple(_containers(owner, levels, pod)),
        owner.record.retry,
        owner.at(*path[:-1]) if place.job else None,
        {inside: owner.at(*at) for inside, at in where.items()},
        is_placed=owner.is_placed,
        group=group,
        claims=tuple(claims),
        as_admitted=pod,
    )


def _labels(owner: KubeObject, duty: PodRole, metadata: Shape) -> Shape:
    """The labels of the pods; a Notebook's own labels go to its pods too."""
    own = mapping_at(owner.value, "metadata", "labels") if duty is PodRole.INTERACTIVE else {}
    return {**own, **mapping_at(metadata, "labels")}


def _containers(owner: KubeObject, levels: PodLevels, value: Shape) -> Iterator[Container]:
    for index, container in enumerate(items_of(value.get("containers"))):
        at = levels.where.get(("containers", index), (*levels.path, "containers", index))
        yield Container(owner.at(*at), mapping_of(container))


def _role(owner: KubeObject, path: Path) -> str:
    """The role's name: its item's in a list, or the last key that is not a Kubernetes name."""
    plain = {
        "spec",
        "template",
        "jobTemplate",
        "jobTargetRef",
        "podTemplate",
        "taskPodTemplate",
        "taskRunTemplate",
        "podSpec",
    }
    if path and path[-1] == "submitterPodTemplate":
        return "submitter"
    for depth in range(len(path), 0, -1):
        step = path[depth - 1]
        if isinstance(step, int):
            item = owner.mapping(*path[:depth])
            named = (item[key] for key in ("name", "groupName", "pipelineTaskName") if isinstance(item.get(key), str))
            targets = [str(mapping_of(one).get("name")) for one in items_of(item.get("targetJobs"))]
            return next(named, ", ".join(targets) or f"{path[depth - 2]}[{step}]")
        if step == "headGroupSpec":
            return "head"
        if step not in plain and not step.endswith(("Specs", "jobs", "Jobs")):
            return step
    return ""


def role_duty(owner: KubeObject, duty: PodRole, role: str, metadata: Shape) -> PodRole:
    """The purpose of a role's pods, if the kind alone does not determine it."""
    wish = mapping_at(owner.value, "metadata", "labels").get(SPOT_LABEL)
    if duty is PodRole.WORKER and hook_of(owner.value.get("metadata")) and wish is None:
        return PodRole.HOOK
    if duty is PodRole.SERVING and owner.record.may_work:
        labels = {**mapping_at(owner.value, "metadata", "labels"), **mapping_of(metadata.get("labels"))}
        is_worker = labels.get(_ROLE_LABEL) == "worker" or labels.get(SPOT_LABEL) not in (None, "never")
        return PodRole.WORKER if is_worker else PodRole.SERVING
    return PodRole.COORDINATOR if duty is PodRole.WORKER and owner.record.leads(role) else duty


def _argo(owner: KubeObject, settings: Settings) -> Iterator[Pods | ManifestError]:
    """The templates of a workflow that run code, each with what it inherits from other levels."""
    top, get = owner.record.top, partial(value_at, owner.value)
    try:
        for level in (top, (*top, "templateDefaults")):
            check_value(owner.document, owner.at(*level), mapping_of(get(level)), _LEVEL)
    except ManifestError as error:
        yield error
        return
    groups = {group.path: group for group in pod_groups(owner.value)}
    for template in templates(get, top):
        here, role = template.path, template.name
        found = [Container(owner.at(*path), mapping_of(get(path))) for path in code_paths(get, template)]
        group = groups.get(here)
        if not found or group is None:
            continue
        try:
            check_value(owner.document, owner.at(*here), mapping_of(get(here)), _LEVEL)
            pod = effective(get, top, template, argo_version(settings.config))
            value = {**mapping_of(get(here)), **{name: pod.spec[name] for name in _HELD if name in pod.spec}}
            where = {inside: owner.at(*at) for inside, at in pod.where.items()}
            for level in ((*top, "templateDefaults"), top):
                if value.get("volumes") is None and isinstance(get((*level, "volumes")), list):
                    value["volumes"], where["volumes",] = get((*level, "volumes")), owner.at(*level, "volumes")
            whole = {**value, "containers": [one.value for one in found]}
            labels = mapping_at(pod.metadata, "labels")
            given = admitted(whole, owner.namespace, owner.beside.of_kind, labels)
            constraints = scheduling_of(given)
        except ManifestError as error:
            yield error
            continue
        yield Pods(
            owner.document,
            owner,
            f"{owner.label} {role}".strip(),
            role,
            owner.at(*here),
            "H",
            role_duty(owner, PodRole.WORKER, role, {}),
            value,
            mapping_of(pod.metadata),
            constraints,
            reach_of(constraints, settings),
            tuple(one._replace(value=more) for one, more in zip(found, given["containers"], strict=True)),
            where=where,
            is_placed=owner.is_placed,
            group=group,
            claims=tuple(pod_claims(owner.value, group)),
            as_admitted=given,
        )


class Task(NamedTuple):
    """One task that runs in a pod: its place, its path in a run, its executor, its retries, set by a pipeline if ``inherits``."""

    path: Path
    name: str
    label: str
    retry: Shape | None
    inherits: bool
    in_exit_handler: bool


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A compiled pipeline: ``value`` is its first document, ``platforms`` the mapping in the second.

    ``noun``: how messages call what runs in a pod; a pipeline in Python has a task where the compiler makes an executor.
    ``times``: how often each runs at once, in Python, where the order of tasks is not read.
    """

    document: PipelinePair | Source
    value: Shape
    platforms: Shape
    noun: str = "executor"
    times: Mapping[str, int | None] | None = None

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return str(mapping_at(self.value, "pipelineInfo").get("name") or "")

    @property
    def is_placed(self) -> bool:
        """Whether ``place`` or ``compile`` wrote into it, and so has reported its findings."""
        return self.document.get((1, *RECORD), None) is not None

    @property
    def executors(self) -> Shape:
        """The executors by their labels."""
        return mapping_at(self.value, "deploymentSpec", "executors")

    def settings_at(self, label: str) -> Path:
        """The path of the Kubernetes settings of an executor."""
        return (*PLATFORMS, *EXECUTORS, label)

    def tasks(self) -> Iterator[Task]:
        """The tasks that run in pods, each once; none if the document contradicts itself."""
        seen: set[Path] = set()
        try:
            uses = [use for use in unfold(self.value) if use.has_pod]
        except (IrError, AttributeError, TypeError, KeyError, ValueError):
            return
        for use in uses:
            at = (*PIPELINE, *use.keys)
            if at not in seen:
                seen.add(at)
                retry = use.task.get("retryPolicy")
                own = retry if isinstance(retry, dict) else None
                yield Task(at, use.path, use.label, own, use.enclosing_retry is not None, use.in_exit_handler)


def pipeline_of(pair: PipelinePair) -> Pipeline:
    """The pipeline of a pair of documents."""
    return Pipeline(pair, mapping_of(pair.get((0,), None)), mapping_of(pair.get(PLATFORMS, None)))


def pipeline_pods(pipeline: Pipeline, settings: Settings) -> Iterator[Pods]:
    """The pods of each executor, with its settings in the place of a pod spec."""
    pair = [pipeline.value, {"platforms": pipeline.platforms}]
    for group in pipeline_groups(pair):
        label = str(group.path[-1])
        container = mapping_at(pipeline.executors, label, "container")
        value = mapping_at(pipeline.platforms, *EXECUTORS, label)
        try:
            if runtime_field(value):
                continue  # a parameter of the run decides where it goes, and no command adds anything
            constraints = scheduling_of(pod_fields(value).spec)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # another shape, which compile refuses
        path: Path = (0, "deploymentSpec", "executors", label, "container")
        yield Pods(
            pipeline.document,
            None,
            f"{pipeline.noun} {label}",
            label,
            pipeline.settings_at(label),
            "K",
            PodRole.WORKER,
            value,
            mapping_at(value, "podMetadata"),
            constraints,
            reach_of(constraints, settings),
            (Container(path, _words(container)),),
            is_placed=pipeline.is_placed,
            group=group if pipeline.times is None else group._replace(at_once=pipeline.times.get(label), runs=()),
            claims=tuple(pod_claims(pair, group)),
        )


def _words(container: Shape) -> Shape:
    """An executor's container without the source of its component, which is code, not an argument."""
    words: list[Any] = [word for word in items_of(container.get("command")) if "\n" not in str(word)]
    return {**container, "command": words}
