"""Restores the placement that an update removed from an object, so that applying the same file again changes nothing.

An apply replaces lists that it cannot merge (the tolerations of a Job, every list of a custom resource) with the file's. That
would drop placement's additions, or the API server would refuse the update, because most kinds fix their pods at creation. The
user's part is unchanged in two cases:

- Placing the object again gives the former pods.
- ``kubectl apply`` keeps the sent object in an annotation. If that is unchanged, the missing fields are ours, even if the
  policy has changed since, or another webhook's: JobSet adds fields only to new objects.

Otherwise the update is the user's and is left alone. Templates of future work (a CronJob, a WorkflowTemplate) are then placed
again, or their objects would have no placement. The object's managed fields say who wrote which field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.cluster.admit_objects import (
    ADMITTED_ANNOTATION,
    Outcome,
    Verdict,
    admitted_by,
    admitted_mark,
    is_admitted,
    is_ignored,
    kept_mark,
    place_as_new,
    pods_of,
    warnings_of,
)
from spotwright.cluster.api_defaults import LAST_APPLIED, dependent_defaults, without_defaults
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.kinds.kind import kind_of
from spotwright.kinds.trainjob import without_own_entries
from spotwright.manifests.objects import PlacedObject
from spotwright.placing.patch import Steps, json_pointer, patched, replacing

__all__ = ["Update", "restore_object", "without_unowned_fields"]


def without_unowned_fields(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object with only the fields of its spec that a manager set; None if the API server does not list them."""
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
    """The parts of a value in one of these sets of fields; all of it if a set names no field below it."""
    if any(not (fields.keys() - {"."}) for fields in owned):
        return value
    if isinstance(value, dict):
        below = {name: list(_below(owned, f"f:{name}")) for name in value}
        return {name: _kept(item, below[name]) for name, item in value.items() if below[name]}
    if isinstance(value, list):
        items = zip(value, _of_items(owned, value), strict=True)
        return [_kept(item, below) for item, below in items if below]
    return value


