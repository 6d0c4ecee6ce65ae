"""A start order as the fork server's side reads it: JSON data that names files, so that no big text goes twice.

The readers are :mod:`.shim`, :mod:`.attending` and :mod:`.taskmain`, which have nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from spotwright.local import cgroups
from spotwright.local.orders import StartOrder

__all__ = ["Messages", "group_of"]


class Messages:
    """What is said of the attempts of a run. Sources of components go below its folder, which is absolute."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._components: dict[str, str] = {}

    def of(self, order: StartOrder) -> dict[str, Any]:
        """The order. Raises ``OSError`` where the component cannot be written."""
        marks = {"SPOTWRIGHT_RUN": order.run, "SPOTWRIGHT_TASK": order.task, "SPOTWRIGHT_ATTEMPT": str(order.attempt)}
        return {
            "key": order.key,
            "directory": order.directory,
            "folder": str(self._folder),
            "run": order.run,
            "task": order.task,
            "attempt": order.attempt,
            "epoch": order.epoch,
            "component": self._component(order.module) if not order.command else "",
            "command": order.command,
            "container": order.container,
            "mounts": order.mounts,
            "files": order.files,
            "fetches": order.fetches,
            "function": order.function,
            "executor_input": json.dumps(order.executor_input),
            "env": {**marks, **order.env},
            "timeout": order.timeout,
            "grace": order.grace,
            "memory_limit": order.memory_limit,
            "group": group_of(order),
            "mask": [secret.decode("latin-1") for secret in order.mask],
            "hold": order.hold,
        }

    def claim(self, order: StartOrder, pid: int) -> dict[str, Any]:
        """What the claim of the shim with this pid says, as far as a sweep needs it."""
        return {
            "folder": str(self._folder),
            "task": order.task,
            "attempt": order.attempt,
            "pid": pid,
            "group": group_of(order),
            "container": order.container,
        }

    def _component(self, source: str) -> str:
        """A component's source as a file, once for all its attempts: workers of ``multiprocessing`` import it again."""
        path = self._components.get(source)
        if path is None:
            folder = self._folder / "components" / hashlib.sha256(source.encode()).hexdigest()[:32]
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "ephemeral_component.py"
            temporary = folder / f".{os.getpid()}.tmp"
            temporary.write_text(source, "utf-8")
            temporary.rename(file)
            path = self._components[source] = str(file)
        return path


def group_of(order: StartOrder) -> tuple[int, str, str] | None:
    """Where the attempt's control group is to be made; ``None`` without a limit, or where none can be made."""
    parent = cgroups.parent() if order.memory_limit is not None else None
    if parent is None:
        return None
    name = hashlib.sha256(json.dumps([order.run, order.task, order.attempt, order.epoch]).encode()).hexdigest()[:24]
    return parent.version, parent.path, name
