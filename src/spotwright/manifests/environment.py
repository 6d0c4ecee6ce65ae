"""What the code in a placed pod is told, and where its checkpoints are: the environment that every attempt has.

Names come by field path, so that runs, indexes and attempts of one template stay apart. All attempts of one piece of work in one
run have one place for checkpoints, and nobody else has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path

__all__ = ["CHECKPOINT_PATH", "NOTICE_PORT", "Identity", "tell_the_code"]

NOTICE_PORT = 8788
"""Where ``spotwright node-agent`` answers on every node unless it is told otherwise."""

CHECKPOINT_PATH = "/spotwright/checkpoint"
"""Where the volume of ``checkpoint: pvc://NAME`` is mounted."""

_VOLUME = "spotwright-checkpoint"
_PVC = "pvc://"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a pod is part of. ``run`` and ``index`` are field paths (``metadata.labels['job-name']``) or templates (``{{...}}``).

    ``index`` is empty where pods have none, or share their work; ``work`` is what checkpoints are kept for in a run: the task's
    path, or the object where its roles work on one thing.
    """

    task: str
    work: str
    run: str = "metadata.name"
    index: str = ""


def tell_the_code(ctx: Context, spec: Path, who: Identity, checkpoint: str | None) -> None:
    """Add the variables to every container of a pod spec, and the volume of the checkpoint. Names that are there stay."""
    place, volume = _checkpoint(who, checkpoint)
    variables = list(_variables(who, place))
    for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
        path = (*spec, "containers", index)
        known = {item.get("name") for item in container.get("env") or () if isinstance(item, dict)}
        ctx.editor.extend((*path, "env"), [item for item in variables if item["name"] not in known])
        if volume:
            below = {"name": _VOLUME, "mountPath": CHECKPOINT_PATH, "subPathExpr": volume[1]}
            ctx.editor.extend((*path, "volumeMounts"), [below])
    if volume:
        claim = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": volume[0]}}
        ctx.editor.extend((*spec, "volumes"), [claim])


def _variables(who: Identity, place: str) -> Iterator[dict[str, Any]]:
    """A variable stands before those that use it: Kubernetes looks up ``$(NAME)`` only among earlier ones."""
    yield _from_field("SPOTWRIGHT_RUN", who.run)
    yield {"name": "SPOTWRIGHT_TASK", "value": who.task}
    if who.index:
        yield _from_field("SPOTWRIGHT_INDEX", who.index)
    yield _from_field("SPOTWRIGHT_ATTEMPT", "metadata.name")
    yield _from_field("SPOTWRIGHT_HOST", "status.hostIP")
    yield {"name": "SPOTWRIGHT_NOTICE_URL", "value": f"http://$(SPOTWRIGHT_HOST):{NOTICE_PORT}/notice"}
    if place:
        yield {"name": "SPOTWRIGHT_CHECKPOINT", "value": place}


def _from_field(name: str, path: str) -> dict[str, Any]:
    if "{{" in path:  # Argo fills it in
        return {"name": name, "value": path}
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _checkpoint(who: Identity, given: str | None) -> tuple[str, tuple[str, str] | None]:
    """The value of the variable, and for a volume its claim with the folder below it, which the kubelet makes."""
    if given is None:
        return "", None
    own = f"$(SPOTWRIGHT_RUN)/{who.work}" + ("/$(SPOTWRIGHT_INDEX)" if who.index else "")
    if not given.startswith(_PVC):
        return f"{given.rstrip('/')}/{own}", None
    claim, _, below = given.removeprefix(_PVC).strip("/").partition("/")
    return CHECKPOINT_PATH, (claim, f"{below}/{own}" if below else own)
