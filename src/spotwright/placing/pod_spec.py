"""Reads a pod spec: its shape, its requests, and its constraints on nodes.

A field of a wrong shape is refused at its line before any rule reads it. So is a field at the wrong level, which the API server
would drop silently; the message has its right path. Conditions on nodes that cannot be checked before the work runs count as
met, with a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from spotwright.clouds import node_labels, providers
from spotwright.clouds.providers import ZONE
from spotwright.kube.admission import additions, admitted, contradiction, faulty
from spotwright.kube.devices import devices_asked
from spotwright.kube.object_fields import mapping
from spotwright.kube.object_fields import text as text_of
from spotwright.kube.pod import TERMS, refusals_of, scheduling_of
from spotwright.model.pools import Pool, Resources
from spotwright.model.quantities import parse_resource
from spotwright.model.scheduling_terms import HOSTNAME, Constraints, Expression, is_placeholder
from spotwright.placing.context import Level, PlaceContext
from spotwright.placing.documents import ManifestError, Path, show
from spotwright.placing.patch import value_at
from spotwright.scheduling.ladder import PodRequirements

__all__ = [
    "CONTAINER",
    "JOB",
    "JOB_FIELDS",
    "METADATA",
    "POD",
    "POD_FIELDS",
    "TEMPLATE",
    "TEXT",
    "AddFinding",
    "Place",
    "PodSpecError",
    "additions_in_words",
    "check",
    "check_value",
    "pod_requests",
    "read_constraints",
    "read_requests",
    "refuse_at_template",
    "refuse_in_job",
    "refuse_misplaced",
    "refuse_scheduling",
    "requirements_of",
    "stated_system",
    "tell_assumptions",
]


AddFinding = Callable[[Level, Path, str], None]
"""Reports a condition that cannot be checked: its severity, its path, the text."""


def tell_assumptions(
    given: Constraints, pools: Mapping[str, Pool], add_finding: AddFinding, selector: Path = (), terms: Path = ()
) -> None:
    """Report each undecided condition, which counts as met: its value is known only in the run, or no pool states its label.

    ``selector`` and ``terms`` are the paths of the node selector and of the required terms.
    """
    for one in given.pairs:
        _tell(one, pools, add_finding, (*selector, one.key))
    for number, term in enumerate(given.required):
        for index, one in enumerate(term.expressions):
            _tell(one, pools, add_finding, (*terms, number, "matchExpressions", index))
        for index, one in enumerate(term.fields):
            add_finding(Level.WARNING, (*terms, number, "matchFields", index), f"{_asked(one)} {_ONE_NODE}")


_ONE_NODE = "names nodes, which pools do not state: it counts as met by every pool that meets the rest"


def _tell(one: Expression, pools: Mapping[str, Pool], add_finding: AddFinding, path: Path) -> None:
    if one.key == HOSTNAME:
        add_finding(Level.WARNING, path, f"{_asked(one)} {_ONE_NODE}")
        return
    if one.is_undecided:
        text = f"{_asked(one)} is known only at run time: it counts as met by every pool that meets the rest"
        add_finding(Level.WARNING, path, text)
        return
    silent = [pool for pool in pools.values() if one.key in node_labels.unknown(pool)]
    if not silent:
        return
    zones = [(pool.name, zone) for pool in silent for zone in providers.unknown_zones(pool)]
    if one.key == ZONE and zones:
        name, zone = zones[0]
        text = f"nodes of pool {name} in zone {zone} are labelled REGION-{zone}, and the region is not known, so every pool"
        text += f" counts as fitting; set region: of pool {name} in spotwright.yaml"
    else:
        names = "every pool" if len(silent) == len(pools) else ", ".join(pool.name for pool in silent)
        counts = "counts" if len(silent) in (1, len(pools)) else "count"
        text = f"{node_labels.setter(silent[0], one.key)} sets {one.key} on nodes, but no setting gives its value, so "
        text += f"{names} {counts} as fitting; state it under labels: of the pool in spotwright.yaml"
    add_finding(Level.NOTE, path, text)


def _asked(one: Expression) -> str:
    return f"{one.key} {one.operator} {', '.join(one.values)}".strip()


class PodSpecError(ValueError):
    """A quantity of a pod spec that cannot be read; ``path`` leads to it inside the spec."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.path = path


