"""One small module a family of kinds: how each carries its pods, and what it does when one of them is interrupted.

A module has a ``KINDS`` mapping from ``(group, kind)``, or ``(group/version, kind)`` where versions differ, to a function that
places one object: ``place(ctx) -> None``. A new kind is a new module in :data:`FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from spotwright.manifests.context import Context

__all__ = ["FAMILIES", "Place", "find_kind", "known_kinds"]

Place = Callable[[Context], None]
"""Places one object through its context."""

FAMILIES: tuple[str, ...] = (
    "argo",
    "core",
    "jobset",
    "katib",
    "kfp",
    "training",
    "trainjob",
    "untouched",
)
"""The modules of this package, imported when a kind is first looked up."""


def find_kind(api_version: str, kind: str) -> Place | None:
    """What places objects of a kind; ``None`` for kinds that pass through untouched."""
    kinds = known_kinds()
    return kinds.get((api_version, kind)) or kinds.get((api_version.rpartition("/")[0], kind))


@cache
def known_kinds() -> Mapping[tuple[str, str], Place]:
    """Every kind of every family."""
    found: dict[tuple[str, str], Place] = {}
    for name in FAMILIES:
        found.update(import_module(f"spotwright.manifests.kinds.{name}").KINDS)
    return found
