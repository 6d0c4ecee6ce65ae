"""Compiled pipelines in which one executor serves two tasks by mistake.

The SDK (2.0 to 2.17) folds nested pipelines together by renaming their executors one after another. Where a new name is
one that the nested pipeline still uses, two components end up with one executor, in a random order per process, and with
it with one task's resources, environment, image and platform settings (``_rename_executor_labels`` in
``pipeline_spec_builder.py``). Each merge leaves the other executor behind without a component, which no sound compilation
does: that is the mark looked for here. Components that share an executor without such a leftover do so on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merged_executors"]


def merged_executors(ir: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The groups of components that were given one executor by mistake, each sorted; empty when there are none."""
    users: dict[str, list[str]] = {}
    for name, component in (ir.get("components") or {}).items():
        if component.get("executorLabel"):
            users.setdefault(component["executorLabel"], []).append(name)
    executors = (ir.get("deploymentSpec") or {}).get("executors") or {}
    if set(executors) <= set(users):
        return []
    return sorted(tuple(sorted(names)) for names in users.values() if len(names) > 1)
