"""Kinds that nobody here knows, placed where the user says their pod spec is (``--pod-path``).

Only what every pod understands is placed. What the kind does after an interruption is its own affair, and that is said.
"""

from __future__ import annotations

import re

from spotwright.errors import InputError
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path, show
from spotwright.manifests.pods import Role, place_pod

__all__ = ["place_at", "read_pod_path"]

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def read_pod_path(text: str) -> Path:
    """Read ``spec.worker.template.spec`` or ``spec.tasks[0].template.spec``. Raises :class:`InputError` for anything else."""
    steps = _STEP.findall(text)
    written = "".join(f"[{index}]" if index else f".{name}" for name, index in steps).removeprefix(".")
    if not steps or written != text:
        raise InputError(f"--pod-path {text!r}: expected the path of a pod spec, such as spec.template.spec")
    return tuple(int(index) if index else name for name, index in steps)


def place_at(ctx: Context, path: Path) -> None:
    """Place the pod spec at a path of the object."""
    template = path[:-1] if path[-1] == "spec" and len(path) > 1 else None
    role = Role(show(path), ctx.name, ctx.at(*path), ctx.at(*template) if template is not None else None)
    placed = place_pod(ctx, role)
    kind = ctx.get("kind")
    placed.report.after_interruption = f"what {kind} does when a pod is lost is not known here"
    if placed.on_spot:
        ctx.say(Level.WARNING, ctx.at("kind"), f"{kind}: only its pods are placed; see to its retries yourself")
