"""Read a compiled task's requests to its pod and node: resources, and the settings of ``platforms.kubernetes``.

Some settings hold values that only the run has (a memory limit from a pipeline parameter, a toleration from an upstream task).
They are deferred: :func:`read_deferred` reads them once the values exist. Sources: ``backend/src/v2/driver/k8s.go`` and
``container.go`` of kubeflow/pipelines. ``dsl.TaskConfig`` passes settings of a task's pod to its code, which may use them, for
example for a TrainJob.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import DagInput, KeyRefs, PodConfig, PvcMount, ScratchVolume, Source, TaskOutput, TaskSpec
from spotwright.kfp.compiled import sorted_json
from spotwright.kfp.kfp_settings import accelerator_in, amounts_in, nonempty, pod_fields, read_resources
from spotwright.kfp.values import to_text
from spotwright.kube.pod import scheduling_of
from spotwright.model.quantities import canonical_quantity, parse_quantity
from spotwright.model.scheduling_terms import Constraints

__all__ = [
    "FIELDS",
    "PLACEMENT",
    "POD_SETTINGS",
    "TaskConfig",
    "TaskConfigPassthrough",
    "TaskSettings",
    "read_deferred",
    "read_passthrough",
    "read_pod_config",
    "read_settings",
    "task_config",
    "task_config_of",
    "with_pvc_name_parameters",
    "with_workspace",
]


_WORKSPACE_MOUNT = "/kfp-workspace"
"""The path at which the backend mounts the workspace of a run."""

_WORKSPACE_VOLUME = "kfp-workspace"
_ENV, _RESOURCES, _VOLUMES = "ENV", "RESOURCES", "KUBERNETES_VOLUMES"
_SELECTOR, _TOLERATIONS, _AFFINITY = "KUBERNETES_NODE_SELECTOR", "KUBERNETES_TOLERATIONS", "KUBERNETES_AFFINITY"
_OF_POD = {
    _ENV: ("secretAsEnv", "configMapAsEnv", "fieldPathAsEnv"),
    _VOLUMES: ("pvcMount", "secretAsVolume", "configMapAsVolume"),  # empty and ephemeral ones always stay with the pod
    _SELECTOR: ("nodeSelector",),
    _TOLERATIONS: ("tolerations",),
    _AFFINITY: ("nodeAffinity",),
}


@dataclass(frozen=True, slots=True)
class TaskConfigPassthrough:
    """The settings that a component's code receives (``given``), and which of them its own pod lacks (``withheld``)."""

    given: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()

    @property
    def env(self) -> bool:
        """Whether the task's own variables stay with its pod."""
        return _ENV not in self.withheld

    def of_pod(
        self, resources: Mapping[str, Any], kubernetes: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The resources and settings that remain for the task's own pod."""
        if not self.withheld:
            return resources, kubernetes
        withheld = {key for field in self.withheld for key in _OF_POD.get(field, ())}
        remaining = {key: value for key, value in kubernetes.items() if key not in withheld}
        return ({} if _RESOURCES in self.withheld else resources), remaining


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """The ``dsl.TaskConfig`` of one task: the settings that are passed on, their values, and the inputs that receive them.

    It is the ``extension`` of the tasks that have one.
    """

    passed: TaskConfigPassthrough = TaskConfigPassthrough()
    values: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()


_NO_CONFIG = TaskConfig()


def task_config_of(task: TaskSpec) -> TaskConfig:
    """The config of a task; an empty one for a task whose component asks for none."""
    return task.extension if isinstance(task.extension, TaskConfig) else _NO_CONFIG


def read_passthrough(definition: Mapping[str, Any]) -> TaskConfigPassthrough:
    """Read ``taskConfigPassthroughs`` of a component; most have none."""
    entries = definition.get("taskConfigPassthroughs") or ()
    fields = {str(entry.get("field") or ""): bool(entry.get("applyToTask")) for entry in entries}
    return TaskConfigPassthrough(frozenset(fields), frozenset(name for name, applied in fields.items() if not applied))


def task_config(
    passed: TaskConfigPassthrough, env: Mapping[str, str], resources: Mapping[str, Any], kubernetes: Mapping[str, Any]
) -> dict[str, Any]:
    """The value of a ``dsl.TaskConfig``, in Kubernetes' field names; other settings are null, as in the backend.

    References in ``kubernetes`` must have been replaced by their values. Raises ``ValueError`` for a value that is not a
    quantity.
    """
    volumes = list(_volumes(kubernetes)) if _VOLUMES in passed.given else []
    nodes = pod_fields(kubernetes).spec
    config = {
        "affinity": nodes.get("affinity") if _AFFINITY in passed.given else None,
        "tolerations": nodes.get("tolerations") if _TOLERATIONS in passed.given else None,
        "nodeSelector": nodes.get("nodeSelector") if _SELECTOR in passed.given else None,
        "env": _env(env, kubernetes) if _ENV in passed.given else None,
        "volumes": [volume for volume, _ in volumes] or None,
        "volumeMounts": [mount for _, mount in volumes] or None,
        "resources": _resources(resources) if _RESOURCES in passed.given else {},
    }
    return sorted_json(config)


def with_workspace(config: Mapping[str, Any], passed: TaskConfigPassthrough, run: str) -> dict[str, Any]:
    """The config of a task that receives the path of the run's workspace: the volume of the workspace comes first."""
    if _VOLUMES not in passed.given:
        return dict(config)
    volume = _claim(_WORKSPACE_VOLUME, f"{run}-{_WORKSPACE_VOLUME}")
    mount = {"mountPath": _WORKSPACE_MOUNT, "name": _WORKSPACE_VOLUME}
    volumes, mounts = [volume, *(config["volumes"] or ())], [mount, *(config["volumeMounts"] or ())]
    return {**config, "volumes": volumes, "volumeMounts": mounts}


def _resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    resolved = {
        name: {key: canonical_quantity(str(one)) for key, one in amounts_in(resources, which).items()}
        for name, which in (("limits", "Limit"), ("requests", "Request"))
    }
    kind, count = map(str, accelerator_in(resources))
    if kind and count not in ("", "0"):
        resolved["limits"][kind] = canonical_quantity(count)
    return {which: amounts for which, amounts in resolved.items() if amounts}


def _env(env: Mapping[str, str], kubernetes: Mapping[str, Any]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [nonempty({"name": name, "value": value}) for name, value in env.items()]
    for word, key in (("secret", "secretKeyRef"), ("configMap", "configMapKeyRef")):
        for each, name in _named(kubernetes, f"{word}AsEnv", word):
            optional = {"optional": each["optional"]} if "optional" in each else {}
            for pair in each.get("keyToEnv") or ():
                reference = {"name": name, "key": str(pair[f"{word}Key"]), **optional}
                variables.append({"name": str(pair["envVar"]), "valueFrom": {key: reference}})
    fields = {str(each["name"]): str(each["fieldPath"]) for each in kubernetes.get("fieldPathAsEnv") or ()}
    variables += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    return variables


def _volumes(kubernetes: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every volume with its mount, in the order of the backend."""
    for each in kubernetes.get("pvcMount") or ():
        name = each.get("pvcNameParameter")
        if name is not None:
            mount = nonempty({"name": str(name), "mountPath": each.get("mountPath"), "subPath": each.get("subPath")})
            yield _claim(str(name), str(name)), mount
    for word, source, key in (("secret", "secret", "secretName"), ("configMap", "configMap", "name")):
        for each, name in _named(kubernetes, f"{word}AsVolume", word):
            volume = {"name": name, source: {key: name, "optional": bool(each.get("optional"))}}
            yield volume, nonempty({"name": name, "mountPath": each.get("mountPath")})


def _named(kubernetes: Mapping[str, Any], key: str, word: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The entries of a kind with their names; one whose name is an input without a value is left out."""
    for each in kubernetes.get(key) or ():
        parameter = f"{word}NameParameter"
        name = each.get(parameter) if parameter in each else each.get(f"{word}Name")
        if name is not None:
            yield each, str(name)


def _claim(name: str, claim: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


POD_SETTINGS = (
    "secretAsEnv", "secretAsVolume", "configMapAsEnv", "configMapAsVolume", "fieldPathAsEnv", "pvcMount", "emptyDirMounts",
    "genericEphemeralVolume",
)  # fmt: skip
"""The settings of ``platforms.kubernetes`` that make up the pod config."""

FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
"""The fields of a pod that a variable may hold, beside ``metadata.labels['KEY']`` and ``metadata.annotations['KEY']``."""

_KEYED_FIELD = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_SECRET, _CONFIG_MAP = "secret", "config map"


def with_pvc_name_parameters(kubernetes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings, each PVC with a ``pvcNameParameter``: older versions of the SDK write its name in other fields."""
    mounts = kubernetes.get("pvcMount")
    if not mounts:
        return kubernetes
    return {**kubernetes, "pvcMount": [_with_pvc_name_parameter(mount) for mount in mounts]}


def _with_pvc_name_parameter(mount: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {key: mount[key] for key in ("mountPath", "subPath", "pvcNameParameter") if key in mount}
    if "pvcNameParameter" not in renamed:
        old = ("taskOutputParameter", "componentInputParameter")
        renamed["pvcNameParameter"] = {key: mount[key] for key in old if mount.get(key)} or mount.get("constant")
    return renamed


def read_pod_config(settings: Mapping[str, Any]) -> PodConfig:
    """Read the pod config of one task from its settings, references replaced by their values.

    An entry whose name is null is left out. A name whose reference has no value yet is empty. Raises ``ValueError`` for a mount
    at no path or above one, for a field that pods do not have, and for init containers (kfp-kubernetes after 2.17), because the
    task needs what they prepare.
    """
    if settings.get("initContainers"):
        raise ValueError("initContainers are not supported: make their work a separate task")
    return PodConfig(
        key_refs=tuple(_key_refs(settings)),
        pvcs=tuple(
            PvcMount(
                _name_or_empty(each["pvcNameParameter"]),
                _mount_path(each, "pvcMount"),
                _sub_path(each),
            )
            for each in settings.get("pvcMount") or ()
            if each.get("pvcNameParameter") is not None
        ),
        scratch=tuple(_scratch(settings)),
        fields={_text(each, "name"): _field(_text(each, "fieldPath")) for each in settings.get("fieldPathAsEnv") or ()},
    )


def _key_refs(settings: Mapping[str, Any]) -> Iterator[KeyRefs]:
    for kind, word in ((_SECRET, "secret"), (_CONFIG_MAP, "configMap")):
        for each in settings.get(f"{word}AsEnv") or ():
            name = _name(each, word)
            keys = {_text(pair, "envVar"): _text(pair, f"{word}Key") for pair in each.get("keyToEnv") or ()}
            if name is not None:
                yield KeyRefs(kind, name, bool(each.get("optional")), env=keys)
        for each in settings.get(f"{word}AsVolume") or ():
            name = _name(each, word)
            if name is not None:
                yield KeyRefs(kind, name, bool(each.get("optional")), mount=_mount_path(each, f"{word}AsVolume"))


def _name(each: Mapping[str, Any], word: str) -> str | None:
    """The name of a secret or config map; ``None`` for an input without a value."""
    parameter = f"{word}NameParameter"
    name = each.get(parameter) if parameter in each else each.get(f"{word}Name")
    return None if name is None else _name_or_empty(name)


def _name_or_empty(name: Any) -> str:
    return "" if isinstance(name, Mapping) else str(name)


def _scratch(settings: Mapping[str, Any]) -> Iterator[ScratchVolume]:
    for each in settings.get("emptyDirMounts") or ():
        size = parse_quantity(str(each["sizeLimit"])) if each.get("sizeLimit") else None
        in_memory = each.get("medium") == "Memory"
        yield ScratchVolume(
            str(each.get("volumeName")),
            _mount_path(each, "emptyDirMounts"),
            in_memory,
            None if size is None else int(size),
        )
    for each in settings.get("genericEphemeralVolume") or ():
        yield ScratchVolume(str(each.get("volumeName")), _mount_path(each, "genericEphemeralVolume"))


def _mount_path(each: Mapping[str, Any], setting: str) -> str:
    """The path of a mount. One without a leading slash is below the root, as for the kubelet (``makeMounts``)."""
    path = _text(each, "mountPath")
    if ".." in path.split("/") or not path.strip("/"):
        raise ValueError(f"{setting}: expected an absolute path other than /, found {path!r}")
    return "/" + path.strip("/")


def _text(each: Any, key: str) -> str:
    value = each.get(key) if isinstance(each, Mapping) else None
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, found {'nothing' if value is None else repr(value)}")
    return value


def _sub_path(each: Mapping[str, Any]) -> str:
    path = str(each.get("subPath") or "")
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"pvcMount: its subPath {path!r} points outside the volume")
    return path


def _field(path: str) -> str:
    if path not in FIELDS and not _KEYED_FIELD.fullmatch(path):
        raise ValueError(
            f"fieldPathAsEnv: expected {', '.join(FIELDS)}, metadata.labels['KEY'] or metadata.annotations['KEY'], "
            f"found {path!r}"
        )
    return path


PLACEMENT = "placement:"
"""Prefix of the names in ``TaskSpec.parameters`` that only the task's placement needs; the code never gets them."""

_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\[['\"](.+?)['\"]\]\}\}")
_NOTHING_PASSED = TaskConfigPassthrough()
_REFERENCES = ("componentInputParameter", "taskOutputParameter", "runtimeValue")
_LISTS, _MAPPINGS = ("tolerations", "nodeAffinity", *POD_SETTINGS), ("nodeSelector", "podMetadata")
_SUPPORTED = {
    "tolerations", "nodeSelector", "nodeAffinity", "podMetadata", "activeDeadlineSeconds", "imagePullPolicy",
    "enabledSharedMemory", *POD_SETTINGS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of one task, in the terms of :class:`~spotwright.graph.TaskSpec`.

    ``sources`` are inputs that only the placement needs, ``inputs`` the code's inputs that its resources read.
    ``ignored`` names settings without a meaning on one machine. ``timeout`` is seconds. ``config`` is the value of a
    ``dsl.TaskConfig``. ``deferred`` has the raw settings if some wait for values of the run.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    inputs: frozenset[str] = frozenset()
    passed: TaskConfigPassthrough = field(default_factory=TaskConfigPassthrough)
    config: Mapping[str, Any] = field(default_factory=dict)
    deferred: Mapping[str, Any] = field(default_factory=dict)
    pod_config: PodConfig = field(default_factory=PodConfig)
    ignored: tuple[str, ...] = ()


def read_settings(
    container: Mapping[str, Any], kubernetes: Mapping[str, Any], passed: TaskConfigPassthrough = _NOTHING_PASSED
) -> TaskSettings:
    """Read a container's resources and its entry under ``platforms.kubernetes``. Raises ``ValueError`` for wrong values."""
    _check_kinds(kubernetes)
    sources: dict[str, Source] = {}
    settings = _take_references(with_pvc_name_parameters(kubernetes), sources)
    resources = dict(container.get("resources") or {})
    inputs = set(_INPUT.findall(" ".join(_texts(resources))))
    env = {str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or ()}
    deferred = {"resources": resources, "kubernetes": settings, "env": env} if sources or inputs else {}
    pod_resources, pod_settings = passed.of_pod(resources, settings)
    requests, limits = read_resources(_without_inputs(pod_resources))
    constraints = _constraints(_without_references(pod_settings))  # also where deferred: for errors before the run
    metadata = settings.get("podMetadata") or {}
    seconds = float(settings.get("activeDeadlineSeconds") or 0)
    return TaskSettings(
        requests=requests,
        limits=limits,
        constraints=Constraints() if sources else constraints,
        labels={str(k): str(v) for k, v in (metadata.get("labels") or {}).items()},
        annotations={str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()},
        timeout=seconds or None,
        sources=sources,
        inputs=frozenset(inputs),
        passed=passed,
        config={} if deferred or not passed.given else task_config(passed, env, resources, settings),
        deferred=deferred,
        pod_config=read_pod_config(pod_settings),
        ignored=tuple(key for key in sorted(settings) if settings[key] and _is_ignored(key, settings)),
    )


def _constraints(kubernetes: Mapping[str, Any]) -> Constraints:
    fields = pod_fields(kubernetes)
    for one in fields.refusals:
        raise ValueError(f"{'.'.join(map(str, one.path))}: {one.text}")
    return scheduling_of(fields.spec)


def _check_kinds(kubernetes: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a setting of the wrong kind now: deferred settings are read only during the run."""
    for key, value in kubernetes.items():
        if key in _LISTS and not (
            isinstance(value, list | None) and all(isinstance(each, Mapping) for each in value or ())
        ):
            raise ValueError(f"{key}: expected a list of mappings, found {value!r:.60}")
        if key in _MAPPINGS and not isinstance(value, Mapping | None):
            raise ValueError(f"{key}: expected a mapping, found {value!r:.60}")


def _without_inputs(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources that wait for no value of the run."""
    return {key: value for key, value in resources.items() if not any(_INPUT.search(text) for text in _texts(value))}


def _without_references(item: Any) -> Any:
    """The settings that wait for no value of the run."""
    if isinstance(item, Mapping):
        return {key: _without_references(value) for key, value in item.items() if not _is_reference(value)}
    if isinstance(item, list):
        left = [(value, _without_references(value)) for value in item if not _is_reference(value)]
        return [rest for value, rest in left if rest or not value]  # an entry may be only a reference
    return item


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {PLACEMENT}


def _is_ignored(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting has no meaning on one machine: pod labels and annotations matter only if the code reads them."""
    if key != "podMetadata":
        return key not in _SUPPORTED
    field_paths = " ".join(str(entry.get("fieldPath")) for entry in settings.get("fieldPathAsEnv") or ())
    names = [name for group in settings[key].values() for name in group]
    return any(not name.startswith("spotwright.dev/") and f"['{name}']" not in field_paths for name in names)


def read_deferred(task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
    """The task with its deferred settings read from the values of its inputs; the task itself without any.

    ``values`` holds the value of every name in ``task.parameters``. Raises :class:`PipelineError` for an invalid quantity,
    toleration, selector or affinity.
    """
    if not task.deferred:
        return task
    try:
        resources, kubernetes = (_with_values(task.deferred[part], values) for part in ("resources", "kubernetes"))
        extension, passed = task.extension, task_config_of(task).passed
        if passed.given:
            config = task_config(passed, task.deferred["env"], resources, kubernetes)
            extension = dataclasses.replace(task_config_of(task), values=config)
        resources, kubernetes = passed.of_pod(resources, kubernetes)
        requests, limits = read_resources(resources)
        constraints, pod_config = _constraints(kubernetes), read_pod_config(kubernetes)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise PipelineError(f"task {task.name}: its placement or resources cannot be read: {error}") from error
    return dataclasses.replace(
        task,
        requests=requests,
        limits=limits,
        constraints=constraints,
        pod_config=pod_config,
        deferred={},
        extension=extension,
    )


def _with_values(item: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(item, str):
        return _INPUT.sub(lambda match: to_text(values[match.group(1)]), item)
    if isinstance(item, Mapping):
        if set(item) == {PLACEMENT}:
            return values[item[PLACEMENT]]
        return {key: _with_values(value, values) for key, value in item.items()}
    if isinstance(item, list):
        return [_with_values(value, values) for value in item]
    return item


def _take_references(item: Any, sources: dict[str, Source]) -> Any:
    """The settings, each reference replaced by the name of a source that is added to ``sources``, each constant by its value."""
    if isinstance(item, list):
        return [_take_references(value, sources) for value in item]
    if not isinstance(item, Mapping):
        return item
    if len(item) == 1 and next(iter(item)) in _REFERENCES:
        if "runtimeValue" in item:
            return item["runtimeValue"].get("constant")
        return {PLACEMENT: _add_source(item, sources)}
    return {key: _take_references(value, sources) for key, value in item.items()}


def _add_source(reference: Mapping[str, Any], sources: dict[str, Source]) -> str:
    output = reference.get("taskOutputParameter")
    source: Source
    if output is not None:
        source = TaskOutput(_name_in(output["producerTask"]), _name_in(output["outputParameterKey"]))
        name = f"{PLACEMENT}{source.task}.{source.output}"
    else:
        source = DagInput(_name_in(reference["componentInputParameter"]))
        name = f"{PLACEMENT}{source.name}"
    sources[name] = source
    return name


def _name_in(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected the name of a task, output or input, found {value!r}")
    return value


def _texts(item: Any) -> list[str]:
    if isinstance(item, Mapping):
        return [text for value in item.values() for text in _texts(value)]
    return [item] if isinstance(item, str) else []
