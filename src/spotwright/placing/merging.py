"""Place pods whose fields come from several sources: a runtime and its patches, a workflow and its templates, a patch as text.

The shared rules (:mod:`spotwright.placing.pods`) take one pod spec. So the spec is merged first, as the controller will, and
the rules are applied to it. Then the additions are written where the kind allows it: beside the user's own values, or whole if
a field is not set there yet, because a new value would hide the inherited one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotwright.placing.context import PlaceContext
from spotwright.placing.documents import ManifestError, Path
from spotwright.placing.patch import Editor, value_at
from spotwright.placing.pods import Placed, Role, place_pod

__all__ = ["place_merged", "strategic", "write"]


_JOINED: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that a strategic merge patch merges, each with its merge key (``patchStrategy`` in k8s.io/api/core/v1)."""


@dataclass(slots=True)
class _Merged(Editor):
    """An editor of a merged value outside the document; every other path is read from the real editor."""

    real: Editor | None = None
    root: Path = ()
    places: Mapping[Path, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep the given value; it is copied where it is changed."""

    def get(self, path: Path, default: Any = None) -> Any:
        if path[: len(self.root)] == self.root:
            return value_at(self.data, path[len(self.root) :], default)
        return self.real.get(path, default) if self.real is not None else default

    def problem(self, path: Path, text: str) -> ManifestError:
        return Editor.problem(self, self.places.get(path, path), text)

    def _reach(self, path: Path) -> tuple[Any, int]:
        value, depth = Editor._reach(self, path[len(self.root) :])  # noqa: SLF001 (super() knows no class that has slots)
        return value, depth + len(self.root)

    def _writable(self, path: Path) -> Any:
        return Editor._writable(self, path[len(self.root) :])  # noqa: SLF001


def place_merged(
    ctx: PlaceContext, role: Role, value: dict[str, Any], places: Mapping[Path, Path] | None = None
) -> tuple[Placed, dict[str, Any]]:
    """Place a merged pod spec; returns also the placed value. It does not write to the document: see :func:`write`.

    ``value`` is the merged value for ``role.template``, or for ``role.spec`` if the role has no template; neither path has to be
    in the document. ``places``: where values of the merged spec come from, by their paths in it, for messages.
    """
    root = role.spec if role.template is None else role.template
    merged = _Merged(ctx.editor.document, [], value, ctx.editor, root, places or {})
    placed = place_pod(replace(ctx, editor=merged), role)
    return placed, merged.data


def write(editor: Editor, path: Path, before: Any, after: Any) -> None:
    """Write the additions from ``before`` to ``after`` at ``path``; write all of ``after`` if the path is empty."""
    if after == before:
        return
    own = editor.get(path)
    if own is None:
        editor.add(path, after)
    elif isinstance(own, dict) and isinstance(after, dict):
        old = before if isinstance(before, dict) else {}
        for key, value in after.items():
            write(editor, (*path, key), old.get(key), value)
    elif isinstance(own, list) and isinstance(after, list):
        kept = len(own)
        for index, (old, new) in enumerate(zip(own, after[:kept], strict=True)):
            write(editor, (*path, index), old, new)
        editor.extend(path, after[kept:])
    else:
        editor.add(path, after)


def strategic(base: Any, patch: Any) -> Any:
    """``base`` with a strategic merge patch of (a part of) a pod spec applied; neither argument is changed.

    Mappings are merged key by key, some lists item by item, other lists replaced. Source: Kubernetes, "Update API Objects
    in Place Using kubectl patch", and the ``patchStrategy`` of the fields of ``core/v1``.
    """
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    result = dict(base)
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
        merge_key = _key(item, key, index)
        merged[merge_key] = strategic(merged.get(merge_key), item)
    return list(merged.values())


def _key(item: Any, key: str, index: int) -> Any:
    return item.get(key, index) if isinstance(item, dict) else index
