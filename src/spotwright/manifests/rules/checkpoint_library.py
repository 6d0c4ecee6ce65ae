"""Brings the checkpoint library to pods whose image may lack it, as ``target.package`` says.

An image cannot be looked into here. What is visible is the text of a container's command: where it imports Spotwright and nothing
brings the library, a warning names the ways out. With ``package: embedded`` a ConfigMap in front of each object holds the library
as one file; it is mounted, and ``PYTHONPATH`` names it. With ``package: configmap`` all pods of a namespace mount one ConfigMap,
which somebody makes there once. A path in the image goes into ``PYTHONPATH`` alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file, config_map, imports_spotwright
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.yamltext.documents import Path

__all__ = [
    "LIBRARY_MOUNT",
    "MAKE_CONFIG_MAP",
    "NO_PLACE",
    "WAYS",
    "Delivery",
    "add_library",
    "delivery",
    "installs_spotwright",
    "needs_place",
]

WAYS = (
    "install spotwright in the image and set target: {package: image} in spotwright.yaml, or name its path in the image "
    "(package: /PATH)"
)
"""The ways out that every kind has, for messages."""

NO_PLACE = (
    "its code calls Checkpoint(), and its policy names no checkpoint, so what it saves goes with its pod: set checkpoint to "
    "pvc://NAME or a URL in the policy"
)
"""The warning for code whose saves no later attempt would find."""

_INSTALLS_IT = re.compile(
    r"\bpip[\d.]*\s+install[^\n]*?(?:['\"\s]spotwright(?=['\"\s\[=<>!~@;]|$)|/spotwright-[\d.]+[^'\"\s]*\.(?:whl|tar\.gz))"
)
_WITHOUT_PLACE = re.compile(r"\bCheckpoint\(\s*(?:\)|\w+\s*=)")
LIBRARY_MOUNT = "/spotwright/library"
"""The folder in which pods have the library's file where a ConfigMap brings it."""

MAKE_CONFIG_MAP = "spotwright checkpoint-file --config-map | kubectl -n NAMESPACE apply -f -"
"""What makes the ConfigMap that all pods of a namespace mount."""

_VOLUME = "spotwright-library"


class Delivery(StrEnum):
    """How pods get the library."""

    EMBEDDED = "embedded"  # in the file that is applied or uploaded
    CONFIG_MAP = "configmap"  # in a ConfigMap that the namespace has
    IMAGE = "image"  # the image has it where Python finds it
    PATH = "path"  # the image has it at a path
    PIP = "pip"  # a version or a URL, installed at the start of KFP components


def delivery(target: Mapping[str, str]) -> tuple[Delivery | None, str]:
    """What ``target.package`` says, with its value; ``None`` where it says nothing."""
    package = target.get("package", "")
    if not package:
        return None, ""
    if package in (Delivery.EMBEDDED, Delivery.CONFIG_MAP, Delivery.IMAGE):
        return Delivery(package), ""
    if package.startswith("/"):
        return Delivery.PATH, package
    return Delivery.PIP, package if "://" in package else f"spotwright=={package}"


def installs_spotwright(text: str) -> bool:
    """Whether a command visibly installs the package with pip, as that of ``packages_to_install`` does."""
    return _INSTALLS_IT.search(text) is not None


def needs_place(text: str) -> bool:
    """Whether a program's text visibly leaves the place for its checkpoints to the policy."""
    return imports_spotwright(text) and _WITHOUT_PLACE.search(text) is not None


def add_library(ctx: PlaceContext, spec: Path, role: str, checkpoint: str | None) -> None:
    """Bring the library to the containers of a pod that has a place for checkpoints, or imports the library visibly."""
    how, value = delivery(ctx.config.target)
    containers = ctx.editor.get((*spec, "containers")) or ()
    visible = any(_lacks_library(_text(container)) for container in containers)
    if checkpoint is None and any(needs_place(_text(container)) for container in containers):
        ctx.add_finding(Level.WARNING, (*spec, "containers"), f"{role}: {NO_PLACE}")
    if how in (Delivery.EMBEDDED, Delivery.CONFIG_MAP, Delivery.PATH) and (visible or checkpoint is not None):
        path = value if how is Delivery.PATH else f"{LIBRARY_MOUNT}/{FILE_NAME}"
        if _set_python_path(ctx, spec, role, path) and how is not Delivery.PATH:
            _mount(ctx, spec, role, is_shared=how is Delivery.CONFIG_MAP)
    elif visible and how in (None, Delivery.PIP):
        cause = "" if how is None else "; target.package is installed in KFP components only"
        text = f"{role}: its command imports spotwright.checkpoint, and its image must have it{cause}: "
        text += f"{WAYS}, or let a ConfigMap bring it (package: embedded)"
        ctx.add_finding(Level.WARNING, (*spec, "containers"), text)