def _below(owned: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    return (fields[key] for fields in owned if isinstance(fields.get(key), dict))


def _of_items(owned: Sequence[Mapping[str, Any]], items: Sequence[Any]) -> Iterator[list[Mapping[str, Any]]]:
    """The fields of each item of a list whose items are identified by keys (``k:{"name":"a"}``), or by value (``v:"a"``).

    Users can write managed fields, so the fields are looked up instead of comparing each item with each field.
    """
    by_value: dict[str, list[Mapping[str, Any]]] = {}
    by_keys: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for key, below in ((key, below) for fields in owned for key, below in fields.items() if isinstance(below, dict)):
        kind, _, text = key.partition(":")
        value = _value_of(text) if kind in ("k", "v") else None
        if kind == "v":
            by_value.setdefault(_sorted(value), []).append(below)
        elif isinstance(value, dict) and (tuple(sorted(value)) in by_keys or len(by_keys) < _MOST_SETS_OF_KEYS):
            by_keys.setdefault(tuple(sorted(value)), {}).setdefault(_sorted(value), []).append(below)
    for item in items:
        found = [*by_value.get(_sorted(item), ())] if by_value else []
        for names, known in by_keys.items() if isinstance(item, dict) else ():
            found += known.get(_sorted({name: item.get(name) for name in names}), ())
        yield found


_MOST_SETS_OF_KEYS = 8  # of a list: Kubernetes has one


def _value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


_APPLY = "kubectl-client-side-apply"
"""The default field manager of ``kubectl apply``."""


def _may_change(data: Mapping[str, Any]) -> bool:
    return kind_of(str(data.get("apiVersion", "")), str(data.get("kind"))).may_change


class Update(NamedTuple):
    """An update: the object as stored in the cluster, and the field manager that its client names."""

    old: Mapping[str, Any]
    manager: str = ""


def restore_object(
    data: Mapping[str, Any],
    update: Update,
    config: Config | None,
    beside: Sequence[Mapping[str, Any]] = (),
    by: str = "",
    *,
    steps: Steps | None = None,
) -> Outcome:
    """The outcome for an update to ``data``, which is not changed. The other arguments are as for a new object."""
    unchanged, old = Outcome(Verdict.NOTHING_TO_DO), update.old
    if not is_admitted(old) or is_ignored(data) or data.get("spec") == old.get("spec"):
        return unchanged
    rival = admitted_by(old) if by else ""
    if rival not in ("", by):  # the controller that placed it restores it
        return Outcome(Verdict.NOTHING_TO_DO, rival=rival)
    marks = {} if is_admitted(data) else kept_mark(old)
    again = _placed_again(data, config, beside, marks, steps)
    if again is None or not _is_placed_as(again.data, without_defaults(old)):
        again = _placed_from_scratch(data, old, config, beside, marks, steps) or again
    if again is not None and _is_placed_as(again.data, without_defaults(old)):
        spec = _with_defaults(data, again.data)
        return _restored(data, _filled(spec, old.get("spec")) if _is_same_file(data, update) else spec)
    if _is_same_file(data, update):
        return _restored(data, _filled(without_defaults(data).get("spec"), old.get("spec")))
    if again is None or config is None or not _may_change(data):
        return unchanged
    outcome = _restored(data, _with_defaults(data, again.data), admitted_mark(config, by)[ADMITTED_ANNOTATION])
    return Outcome(Verdict.PLACED, outcome.patch, warnings_of(again.findings)) if outcome.patch else unchanged


def _placed_again(
    data: Mapping[str, Any],
    config: Config | None,
    beside: Sequence[Mapping[str, Any]],
    marks: Mapping[str, str],
    steps: Steps | None,
) -> PlacedObject | None:
    """The object placed as if it were new; None if it cannot be placed and stays unchanged."""
    if config is None:
        return None
    try:
        return place_as_new(without_own_entries(data), config, beside, marks, steps=steps)[1]
    except InputError:
        return None


def _placed_from_scratch(
    data: Mapping[str, Any],
    old: Mapping[str, Any],
    config: Config | None,
    beside: Sequence[Mapping[str, Any]],
    marks: Mapping[str, str],
    steps: Steps | None,
) -> PlacedObject | None:
    """The object placed from its unplaced form; None unless that reproduces the previous pods.

    A server-side apply removes only part of the placement, and a PipelineRun's task gets settings that depend on all its tasks.
    Fields without a manager are placement or defaults, which the old object has too.
    """
    bare = without_unowned_fields(data)
    again = None if bare is None else _placed_again(bare, config, beside, marks, steps)
    return again if again is not None and _is_placed_as(again.data, without_defaults(old)) else None


def _with_defaults(data: Mapping[str, Any], placed: Mapping[str, Any]) -> Any:
    """The spec of a placed object with the API server's defaults from ``data``."""
    whole = {**data, "spec": _filled(placed.get("spec"), data.get("spec"))}
    return patched(whole, dependent_defaults(data, placed))["spec"]


def _is_same_file(data: Mapping[str, Any], update: Update) -> bool:
    """Whether ``kubectl apply`` sends the same text as before. Other clients leave the annotation unchanged."""
    text = _annotations(data).get(LAST_APPLIED)
    return update.manager == _APPLY and text is not None and text == _annotations(update.old).get(LAST_APPLIED)


def _is_placed_as(placed: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether an object has the pods that another had; for a kind without pods, the same spec."""
    pods = pods_of(before)
    was, now = (before.get("spec"), placed.get("spec")) if pods is None else (pods, pods_of(placed))
    return bool(_without_empty(was) == _without_empty(now))


def _restored(data: Mapping[str, Any], spec: Any, mark: str = "") -> Outcome:
    """The operations that give ``data`` a spec, field by field, and a new ``mark``."""
    patch = replacing(("spec",), data.get("spec") or {}, spec or {}, removes=False)
    if patch and mark and _annotations(data):
        path = json_pointer(("metadata", "annotations", ADMITTED_ANNOTATION))
        patch.append({"op": "add", "path": path, "value": mark})
    return Outcome(Verdict.RESTORED if patch else Verdict.NOTHING_TO_DO, patch)


def _filled(value: Any, old: Any) -> Any:
    """A value merged with ``old``; the value takes precedence."""
    if isinstance(value, dict) and isinstance(old, dict):
        kept = {name: _filled(item, old[name]) if name in old else item for name, item in value.items()}
        return {**kept, **{name: item for name, item in old.items() if name not in value}}
    if isinstance(value, list) and isinstance(old, list):
        return _filled_list(value, old)
    return value


def _filled_list(items: Sequence[Any], old: Sequence[Any]) -> Sequence[Any]:
    """A list with the items that only ``old`` has, at their places; the list itself if it has other items."""
    used, filled = 0, []
    for before in old:
        if used < len(items) and _is_part(items[used], before):
            filled.append(_filled(items[used], before))
            used += 1
        else:
            filled.append(before)
    return items if used < len(items) else filled


def _is_part(value: Any, old: Any) -> bool:
    """Whether ``old`` is the same item as a value, perhaps with more fields. Named items are identified by name."""
    if isinstance(value, dict) and isinstance(old, dict):
        if "name" in value and "name" in old:
            return bool(value["name"] == old["name"])
        return all(name in old and _is_part(item, old[name]) for name, item in value.items())
    if isinstance(value, list) and isinstance(old, list):
        rest = iter(old)
        return all(any(_is_part(item, before) for before in rest) for item in value)
    return bool(value == old)


def _without_empty(value: Any) -> Any:
    """A value without empty mappings, lists and nulls inside, which webhooks written in Go add and users leave out."""
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _annotations(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return (data.get("metadata") or {}).get("annotations") or {}
