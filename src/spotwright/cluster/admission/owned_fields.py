"""Tell what of an object its users wrote from what admission has added: the API server lists the fields of each writer.

``metadata.managedFields`` names the fields that each manager has set, with an update or a server-side apply. What a webhook adds
has no manager, because the fields are listed before webhooks are asked (Kubernetes 1.35, ``create.go`` and ``patch.go`` of
``staging/src/k8s.io/apiserver/pkg/endpoints/handlers``). A list that is one value to the API server, as most
lists of custom resources are, belongs to whoever wrote it, as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["without_unowned_fields"]

_EMPTY: Mapping[str, Any] = {}


def without_unowned_fields(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object with those fields of its spec alone that somebody has set; None if the API server does not tell."""
    managers = (data.get("metadata") or {}).get("managedFields") or ()
    owned = [fields for each in managers if isinstance(fields := _spec_of(each), dict)]
    spec = data.get("spec")
    if not owned or not isinstance(spec, dict):
        return None
    return {**data, "spec": _kept(spec, owned)}


def _spec_of(manager: Any) -> Any:
    fields = manager.get("fieldsV1") if isinstance(manager, dict) and not manager.get("subresource") else None
    return fields.get("f:spec") if isinstance(fields, dict) else None


def _kept(value: Any, owned: Sequence[Mapping[str, Any]]) -> Any:
    """The parts of a value that one of these sets of fields has; all of it where a set has nothing below it."""
    if any(not (fields.keys() - {"."}) for fields in owned):
        return value
    if isinstance(value, dict):
        below = {name: list(_below(owned, f"f:{name}")) for name in value}
        return {name: _kept(item, below[name]) for name, item in value.items() if below[name]}
    if isinstance(value, list):
        items = ((item, list(_of_item(owned, item))) for item in value)
        return [_kept(item, below) for item, below in items if below]
    return value


def _below(owned: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    return (fields[key] for fields in owned if isinstance(fields.get(key), dict))


def _of_item(owned: Sequence[Mapping[str, Any]], item: Any) -> Iterator[Mapping[str, Any]]:
    """The fields of an item of a list whose items are told apart: by keys (``k:{"name":"a"}``), or by themselves (``v:"a"``)."""
    for fields in owned:
        for key, below in fields.items():
            kind, _, text = key.partition(":")
            if kind in ("k", "v") and isinstance(below, dict) and _is_it(item, kind, text):
                yield below


def _is_it(item: Any, kind: str, text: str) -> bool:
    try:
        told = json.loads(text)
    except ValueError:
        return False
    if kind == "v":
        return bool(item == told)
    return (
        isinstance(item, dict) and isinstance(told, dict) and all(item.get(key) == value for key, value in told.items())
    )