def _lacks_library(text: str) -> bool:
    return imports_spotwright(text) and not installs_spotwright(text)


def _text(container: Any) -> str:
    if not isinstance(container, dict):
        return ""
    return "\n".join(str(part) for key in ("command", "args") for part in container.get(key) or ())


def _set_python_path(ctx: PlaceContext, spec: Path, role: str, path: str) -> bool:
    """Add the variable to every container that lacks it. False where one has another value: what users wrote stays."""
    containers = ctx.editor.get((*spec, "containers")) or ()
    values = [_python_path(container) for container in containers]
    for index, value in enumerate(values):
        if value is not None and path not in value.split(":"):
            text = f"{role}: PYTHONPATH is set, so the checkpoint library is not added: append :{path} to its value"
            ctx.add_finding(Level.WARNING, (*spec, "containers", index, "env"), text)
            return False
    for index, value in enumerate(values):
        if value is None:
            ctx.editor.extend((*spec, "containers", index, "env"), [{"name": "PYTHONPATH", "value": path}])
    return True


def _python_path(container: Any) -> str | None:
    """The value of the variable in a container's env, as far as it stands there; ``None`` without the variable."""
    for item in container.get("env") or ():
        if isinstance(item, dict) and item.get("name") == "PYTHONPATH":
            return str(item.get("value", ""))
    return None


def _mount(ctx: PlaceContext, spec: Path, role: str, *, is_shared: bool) -> None:
    """Mount the object's own ConfigMap in every container, and put it in front of the object; or mount that of the namespace.

    The own one is named by a digest of the library and of the object's kind and name, so that deleting the objects of one file
    takes the library from no other object.
    """
    if any(one.get("name") == _VOLUME for one in ctx.editor.get((*spec, "volumes")) or () if isinstance(one, dict)):
        return  # placed before, by a runtime's or an owner's ConfigMap; a second mount at one path is refused
    object_ = config_map() if is_shared else _own_config_map(ctx)
    name = object_["metadata"]["name"]
    for index in range(len(ctx.editor.get((*spec, "containers")) or ())):
        mount = {"name": _VOLUME, "mountPath": LIBRARY_MOUNT, "readOnly": True}
        ctx.editor.extend((*spec, "containers", index, "volumeMounts"), [mount])
    ctx.editor.extend((*spec, "volumes"), [{"name": _VOLUME, "configMap": {"name": name}}])
    path_variable = "through PYTHONPATH; if an image sets PYTHONPATH itself, repeat its value in the container's env"
    if is_shared:
        text = (
            f"pods get spotwright.checkpoint from the ConfigMap {name} of their namespace, {path_variable}; make it there once: "
            f"{MAKE_CONFIG_MAP}"
        )
        ctx.add_finding(Level.NOTE, (), text)
    elif ctx.add is None or not ctx.add(object_):
        text = (
            f"{role}: its pods mount the ConfigMap {name}, which cannot be added to this file: run spotwright checkpoint-file, "
            f"then kubectl create configmap {name} --from-file={FILE_NAME}"
        )
        ctx.add_finding(Level.WARNING, (*spec, "volumes"), text)
    else:
        ctx.add_finding(
            Level.NOTE, (), f"the ConfigMap {name} brings spotwright.checkpoint to the pods, {path_variable}"
        )


def _own_config_map(ctx: PlaceContext) -> dict[str, Any]:
    owner = ctx.editor.document
    names = [str(owner.get(path, "")) for path in (("kind",), ("metadata", "name"), ("metadata", "generateName"))]
    digest = hashlib.sha256(checkpoint_file() + "/".join(names).encode()).hexdigest()
    namespace = owner.get(("metadata", "namespace"), None)
    return config_map(digest, namespace if isinstance(namespace, str) else None)