def read_requests(ctx: PlaceContext, spec: Path) -> Resources:
    """:func:`pod_requests` of the pod spec at a path of the object."""
    pod = admitted(_spec(ctx, spec), ctx.namespace, ctx.others)
    ctx.editor.steps.charge(
        _STEPS_OF_CONTAINER * sum(_length(pod.get(name)) for name in ("containers", "initContainers"))
    )
    try:
        return pod_requests(pod)
    except PodSpecError as error:
        raise ctx.problem((*spec, *error.path), str(error)) from error


def requirements_of(
    ctx: PlaceContext, spec: Path, annotated: Path | None, *, is_holder: bool = False
) -> PodRequirements:
    """The requirements on nodes of the pod at a path. ``annotated`` is the path of its metadata; a holder has no containers."""
    pod = _spec(ctx, spec)
    given = ctx.editor.get(annotated) if annotated is not None else None
    requests = {} if is_holder else read_requests(ctx, spec)
    devices = devices_asked(pod, mapping(given))
    labels = mapping(mapping(given).get("labels"))
    return PodRequirements(requests, read_constraints(ctx, spec, labels), devices, stated_system(pod))


def stated_system(pod: Mapping[str, Any]) -> str:
    """The operating system that a pod spec states (``os.name``), or empty."""
    return text_of(mapping(pod.get("os")).get("name"))


def read_constraints(ctx: PlaceContext, spec: Path, labels: Mapping[str, Any] | None = None) -> Constraints:
    """:func:`scheduling_of` of the pod spec at a path of the object; report conditions that only its run decides.

    ``labels`` are those of the pod, by which objects beside it select it.
    """
    pod = _spec(ctx, spec)
    ctx.editor.steps.charge(
        len(ctx.config.pools) * (2 + _size_of_constraints(pod))
    )  # each pool is compared with each value
    refused = contradiction(pod, ctx.namespace, ctx.others)
    if refused is not None:
        text = f"the node selector of namespace {ctx.namespace} wants {refused[1]} here, so the API server refuses the pod: "
        raise ctx.problem((*spec, "nodeSelector", refused[0]), f"{text}write {refused[1]}, or remove this")
    for name, wrong in faulty(pod, ctx.namespace, ctx.others):
        text = f"{name} does not apply to these pods, because it cannot be read: {show(wrong.path)}: {wrong.text}"
        ctx.add_finding(Level.WARNING, spec, text)
    given = scheduling_of(admitted(pod, ctx.namespace, ctx.others, labels))
    tell_assumptions(given, ctx.config.pools, ctx.add_finding, (*spec, "nodeSelector"), (*spec, *TERMS))
    return given


def additions_in_words(ctx: PlaceContext, pod: Mapping[str, Any], refusals: Iterable[str]) -> Iterator[str]:
    """The additions of other objects to a pod for which pools are refused, in words."""
    own, more = pod_requests(pod), pod_requests(admitted(pod, ctx.namespace, ctx.others))
    raised = {
        name for name in more if own.get(name) != more[name] and any(f" {name}, a node" in why for why in refusals)
    }
    for one in additions(pod, ctx.namespace, ctx.others):
        if one.selector:
            yield f"{one.maker} adds the node selector {', '.join(f'{key}={value}' for key, value in one.selector.items())}"
        for what, given in (("overhead", one.overhead), ("default request", one.requests)):
            counted = [f"{key}: {value}" for key, value in given.items() if key in raised]
            if counted:
                yield f"{one.maker} adds the {what} {', '.join(counted)}"


def refuse_scheduling(ctx: PlaceContext, spec: Path) -> None:
    """Raise :class:`ManifestError` for what the API server refuses in the fields by which a pod's nodes are chosen."""
    for one in refusals_of(_spec(ctx, spec)):
        raise ctx.problem((*spec, *one.path), one.text)


def _size_of_constraints(pod: Mapping[str, Any]) -> int:
    """The approximate number of values in a pod spec's constraints."""
    affinity = value_at(pod, ("affinity", "nodeAffinity")) or {}
    return sum(_count(pod.get(name)) for name in ("nodeSelector", "tolerations")) + _count(affinity)


