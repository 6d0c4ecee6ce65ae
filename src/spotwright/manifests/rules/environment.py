"""Add the environment that every attempt has: run, task, attempt, notice and checkpoint.

The values come from fields of the pod, so that runs, indexes and attempts of one template differ. All attempts of one piece of
work in one run share one place for checkpoints, and no other work uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.yamltext.documents import Path

__all__ = ["CHECKPOINT_PATH", "NOTICE_PORT", "AttemptIdentity", "add_environment", "attempt_variables"]

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
    """Add the variables to every container of a pod spec, and the volume of the checkpoint. Existing variables stay.

    So do an existing mount at the checkpoint's path and an existing volume of its name, because the API server refuses a second
    one: a JobSet that Trainer makes of a placed runtime has both, with the runtime's name in the folder.
    """
    place, claim, mount = _checkpoint(identity, checkpoint)
    variables, mounted = list(_variables(identity, place)), False
    for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
        path = (*spec, "containers", index)
        names = {item.get("name") for item in container.get("env") or () if isinstance(item, dict)}
        ctx.editor.extend((*path, "env"), [item for item in variables if item["name"] not in names])
        if claim and not _has(container.get("volumeMounts"), "mountPath", CHECKPOINT_PATH):
            ctx.editor.extend((*path, "volumeMounts"), [mount])
            mounted = True
    if mounted and not _has(ctx.editor.get((*spec, "volumes")), "name", _VOLUME):
        volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim}}
        ctx.editor.extend((*spec, "volumes"), [volume])


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
