"""Read a task's :class:`~spotwright.graph.PodConfig` from ``platforms.kubernetes`` of a compiled pipeline.

Source: ``extendPodSpecPatch`` in ``backend/src/v2/driver/k8s.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.graph import KeyRefs, PodConfig, PvcMount, ScratchVolume
from spotwright.model.quantities import parse_quantity

__all__ = ["FIELDS", "POD_SETTINGS", "read_pod_config", "with_pvc_name_parameters"]

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
    at no path or above one, for a field that pods do not have, and for init containers (kfp-kubernetes after 2.17), because
    the task would miss what they prepare for it.
    """
    if settings.get("initContainers"):
        raise ValueError("initContainers are not supported: make their work a task of its own")
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
    """The name of a secret or config map; ``None`` where it is an input without a value."""
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
        raise ValueError(f"pvcMount: its subPath {path!r} leaves the volume")
    return path


def _field(path: str) -> str:
    if path not in FIELDS and not _KEYED_FIELD.fullmatch(path):
        raise ValueError(
            f"fieldPathAsEnv: expected {', '.join(FIELDS)}, metadata.labels['KEY'] or metadata.annotations['KEY'], "
            f"found {path!r}"
        )
    return path
