"""Check which fields are lists, mappings or scalars, and refuse a wrong one at its line, before any rule reads it.

A shape is a mapping of fields to their shapes, a list with the shape of its items, or :data:`TEXT`. Fields that are not in the
shape may have any value, and no field is required. :data:`OPEN` in a mapping allows a placeholder instead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.yamltext.documents import ManifestError, Path

__all__ = ["CONTAINER", "METADATA", "POD", "TEMPLATE", "TEXT", "Place", "check", "check_value"]

TEXT = "text"
"""The shape of a scalar: a text, a number or a truth value."""

OPEN = "{{...}}"
"""The key of a mapping that a placeholder of Argo or Katib may replace."""

METADATA: Mapping[str, Any] = {"labels": {}, "annotations": {}}

_TERM = {
    "matchExpressions": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
    "matchFields": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
}
CONTAINER = {
    "name": TEXT,
    "env": [{"name": TEXT}],
    "volumeMounts": [{"mountPath": TEXT}],
    "resources": {OPEN: TEXT, "limits": {OPEN: TEXT}, "requests": {OPEN: TEXT}},
}
"""The fields of a container that are read or added to."""

POD: Mapping[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": TEXT, "preference": _TERM}],
        }
    },
    "containers": [CONTAINER],
    "imagePullSecrets": [{"name": TEXT}],
    "initContainers": [CONTAINER],
    "nodeSelector": {},
    "tolerations": [{"key": TEXT}],
    "volumes": [{"name": TEXT}],
}
"""The fields of a pod spec that are read or added to. Source: Kubernetes API reference, PodSpec."""

TEMPLATE: Mapping[str, Any] = {"metadata": METADATA, "spec": POD}
"""A pod template."""


class Place(Protocol):
    """Where a value was read: a document, or whatever else can name the place of a path in a message."""

    def problem(self, path: Path, text: str, /) -> ManifestError:
        """An error at a path."""


def check(ctx: PlaceContext, path: Path, shape: Any) -> None:
    """Check the value at ``path`` (absolute). Raises :class:`ManifestError` with its line if it has another shape."""
    value = ctx.editor.get(path)
    if value is not None:
        check_value(ctx, path, value, shape)


def check_value(place: Place, path: Path, value: Any, shape: Any) -> None:
    """Check a value that was read already from ``place``, which names the line."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            if OPEN in shape and isinstance(value, str) and ("{{" in value or "${" in value):
                return
            raise place.problem(path, f"expected a mapping, found {value!r}")
        for name, inner in shape.items():
            field = value.get(name)
            if field is not None and (inner is not TEXT or isinstance(field, dict | list)):
                check_value(place, (*path, name), field, inner)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise place.problem(path, f"expected a list, found {value!r}")
        for index, item in enumerate(value):
            check_value(place, (*path, index), item, shape[0])
    elif isinstance(value, dict | list):
        raise place.problem(path, f"expected a text or a number, found {value!r}")
