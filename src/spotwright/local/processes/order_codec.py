"""Encode start orders as JSON for the supervisor's processes. Component sources go into files, so that each is sent once.

The readers are :mod:`~spotwright.local.supervisor.shim`, :mod:`~spotwright.local.supervisor.attempt_supervisor` and
:mod:`~spotwright.local.supervisor.executor_main`, which use only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from spotwright.local.processes.protocol import StartOrder
from spotwright.local.supervisor import cgroups

__all__ = ["OrderCodec", "cgroup_of"]


class OrderCodec:
    """Encodes the orders of a run. Component sources are written below the run's ``folder``, which is absolute."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._components: dict[str, str] = {}

    def encode(self, order: StartOrder) -> dict[str, Any]:
        """The order as JSON data. Raises ``OSError`` if the component's source cannot be written."""
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
            "group": cgroup_of(order),
            "secrets": [secret.decode("latin-1") for secret in order.secrets],
            "private": order.private.data if order.private is not None else None,
            "hold": order.hold,
        }

    def claim(self, order: StartOrder, pid: int) -> dict[str, Any]:
        """The fields of the claim by the shim with this pid that a sweep needs."""
        return {
            "folder": str(self._folder),
            "task": order.task,
            "attempt": order.attempt,
            "pid": pid,
            "group": cgroup_of(order),
            "container": order.container,
        }

    def _component(self, source: str) -> str:
        """Write a component's source to a file, once for all its attempts; workers of ``multiprocessing`` import it again."""
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


def cgroup_of(order: StartOrder) -> tuple[int, str, str] | None:
    """Version, parent and name for the attempt's control group; ``None`` without a limit, or if none can be made."""
    parent = cgroups.parent() if order.memory_limit is not None else None
    if parent is None:
        return None
    name = hashlib.sha256(json.dumps([order.run, order.task, order.attempt, order.epoch]).encode()).hexdigest()[:24]
    return parent.version, parent.path, name
