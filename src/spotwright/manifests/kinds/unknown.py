"""Kinds that nobody here knows, placed where the user says their pod spec is (``--pod-path``), and otherwise named.

Only what every pod understands is placed. What the kind does after an interruption is its own affair, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spotwright.errors import InputError
from spotwright.manifests.context import Context, Finding, Level, name_of
from spotwright.manifests.documents import Document, Path, show
from spotwright.manifests.kinds import SERVED
from spotwright.manifests.pods import Role, place_pod

__all__ = ["passed_through", "place_at", "read_pod_path", "say_version"]

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


def passed_through(document: Document, api_version: str, kind: str) -> Iterator[Finding]:
    """What is said of an object that is left alone: loudly where it has pods, or is of a kind that is placed in another group."""
    if not kind:
        yield from _no_object(document)
        return
    name = name_of(document.get(("metadata",), {}))
    text = f"{kind} {name} ({api_version}): no kind that is placed; it passes through untouched"
    level = Level.NOTE
    if kind in SERVED and not api_version:
        level, text = (
            Level.WARNING,
            f"{kind} {name} has no apiVersion: write {SERVED[kind]}; it passes through untouched",
        )
    elif kind in SERVED:
        level, text = Level.WARNING, f"{text} (what is placed is a {kind} of {SERVED[kind]})"
    elif _has_pods(document.get((), None)):
        level, text = Level.WARNING, f"{text} (--pod-path says where its pods are)"
    yield Finding(level, document.file, document.line(("kind",)), ("kind",), text)


def _no_object(document: Document) -> Iterator[Finding]:
    """What is said of a document that is no object of Kubernetes: a list, a text, an error page, values of a chart."""
    value = document.get((), None)
    what = "has no kind" if isinstance(value, dict) else "is no mapping"
    text = f"this {what}, so it is no object of Kubernetes; it passes through untouched"
    yield Finding(Level.WARNING, document.file, document.line(()), (), text)


def _has_pods(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("containers"), list) or any(_has_pods(item) for item in value.values())
    return isinstance(value, list) and any(_has_pods(item) for item in value)


_OWN_WORDS = frozenset({"CronJob", "Experiment", "MPIJob"})
"""Kinds whose modules speak of their versions themselves."""


def say_version(ctx: Context, api_version: str, kind: str) -> None:
    """Warn of a version that no API server knows, where the kind is placed all the same."""
    served = SERVED.get(kind, api_version)
    if api_version != served and kind not in _OWN_WORDS and not api_version.startswith("kubeflow.org/"):
        ctx.say(Level.WARNING, ctx.at("apiVersion"), f"no API server knows {kind} of {api_version}: write {served}")