_STEPS_OF_CONTAINER = 10  # to read it, and to write what depends on the attempt


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _count(value: Any) -> int:
    """The values inside a value, at any depth."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(inside) + sum([_count(each) for each in inside if each.__class__ is dict or each.__class__ is list])


def _spec(ctx: PlaceContext, path: Path) -> Mapping[str, Any]:
    spec = ctx.editor.get(path)
    return spec if isinstance(spec, dict) else {}


def pod_requests(spec: Mapping[str, Any]) -> Resources:
    """The requests of a pod: the most that runs at one time, of its init containers or of its containers, and its overhead.

    An init container with ``restartPolicy: Always`` (a sidecar) runs beside all that start after it. A limit counts as a
    request. ``spec.resources`` overrides the containers' sum for the resources that it names.

    A quantity that is a placeholder (``${...}``, ``{{...}}``) counts as one GPU, or as none of another resource. Source:
    Kubernetes, "Resource Management for Pods and Containers" and "Sidecar Containers". Raises :class:`PodSpecError`.
    """
    beside: dict[str, int] = {}  # sidecars so far: they run on
    first: dict[str, int] = {}
    for index, container in enumerate(spec.get("initContainers") or ()):
        together = _sum(beside, _container(("initContainers", index), container))
        first = {name: max(first.get(name, 0), together.get(name, 0)) for name in first | together}
        if isinstance(container, dict) and container.get("restartPolicy") == "Always":
            beside = together
    running = beside
    for index, container in enumerate(spec.get("containers") or ()):
        running = _sum(running, _container(("containers", index), container))
    running = {name: max(first.get(name, 0), running.get(name, 0)) for name in running | first}
    running |= _container((), spec)
    if overhead := spec.get("overhead"):
        running = _sum(running, _container((), {"resources": {"requests": overhead}}))
    return running


def _sum(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def _container(path: Path, container: Any) -> dict[str, int]:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return {}
    amounts: dict[str, int] = {}
    for kind in ("limits", "requests"):  # a request overrides a limit
        given = resources.get(kind)
        for name, value in given.items() if isinstance(given, dict) else ():
            if is_placeholder(value):
                if providers.is_accelerator(str(name)):
                    amounts[str(name)] = 1
                continue
            try:
                amounts[str(name)] = parse_resource(str(name), value)
            except (ValueError, TypeError) as error:
                raise PodSpecError((*path, "resources", kind, name), str(error)) from error
    return amounts


TEXT = "text"
"""The shape of a scalar: a string, a number or a boolean."""

OPEN = "{{...}}"
"""The key of a mapping that a placeholder of Argo or Katib may replace."""

METADATA: Mapping[str, Any] = {"labels": {}, "annotations": {}}

_TERM = {
    "matchExpressions": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
    "matchFields": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
}
CONTAINER = {
    "name": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "env": [{"name": TEXT}],
    "volumeMounts": [{"mountPath": TEXT}],
    "resources": {OPEN: TEXT, "limits": {OPEN: TEXT}, "requests": {OPEN: TEXT}},
}
"""The fields of a container that are read or added to."""

POD: Mapping[str, Any] = {
    "activeDeadlineSeconds": TEXT,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": TEXT, "preference": _TERM}],
        }
    },
    "containers": [CONTAINER],
    "imagePullSecrets": [{"name": TEXT}],
    "initContainers": [CONTAINER],
    "nodeSelector": {},
    "terminationGracePeriodSeconds": TEXT,
    "tolerations": [{"key": TEXT}],
    "volumes": [{"name": TEXT}],
}
"""The fields of a pod spec that are read or added to. Source: Kubernetes API reference, PodSpec."""

TEMPLATE: Mapping[str, Any] = {"metadata": METADATA, "spec": POD}
"""A pod template."""


JOB: Mapping[str, Any] = {
    "activeDeadlineSeconds": TEXT,
    "backoffLimit": TEXT,
    "podFailurePolicy": {
        "rules": [
            {"action": TEXT, "onPodConditions": [{"type": TEXT, "status": TEXT}], "onExitCodes": {"values": [TEXT]}}
        ]
    },
}
"""The fields of a Job spec that are read or added to. Source: Kubernetes API reference, JobSpec."""


class Place(Protocol):
    """The source of a value: a document, or anything else that can name a path's place in a message."""

    def problem(self, path: Path, text: str, /) -> ManifestError:
        """An error at a path."""


