"""Distinguishes a user's fields from defaults that the API server set before it called the webhook.

``place`` keeps the user's fields and adds missing ones. A Job reaches a webhook with ``backoffLimit: 6`` even if its file has
none, so a value that equals the default counts as missing, unless the object shows that it was written: ``kubectl apply`` keeps
the sent object in an annotation, server-side apply lists the fields of each manager. A default that depends on another field is
adapted after placement. Sources: Kubernetes, ``pkg/apis/batch/v1/defaults.go`` and ``pkg/apis/core/v1/defaults.go`` (1.35); for
JobSet, ``pkg/webhooks/jobset_webhook.go`` (0.10), whose defaults may be there too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.kinds.kind import Kind, Retry, kind_of
from spotwright.kube.object_fields import mapping
from spotwright.placing.documents import MISSING, Path
from spotwright.placing.patch import json_pointer, value_at

__all__ = ["LAST_APPLIED", "dependent_defaults", "without_defaults"]


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which ``kubectl apply`` keeps the object that it sent, as JSON."""

_GRACE = (("terminationGracePeriodSeconds",), 30)
_NO_LIMIT = 2**31 - 1
_OF_KUBERNETES = ("", "apps")  # groups whose pod templates the API server defaults
_JOB: Sequence[tuple[Path, Any]] = (
    (("backoffLimit",), 6),
    (("podReplacementPolicy",), "TerminatingOrFailed"),
    (("template", "spec", "restartPolicy"), "Always"),
    (("template", "spec", "terminationGracePeriodSeconds"), 30),
)


def without_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an object without the default values that no manager is known to have written."""
    result: dict[str, Any] = dict(data)
    for path, default in _defaults(data):
        if value_at(data, path, MISSING) == default and not _is_written(data, path):
            result = _without(result, path)
    return result


def dependent_defaults(data: Mapping[str, Any], placed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations that adapt defaults in ``data``, the received object, to the fields added by placement.

    ``placed`` is the placed copy, which has no defaults. With a ``podFailurePolicy`` the API server takes only the replacement
    policy Failed; beside a limit for each index, the common limit has no default.
    """
    operations = []
    base = _job_spec(_record(data))
    if base:
        spec, before = mapping(value_at(placed, base)), mapping(value_at(data, base))
        for field, other, value in (
            ("podReplacementPolicy", "podFailurePolicy", "Failed"),
            ("backoffLimit", "backoffLimitPerIndex", _NO_LIMIT),
        ):
            if before.get(field) is not None and field not in spec and spec.get(other) is not None:
                operations.append({"op": "replace", "path": json_pointer((*base, field)), "value": value})
    return operations


def _defaults(data: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The paths that placement may set and the API server or JobSet's webhook defaults, with the default."""
    record = _record(data)
    if base := _job_spec(record):
        for path, default in _JOB:
            yield (*base, *path), default
    elif record.group in _OF_KUBERNETES:
        for place in record.places:
            yield (*place.steps, "spec", *_GRACE[0]), _GRACE[1]
    elif record.retry is Retry.SET and record.places[0].job:
        jobs = value_at(data, ("spec", "replicatedJobs"))
        for index in range(len(jobs) if isinstance(jobs, list) else 0):
            job = ("spec", "replicatedJobs", index, "template", "spec")
            yield (*job, "template", "spec", "restartPolicy"), "OnFailure"


def _record(data: Mapping[str, Any]) -> Kind:
    return kind_of(str(data.get("apiVersion", "")), str(data.get("kind")))


def _job_spec(record: Kind) -> Path:
    """The path of the Job spec of an object of Kubernetes; empty without one."""
    return record.top if record.retry is Retry.JOB else ()


def _is_written(data: Mapping[str, Any], path: Path) -> bool:
    """Whether the object shows that the field was written: with ``kubectl apply``, or with server-side apply."""
    metadata = data.get("metadata") or {}
    applied = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    if applied is not None and value_at(_parsed(applied), path, MISSING) is not MISSING:
        return True
    return any(
        _owns(manager.get("fieldsV1"), data, path)
        for manager in metadata.get("managedFields") or ()
        if isinstance(manager, dict) and manager.get("operation") == "Apply"
    )


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):  # not kubectl's annotation
        return None


def _owns(fields: Any, data: Mapping[str, Any], path: Path) -> bool:
    """Whether a manager's fields have a path. An item of a list is listed by its ``name`` (``k:{"name":"node"}``)."""
    for depth, step in enumerate(path):
        key = f"f:{step}"
        if isinstance(step, int):
            name = value_at(data, (*path[: depth + 1], "name"))
            key = f"k:{json.dumps({'name': name}, separators=(',', ':'))}"
        if not isinstance(fields, dict) or key not in fields:
            return False
        fields = fields[key]
    return True


def _without(data: Any, path: Path) -> Any:
    """A copy of a value without the field at a path; only what is on the path is copied."""
    copy = data.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = _without(copy[path[0]], path[1:])
    return copy
