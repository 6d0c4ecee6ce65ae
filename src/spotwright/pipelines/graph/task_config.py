"""``dsl.TaskConfig``: pass settings of a task's pod to its code, which may pass them on, for example to a TrainJob.

A component names the settings that its code receives (``task_config_passthroughs``). They are the value of its input of the type
``TASK_CONFIG``, and apply to its own pod only with ``apply_to_task``. Source: ``getTaskConfigOptions``, ``initPodSpecPatch`` and
``extendPodSpecPatch`` in ``backend/src/v2/driver`` of kubeflow/pipelines (``driver.go``, ``k8s.go``).

The code receives the settings of the pipeline, as on a cluster, and not those of the attempt's rung: outputs that depend on
them are the same on every node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.graph import TaskSpec
from spotwright.model.quantities import canonical_quantity
from spotwright.pipelines.ir.compiled import sorted_json

__all__ = ["TaskConfig", "TaskConfigPassthrough", "read_passthrough", "task_config", "task_config_of", "with_workspace"]

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
    """The settings that a component's code receives (``given``), and those of them that its own pod lacks (``withheld``)."""

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
    """The value of a ``dsl.TaskConfig``, in Kubernetes' field names; a setting that is not passed on is null, as in the backend.

    References in ``kubernetes`` must have been replaced by their values. Raises ``ValueError`` for a value that is no quantity.
    """
    volumes = list(_volumes(kubernetes)) if _VOLUMES in passed.given else []
    affinity = _affinity(kubernetes) if _AFFINITY in passed.given else {}
    config = {
        "affinity": {"nodeAffinity": affinity} if affinity else None,
        "tolerations": (list(_tolerations(kubernetes)) or None) if _TOLERATIONS in passed.given else None,
        "nodeSelector": _selector(kubernetes) if _SELECTOR in passed.given else None,
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
    resolved: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for which, amounts in (("Limit", resolved["limits"]), ("Request", resolved["requests"])):
        for name, unit in (("cpu", ""), ("memory", "G")):
            new, old = resources.get(f"resource{name.capitalize()}{which}"), resources.get(f"{name}{which}")
            if new or old:
                amounts[name] = canonical_quantity(str(new or f"{old}{unit}"))
    accelerator = resources.get("accelerator") or {}
    kind = accelerator.get("resourceType") or accelerator.get("type")
    count = accelerator.get("resourceCount") or accelerator.get("count")
    if kind and count and str(count) != "0":
        resolved["limits"][str(kind)] = canonical_quantity(str(count))
    return {which: amounts for which, amounts in resolved.items() if amounts}


def _env(env: Mapping[str, str], kubernetes: Mapping[str, Any]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [_nonempty(name=name, value=value) for name, value in env.items()]
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
            mount = _nonempty(name=str(name), mountPath=each.get("mountPath"), subPath=each.get("subPath"))
            yield _claim(str(name), str(name)), mount
    for word, source, key in (("secret", "secret", "secretName"), ("configMap", "configMap", "name")):
        for each, name in _named(kubernetes, f"{word}AsVolume", word):
            volume = {"name": name, source: {key: name, "optional": bool(each.get("optional"))}}
            yield volume, _nonempty(name=name, mountPath=each.get("mountPath"))


def _named(kubernetes: Mapping[str, Any], key: str, word: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The entries of a kind with their names; one whose name is an input without a value is left out."""
    for each in kubernetes.get(key) or ():
        parameter = f"{word}NameParameter"
        name = each.get(parameter) if parameter in each else each.get(f"{word}Name")
        if name is not None:
            yield each, str(name)


def _claim(name: str, claim: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def _selector(kubernetes: Mapping[str, Any]) -> dict[str, str] | None:
    selector = kubernetes.get("nodeSelector") or {}
    labels = selector.get("nodeSelectorJson") if "nodeSelectorJson" in selector else selector.get("labels")
    return {str(key): str(value) for key, value in labels.items()} if labels else None


def _tolerations(kubernetes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in kubernetes.get("tolerations") or ():
        given = entry.get("tolerationJson", [entry])
        for each in [given] if isinstance(given, Mapping) else given or ():
            seconds = each.get("tolerationSeconds")
            if each:
                fields = {key: each.get(key) for key in ("key", "operator", "value", "effect")}
                yield _nonempty(**fields, tolerationSeconds=None if seconds is None else int(seconds))


def _affinity(kubernetes: Mapping[str, Any]) -> dict[str, Any]:
    required: list[Any] = []
    preferred: list[Any] = []
    for entry in kubernetes.get("nodeAffinity") or ():
        if "nodeAffinityJson" in entry:
            whole = entry["nodeAffinityJson"] or {}
            required += (whole.get(f"required{_DURING}") or {}).get("nodeSelectorTerms") or ()
            preferred += whole.get(f"preferred{_DURING}") or ()
        elif entry.get("matchExpressions") or entry.get("matchFields"):
            term = _nonempty(**{key: entry.get(key) for key in ("matchExpressions", "matchFields")})
            weight = entry.get("weight")
            if weight is None:
                required.append(term)
            else:
                preferred.append({"weight": int(weight), "preference": term})
    whole = {
        f"required{_DURING}": {"nodeSelectorTerms": required} if required else None,
        f"preferred{_DURING}": preferred,
    }
    return _nonempty(**whole)


_DURING = "DuringSchedulingIgnoredDuringExecution"


def _nonempty(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: Go's JSON leaves out empty ones."""
    return {key: value for key, value in fields.items() if value not in (None, "", [])}