def check(ctx: PlaceContext, path: Path, shape: Any) -> None:
    """Check the value at ``path`` (absolute). Raises :class:`ManifestError` with its line if it has another shape."""
    value = ctx.editor.get(path)
    if value is not None and (steps := check_value(ctx, path, value, shape) // 4):
        ctx.editor.steps.charge(steps)


def check_value(place: Place, path: Path, value: Any, shape: Any) -> int:
    """Check a value from ``place``, which names the line; returns the number of values checked."""
    looked_at = 1
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            if OPEN in shape and isinstance(value, str) and ("{{" in value or "${" in value):
                return looked_at
            raise place.problem(path, f"expected a mapping, found {value!r:.200}")
        for name, inner in shape.items():
            field = value.get(name)
            if field is not None and (inner is not TEXT or isinstance(field, dict | list)):
                looked_at += check_value(place, (*path, name), field, inner)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise place.problem(path, f"expected a list, found {value!r:.200}")
        for index, item in enumerate(value):
            looked_at += check_value(place, (*path, index), item, shape[0])
    elif isinstance(value, dict | list):
        raise place.problem(path, f"expected a text or a number, found {value!r:.200}")
    return looked_at


POD_FIELDS: frozenset[str] = frozenset(
    {
        "affinity",
        "containers",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "priorityClassName",
        "restartPolicy",
        "schedulerName",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""Fields of a pod spec that are often written a level or two too high. Source: Kubernetes API reference, PodSpec."""

JOB_FIELDS: frozenset[str] = frozenset(
    {
        "backoffLimit",
        "backoffLimitPerIndex",
        "completionMode",
        "completions",
        "maxFailedIndexes",
        "parallelism",
        "podFailurePolicy",
        "podReplacementPolicy",
        "successPolicy",
        "ttlSecondsAfterFinished",
    }
)
"""Fields of a Job spec that a pod spec lacks. Source: Kubernetes API reference, JobSpec."""

_OF_CONTAINERS = frozenset({"restartPolicy"})  # a field of init containers too


def refuse_misplaced(
    ctx: PlaceContext, at: Path, target: Path, names: Collection[str], allowed: Collection[str] = ()
) -> None:
    """Refuse fields of ``names`` at ``at``, which belong under ``target``, except those ``allowed`` there."""
    _refuse(ctx, ctx.editor.get(at), at, target, names, allowed)


def _refuse(
    ctx: PlaceContext, given: Any, at: Path, target: Path, names: Collection[str], allowed: Collection[str] = ()
) -> None:
    for name in given if isinstance(given, dict) else ():
        if name in names and name not in allowed:
            text = f"the API server would drop this field here; it belongs under {show((*target, name))}"
            raise ctx.problem((*at, name), text)


def refuse_at_template(ctx: PlaceContext, template: Path) -> None:
    """Refuse a pod template without a ``spec``, and fields of the pod spec in the template or a container."""
    spec, given = (*template, "spec"), ctx.editor.get(template)
    _refuse(ctx, given, template, spec, POD_FIELDS)
    pod = given.get("spec") if isinstance(given, dict) else None
    if not isinstance(pod, dict):
        raise ctx.problem(template, f"expected a pod template with a {show(spec)}")
    for kind in ("containers", "initContainers"):
        containers = pod.get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            _refuse(ctx, container, (*spec, kind, index), spec, POD_FIELDS, _OF_CONTAINERS)


def refuse_in_job(ctx: PlaceContext, at: Path) -> None:
    """Refuse fields of a wrong shape or level in the Job spec at ``at`` or its template."""
    check(ctx, at, JOB)
    template, pod = (*at, "template"), (*at, "template", "spec")
    job = ctx.editor.get(at)
    given = value_at(job, ("template",))
    _refuse(ctx, job, at, pod, POD_FIELDS)
    _refuse(
        ctx, given, template, at, JOB_FIELDS | {"activeDeadlineSeconds"}
    )  # pod specs have it too, and templates do not
    _refuse(ctx, value_at(given, ("spec",)), pod, at, JOB_FIELDS)
    refuse_at_template(ctx, template)
