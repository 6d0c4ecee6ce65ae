"""Find executors that the SDK's compiler gave to several components by mistake.

The SDK (2.0 to 2.17) folds nested pipelines together by renaming their executors one after another. Where a new name is
one that the nested pipeline still uses, two components end up with one executor, in a random order per process: one then has
the other's resources, environment, image and platform settings (``_rename_executor_labels`` in ``pipeline_spec_builder.py``).
Each such merge leaves the other executor behind without a component, which no sound compilation does: that is the mark looked
for here. Components that share an executor without such a leftover do so on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["MergedExecutor", "merged_executors"]


class MergedExecutor(NamedTuple):
    """An executor that several components were given by mistake, and the executors that no component has any more."""

    label: str
    components: tuple[str, ...]
    unused: tuple[str, ...]


def merged_executors(ir: Mapping[str, Any]) -> list[MergedExecutor]:
    """The executors that were merged by mistake, in the order of their components; empty when there are none.

    Takes raw IR: values that are no mappings count as nothing.
    """
    users: dict[str, list[str]] = {}
    for name, component in _mapping(ir.get("components")).items():
        label = _mapping(component).get("executorLabel")
        if label:
            users.setdefault(str(label), []).append(str(name))
    executors = _mapping(_mapping(ir.get("deploymentSpec")).get("executors"))
    unused = tuple(sorted(str(label) for label in executors if label not in users))
    if not unused:
        return []
    merged = [MergedExecutor(label, tuple(sorted(names)), unused) for label, names in users.items() if len(names) > 1]
    return sorted(merged, key=lambda found: found.components)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
