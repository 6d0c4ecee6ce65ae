"""Adds the environment that every attempt has: run, task, attempt, notice and checkpoint.

The values come from fields of the pod, so that runs, indexes and attempts of one template differ. All attempts of one piece of
work in one run share one place for checkpoints, and no other work uses it. Pods whose image may lack the checkpoint library
get it, as ``target.package`` says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file, config_map, imports_spotwright
from spotwright.clouds.providers import is_accelerator
from spotwright.placing.context import Level, PlaceContext
from spotwright.placing.documents import Path

__all__ = [
    "CHECKPOINT_PATH",
    "LIBRARY_MOUNT",
    "MAKE_CONFIG_MAP",
    "NOTICE_PORT",
    "NO_PLACE",
    "WAYS",
    "AttemptIdentity",
    "Delivery",
    "add_environment",
    "add_library",
    "attempt_variables",
    "delivery",
    "installs_spotwright",
    "needs_place",
    "working_containers",
]


NOTICE_PORT = 8788
"""The default port of ``spotwright node-agent`` on every node."""

CHECKPOINT_PATH = "/spotwright/checkpoint"
"""The mount path of the volume of ``checkpoint: pvc://NAME``."""

_VOLUME = "spotwright-checkpoint"
_PVC = "pvc://"
_LABEL = "metadata.labels["
_FIELDS = ("metadata.", "status.", "spec.")
"""The beginnings of fields of a pod; the name of an object may have a dot too, but not after these words."""


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """The run, task and index of a pod. ``run`` and ``index`` are field paths (``metadata.labels['job-name']``), or texts.

    ``index`` is empty if pods have none or share their work. ``work`` names the work whose checkpoints belong together: the
    task's path, or the object if its roles work on one thing. ``task`` may be a label of the pod (``metadata.labels['task']``).
    """

    task: str
    work: str
    run: str = "metadata.name"
    index: str = ""


def add_environment(ctx: PlaceContext, spec: Path, identity: AttemptIdentity, checkpoint: str | None) -> None:
    """Add the variables to the containers of a pod spec that do its work, and the volume of the checkpoint. Existing ones stay.

    So do an existing mount at the checkpoint's path and an existing volume of its name, because the API server refuses a second
    one: a JobSet that Trainer makes of a placed runtime has both, with the runtime's name in the folder.
    """
    place, claim, mount = _checkpoint(identity, checkpoint)
    variables, mounted = list(_variables(identity, place)), False
    containers = ctx.editor.get((*spec, "containers")) or ()
    for index in working_containers(containers):
        container, path = containers[index], (*spec, "containers", index)
        names = {item.get("name") for item in container.get("env") or () if isinstance(item, dict)}
        ctx.editor.extend((*path, "env"), [item for item in variables if item["name"] not in names])
        if claim and not _has(container.get("volumeMounts"), "mountPath", CHECKPOINT_PATH):
            ctx.editor.extend((*path, "volumeMounts"), [mount])
            mounted = True
    if mounted and not _has(ctx.editor.get((*spec, "volumes")), "name", _VOLUME):
        volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim}}
        ctx.editor.extend((*spec, "volumes"), [volume])


_OF_WORK = frozenset({"jax", "main", "mpi", "node", "paddle", "pytorch", "tensorflow", "trainer", "xgboost"})
"""Names by which kinds know the container of the user's code: the training operator, Trainer, Argo and KFP."""

_SIDECARS = re.compile(
    r"istio|linkerd|envoy|proxy|vault-agent|fluent|filebeat|promtail|vector|datadog|otel|jaeger|exporter|git-sync|gcsfuse|nginx"
)


def working_containers(containers: Sequence[Any]) -> list[int]:
    """The indexes of the containers that do the work of a pod: sidecars beside them need nothing of ours.

    Of several containers: those with the name by which a kind knows the user's code, else those with accelerators, else all that
    are no proxies, log collectors and the like by name or image. A container that names a variable of ours or imports the library
    is among them in any case.
    """
    given = [container if isinstance(container, dict) else {} for container in containers]
    every = range(len(given))
    named = [index for index in every if given[index].get("name") in _OF_WORK]
    equipped = [index for index in every if _has_accelerators(given[index])]
    plain = [
        index for index in every if not _SIDECARS.search(f"{given[index].get('name')} {given[index].get('image')}")
    ]
    chosen = named or equipped or plain or list(every)
    return [index for index in every if index in chosen or _names_ours(given[index])]


def _has_accelerators(container: Mapping[str, Any]) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(is_accelerator(str(name)) for name in limits)


def _names_ours(container: Mapping[str, Any]) -> bool:
    text = f"{_text(container)} {container.get('env')}"
    return "SPOTWRIGHT_" in text or imports_spotwright(text)


def _has(items: Any, key: str, value: str) -> bool:
    """Whether one of the mappings in a list has a value."""
    return any(isinstance(item, dict) and item.get(key) == value for item in items or ())


