"""The configuration of a task's pod: variables from secrets, config maps and pod fields, and mounted volumes.

Every body provides the same to a task. On a cluster Kubernetes does it. On one machine a secret is looked up in
``spotwright.yaml`` or the environment, and a persistent volume claim is a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["KeyRefs", "PodConfig", "PvcMount", "ScratchVolume"]


@dataclass(frozen=True, slots=True)
class KeyRefs:
    """Keys of one secret or config map (``kind``): as variables, or all of them as files below ``mount``.

    ``env`` maps variables to keys. ``name`` is empty while it depends on inputs of the task.
    """

    kind: str
    name: str
    optional: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    mount: str = ""


@dataclass(frozen=True, slots=True)
class PvcMount:
    """A persistent volume claim at a path; ``below`` is a path within the volume (subPath)."""

    name: str
    mount: str
    below: str = ""


@dataclass(frozen=True, slots=True)
class ScratchVolume:
    """An empty volume of one attempt (emptyDir, ephemeral volume), in memory or on disk; ``size`` in bytes."""

    name: str
    mount: str
    in_memory: bool = False
    size: int | None = None


@dataclass(frozen=True, slots=True)
class PodConfig:
    """Variables and mounts of one task's pod. ``fields`` maps variables to fields of the pod."""

    key_refs: tuple[KeyRefs, ...] = ()
    pvcs: tuple[PvcMount, ...] = ()
    scratch: tuple[ScratchVolume, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def mounts(self) -> tuple[str, ...]:
        """Every path at which something is mounted."""
        paths = [*(refs.mount for refs in self.key_refs if refs.mount), *(pvc.mount for pvc in self.pvcs)]
        return (*paths, *(volume.mount for volume in self.scratch))

    def __bool__(self) -> bool:
        return bool(self.key_refs or self.pvcs or self.scratch or self.fields)
