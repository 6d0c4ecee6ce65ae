"""Pods whose fields come from several places: a runtime and its patches, a workflow and its templates, a patch that is a text.

The shared rules (:mod:`spotwright.manifests.pods`) look at one pod spec. Here that spec is put together first, as the controller
will do it, the rules are applied to it, and what they changed is written where the kind has room for it: beside what the user
wrote there, or whole where the place is still empty and would hide what was inherited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.manifests.edits import Editor, clone, value_at
from spotwright.manifests.pods import Placed, Role, place_pod

__all__ = ["place_merged", "strategic", "write"]

_JOINED: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that a strategic merge patch joins, by which key; other lists are replaced (``patchStrategy`` in k8s.io/api/core/v1)."""


@dataclass(slots=True)
class _Merged(Editor):
    """An editor of one value that stands nowhere in the document; everything else is read from the real one."""

    real: Editor | None = None
    root: Path = ()

    def __post_init__(self) -> None:
        """The value is given, and is changed in place."""

    def get(self, path: Path, default: Any = None) -> Any:
        if path[: len(self.root)] == self.root:
            return value_at(self.data, path[len(self.root) :], default)
        return self.real.get(path, default) if self.real is not None else default

    def _way(self, path: Path) -> tuple[Any, int]:
        value, depth = Editor._way(self, path[len(self.root) :])  # noqa: SLF001 (super() knows no class that has slots)
        return value, depth + len(self.root)

    def _writable(self, path: Path) -> Any:
        return value_at(self.data, path[len(self.root) :])

    def _guard(self, path: Path) -> None:
        """Nothing is shared here; whoever writes the result is guarded."""


def place_merged(ctx: Context, role: Role, value: dict[str, Any]) -> Placed:
    """Place a pod spec that was put together. ``value`` becomes what it must be for the pod to be placed.

    ``value`` stands for what would be at ``role.template``, or at ``role.spec`` where the role has no template; both may name
    places that are not in the document. Nothing is written: see :func:`write`.
    """
    root = role.spec if role.template is None else role.template
    merged = _Merged(ctx.editor.document, [], value, ctx.editor, root)
    return place_pod(replace(ctx, editor=merged), role)


def write(editor: Editor, path: Path, before: Any, after: Any) -> None:
    """Write at ``path`` what ``before`` became: additions only, to what stands there, or all of it where nothing does."""
    if after == before:
        return
    own = editor.get(path)
    if own is None:
        editor.add(path, after)
    elif isinstance(own, dict) and isinstance(after, dict):
        known = before if isinstance(before, dict) else {}
        for key, value in after.items():
            write(editor, (*path, key), known.get(key), value)
    elif isinstance(own, list) and isinstance(after, list):
        kept = len(own)
        for index, (old, new) in enumerate(zip(own, after[:kept], strict=True)):
            write(editor, (*path, index), old, new)
        editor.extend(path, after[kept:])
    else:
        editor.add(path, after)


def strategic(base: Any, patch: Any) -> Any:
    """What a strategic merge patch of (a part of) a pod spec makes of ``base``; neither is changed.

    Mappings are merged key by key, some lists item by item, other lists replaced. Source: Kubernetes, "Update API Objects
    in Place Using kubectl patch", and the ``patchStrategy`` of the fields of ``core/v1``.
    """
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return clone(patch)
    result = {key: clone(value) for key, value in base.items()}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif key in _JOINED and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = _joined(result[key], value, _JOINED[key])
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _joined(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {_key(item, key, index): item for index, item in enumerate(base)}
    for index, item in enumerate(patch):
        found = _key(item, key, index)
        merged[found] = strategic(merged.get(found), item)
    return list(merged.values())


def _key(item: Any, key: str, index: int) -> Any:
    return item.get(key, index) if isinstance(item, dict) else index
