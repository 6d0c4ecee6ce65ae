"""What must be a list, and what a mapping: a manifest that is neither is refused at its line, before anybody reads it.

A shape is a mapping of the fields that are read to their shapes, a list of one shape, or :data:`TEXT`. Fields that a shape does
not name may be anything, and nothing has to be there. :data:`OPEN` in a mapping allows a placeholder in its stead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Document, Path

__all__ = ["CONTAINER", "METADATA", "POD", "TEMPLATE", "TEXT", "check", "check_value"]

TEXT = "text"
"""A scalar: a text, a number, a truth value."""

OPEN = "{{...}}"
"""Says of a mapping that a placeholder of Argo or Katib may stand for the whole of it."""

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


def check(ctx: Context, path: Path, shape: Any) -> None:
    """Refuse what stands at ``path`` (absolute) where it has another shape. Raises :class:`ManifestError` with its line."""
    value = ctx.editor.get(path)
    if value is not None:
        check_value(ctx, path, value, shape)


def check_value(place: Context | Document, path: Path, value: Any, shape: Any) -> None:
    """The same for a value that was read already; ``place`` is where it stands, and names the line."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            if OPEN in shape and isinstance(value, str) and ("{{" in value or "${" in value):
                return
            raise place.problem(path, f"expected a mapping, found {value!r}")
        for name, inner in shape.items():
            found = value.get(name)
            if found is not None and (inner is not TEXT or isinstance(found, dict | list)):
                check_value(place, (*path, name), found, inner)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise place.problem(path, f"expected a list, found {value!r}")
        for index, item in enumerate(value):
            check_value(place, (*path, index), item, shape[0])
    elif isinstance(value, dict | list):
        raise place.problem(path, f"expected a text or a number, found {value!r}")
