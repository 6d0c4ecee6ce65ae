"""What a task finds around it in its pod: variables of secrets, config maps and the pod's own fields, and what is mounted.

All of it stands in the platform document, under ``platforms.kubernetes``, and means the same on one machine: a secret is
looked up in ``spotwright.yaml`` or the environment, a claim is a folder. Source: ``extendPodSpecPatch`` in
``backend/src/v2/driver/k8s.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.model.quantities import parse_quantity

__all__ = [
    "CLUSTERS_OWN",
    "FIELDS",
    "Claim",
    "Keyed",
    "Scratch",
    "Surroundings",
    "read_surroundings",
    "with_references",
]

CLUSTERS_OWN = (
    "secretAsEnv", "secretAsVolume", "configMapAsEnv", "configMapAsVolume", "fieldPathAsEnv", "pvcMount", "emptyDirMounts",
    "genericEphemeralVolume",
)  # fmt: skip
"""The settings that are read here."""

FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
"""The fields of a pod that may be asked for, beside ``metadata.labels['KEY']`` and ``metadata.annotations['KEY']``."""

_KEYED_FIELD = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_SECRET, _CONFIG_MAP = "secret", "config map"


@dataclass(frozen=True, slots=True)
class Keyed:
    """Keys of a secret or config map (``kind``): as variables, or all of them as files below ``mount``.

    ``env`` has the key of each variable. The ``name`` is empty until it is known, as with every name here.
    """

    kind: str
    name: str
    optional: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    mount: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A persistent volume claim at a path; ``below`` is a path within it."""

    name: str
    mount: str
    below: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty folder of the attempt's own. ``in_memory``: it is one of memory; ``size`` is bytes."""

    name: str
    mount: str
    in_memory: bool = False
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything of one task. ``fields`` are fields of its pod, by the variable that holds them."""

    keyed: tuple[Keyed, ...] = ()
    claims: tuple[Claim, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def mounts(self) -> tuple[str, ...]:
        """Every path at which something is mounted."""
        found = [*(each.mount for each in self.keyed if each.mount), *(claim.mount for claim in self.claims)]
        return (*found, *(each.mount for each in self.scratch))

    def __bool__(self) -> bool:
        return bool(self.keyed or self.claims or self.scratch or self.fields)


def with_references(kubernetes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings with every claim named as newer versions of the SDK name it; older ones have no ``pvcNameParameter``."""
    mounts = kubernetes.get("pvcMount")
    if not mounts:
        return kubernetes
    return {**kubernetes, "pvcMount": [_named(mount) for mount in mounts]}


def _named(mount: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: mount[key] for key in ("mountPath", "subPath", "pvcNameParameter") if key in mount}
    if "pvcNameParameter" not in known:
        old = ("taskOutputParameter", "componentInputParameter")
        known["pvcNameParameter"] = {key: mount[key] for key in old if mount.get(key)} or mount.get("constant")
    return known


def read_surroundings(known: Mapping[str, Any]) -> Surroundings:
    """Read the settings of one task, references replaced by their values. What has a name that is null is left out.

    A reference that still stands in the place of a name is not known yet. Raises ``ValueError`` for what cannot be: a
    mount at no path or above one, a field that pods do not have; and for containers that must run before the task
    (kfp-kubernetes after 2.17), because it would miss what they leave for it.
    """
    if known.get("initContainers"):
        raise ValueError("initContainers are not supported: make what they do a task of its own")
    return Surroundings(
        keyed=tuple(_keyed(known)),
        claims=tuple(
            Claim(_known(each["pvcNameParameter"]), _path(each, "pvcMount"), _below(str(each.get("subPath") or "")))
            for each in known.get("pvcMount") or ()
            if each.get("pvcNameParameter") is not None
        ),
        scratch=tuple(_scratch(known)),
        fields={_text(each, "name"): _field(_text(each, "fieldPath")) for each in known.get("fieldPathAsEnv") or ()},
    )


def _keyed(known: Mapping[str, Any]) -> Iterator[Keyed]:
    for kind, word in ((_SECRET, "secret"), (_CONFIG_MAP, "configMap")):
        for each in known.get(f"{word}AsEnv") or ():
            name = _name(each, word)
            keys = {_text(pair, "envVar"): _text(pair, f"{word}Key") for pair in each.get("keyToEnv") or ()}
            if name is not None:
                yield Keyed(kind, name, bool(each.get("optional")), env=keys)
        for each in known.get(f"{word}AsVolume") or ():
            name = _name(each, word)
            if name is not None:
                yield Keyed(kind, name, bool(each.get("optional")), mount=_path(each, f"{word}AsVolume"))


def _name(each: Mapping[str, Any], word: str) -> str | None:
    """Its name; ``None`` where that is an input that nobody gave."""
    parameter = f"{word}NameParameter"
    name = each.get(parameter) if parameter in each else each.get(f"{word}Name")
    return None if name is None else _known(name)


def _known(name: Any) -> str:
    return "" if isinstance(name, Mapping) else str(name)


def _scratch(known: Mapping[str, Any]) -> Iterator[Scratch]:
    for each in known.get("emptyDirMounts") or ():
        size = parse_quantity(str(each["sizeLimit"])) if each.get("sizeLimit") else None
        in_memory = each.get("medium") == "Memory"
        yield Scratch(
            str(each.get("volumeName")), _path(each, "emptyDirMounts"), in_memory, None if size is None else int(size)
        )
    for each in known.get("genericEphemeralVolume") or ():
        yield Scratch(str(each.get("volumeName")), _path(each, "genericEphemeralVolume"))


def _path(each: Mapping[str, Any], setting: str) -> str:
    """Where it is mounted. A path without a slash in front is below the root, as the kubelet has it (``makeMounts``)."""
    path = _text(each, "mountPath")
    if ".." in path.split("/") or not path.strip("/"):
        raise ValueError(f"{setting}: expected an absolute path other than /, found {path!r}")
    return "/" + path.strip("/")


def _text(each: Any, key: str) -> str:
    value = each.get(key) if isinstance(each, Mapping) else None
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, found {'nothing' if value is None else repr(value)}")
    return value


def _below(path: str) -> str:
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