def attempt_variables(identity: AttemptIdentity, checkpoint: str | None) -> list[dict[str, Any]]:
    """The variables, for kinds whose pods take variables and no mounts: the checkpoint is among them if it is a URL."""
    is_url = checkpoint is not None and not checkpoint.startswith(_PVC)
    return list(_variables(identity, _checkpoint(identity, checkpoint if is_url else None)[0]))


def _variables(identity: AttemptIdentity, place: str) -> Iterator[dict[str, Any]]:
    """The variables in order: Kubernetes resolves ``$(NAME)`` only from earlier variables."""
    yield _from_field("SPOTWRIGHT_RUN", identity.run)
    is_label = identity.task.startswith(_LABEL)  # no object has a bracket in its name
    yield (
        _from_field("SPOTWRIGHT_TASK", identity.task)
        if is_label
        else {"name": "SPOTWRIGHT_TASK", "value": identity.task}
    )
    if identity.index:
        yield _from_field("SPOTWRIGHT_INDEX", identity.index)
    yield _from_field("SPOTWRIGHT_POD_UID", "metadata.uid")
    yield _from_field("SPOTWRIGHT_HOST", "status.hostIP")
    yield {"name": "SPOTWRIGHT_NOTICE_URL", "value": f"http://$(SPOTWRIGHT_HOST):{NOTICE_PORT}/notice"}
    if place:
        yield {"name": "SPOTWRIGHT_CHECKPOINT", "value": place}


def _from_field(name: str, path: str) -> dict[str, Any]:
    if not path.startswith(_FIELDS):  # a text, or a template that Argo fills in
        return {"name": name, "value": path}
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _is_template(value: str) -> bool:
    """Whether Argo fills the value in, before the pod exists."""
    return "{{" in value


def _checkpoint(identity: AttemptIdentity, given: str | None) -> tuple[str, str, dict[str, str]]:
    """The value of the variable, and for a volume its claim and the mount of its folder, which the kubelet creates.

    Argo mounts the volumes of the main container into its own container ``wait`` as well, without the variables: there the
    kubelet refuses a ``subPathExpr`` (``missing value for SPOTWRIGHT_RUN``, seen on Argo 3.7.3). So the folder is a ``subPath``
    that Argo fills in.
    """
    if given is None:
        return "", "", {}
    parts = ["$(SPOTWRIGHT_RUN)", identity.work, *(["$(SPOTWRIGHT_INDEX)"] if identity.index else [])]
    if not given.startswith(_PVC):
        return "/".join([given.rstrip("/"), *parts]), "", {}
    key = "subPathExpr"
    if _is_template(identity.run):
        key = "subPath"
        parts = [identity.run, identity.work, *([identity.index] if identity.index else [])]
    claim, _, below = given.removeprefix(_PVC).strip("/").partition("/")
    folder = "/".join([below, *parts] if below else parts)
    return CHECKPOINT_PATH, claim, {"name": _VOLUME, "mountPath": CHECKPOINT_PATH, key: folder}


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

_LIBRARY_VOLUME = "spotwright-library"


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
    given = (container.get(key) for key in ("command", "args"))
    return "\n".join(str(part) for one in given if isinstance(one, list) for part in one)


def _set_python_path(ctx: PlaceContext, spec: Path, role: str, path: str) -> bool:
    """Add the variable to every working container that lacks it. False where one has another value: what users wrote stays."""
    containers = ctx.editor.get((*spec, "containers")) or ()
    values = {index: _python_path(containers[index]) for index in working_containers(containers)}
    for index, value in values.items():
        if value is not None and path not in value.split(":"):
            text = f"{role}: PYTHONPATH is set, so the checkpoint library is not added: append :{path} to its value"
            ctx.add_finding(Level.WARNING, (*spec, "containers", index, "env"), text)
            return False
    for index, value in values.items():
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
    """Mount the object's own ConfigMap in each working container, and put it before the object; or mount that of the namespace.

    The own one is named by a digest of the library and of the object's kind and name, so that deleting the objects of one file
    takes the library from no other object.
    """
    if any(
        one.get("name") == _LIBRARY_VOLUME for one in ctx.editor.get((*spec, "volumes")) or () if isinstance(one, dict)
    ):
        return  # placed before, by a runtime's or an owner's ConfigMap; a second mount at one path is refused
    object_ = config_map() if is_shared else _own_config_map(ctx)
    name = object_["metadata"]["name"]
    for index in working_containers(ctx.editor.get((*spec, "containers")) or ()):
        mount = {"name": _LIBRARY_VOLUME, "mountPath": LIBRARY_MOUNT, "readOnly": True}
        ctx.editor.extend((*spec, "containers", index, "volumeMounts"), [mount])
    ctx.editor.extend((*spec, "volumes"), [{"name": _LIBRARY_VOLUME, "configMap": {"name": name}}])
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
