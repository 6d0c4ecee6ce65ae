"""Read from an object whether it is placed, is made by something that is, or is to be left alone.

A webhook sees one object at a time, so everything it decides by has to be in that object. Placed pods carry the annotation
``spotwright.dev/policy``, and controllers copy the pod templates of an owner into what they create: a template with the
annotation was placed in its owner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.config import Config
from spotwright.manifests.files.record import ANNOTATION as PLACED_ANNOTATION
from spotwright.manifests.rules.context import POLICY_ANNOTATION, SPOT_LABEL
from spotwright.manifests.yamltext.edits import value_at
from spotwright.version import __version__

__all__ = [
    "ADMITTED_ANNOTATION",
    "IGNORE_ANNOTATION",
    "admitted_by",
    "admitted_mark",
    "controller_of",
    "has_own_policy",
    "has_placed_templates",
    "is_admitted",
    "is_ignored",
    "is_placed",
    "own_policy",
    "pods_of",
    "policy_of_templates",
]

ADMITTED_ANNOTATION = "spotwright.dev/admitted"
"""The annotation of every object that a webhook has placed: the version, and the digest of the configuration."""

IGNORE_ANNOTATION = "spotwright.dev/ignore"
"""The annotation, with the value ``true``, of objects that are left exactly as they come; pods of theirs too."""

_TEMPLATES = (
    "spec.template",
    "spec.jobTemplate.spec.template",
    "spec.replicatedJobs.*.template.spec.template",
    "spec.tasks.*.template",
    "spec.jobTemplate.spec.tasks.*.template",
)
_TEKTON = ("spec.podTemplate", "spec.taskRunTemplate.podTemplate", "spec.taskRunSpecs.*")
_REPLICA_SPECS = ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")


def admitted_mark(config: Config, by: str = "") -> dict[str, str]:
    """The annotation for an object that is placed by a configuration. ``by`` names the controller: NAMESPACE/NAME."""
    digest = hashlib.sha256(config.text.encode()).hexdigest()[:12]
    mark = {"v": 1, "spotwright": __version__, "config": digest, **({"by": by} if by else {})}
    return {ADMITTED_ANNOTATION: json.dumps(mark, separators=(",", ":"))}


def admitted_by(data: Mapping[str, Any]) -> str:
    """The controller that has placed an object, NAMESPACE/NAME; empty if its mark does not tell."""
    try:
        mark = json.loads(str(_metadata(data, "annotations").get(ADMITTED_ANNOTATION, "")))
    except ValueError:
        return ""
    return str(mark.get("by", "")) if isinstance(mark, dict) else ""


def is_ignored(data: Mapping[str, Any]) -> bool:
    """Whether an object asks to be left alone."""
    return str(_metadata(data, "annotations").get(IGNORE_ANNOTATION, "")).lower() == "true"


def is_placed(data: Mapping[str, Any]) -> bool:
    """Whether a webhook, or ``spotwright place`` on its file, has placed the object itself."""
    return not {ADMITTED_ANNOTATION, PLACED_ANNOTATION}.isdisjoint(_metadata(data, "annotations"))


def is_admitted(data: Mapping[str, Any]) -> bool:
    """Whether a webhook has placed the object."""
    return ADMITTED_ANNOTATION in _metadata(data, "annotations")


def has_own_policy(data: Mapping[str, Any]) -> bool:
    """Whether a label or an annotation of the object sets a policy."""
    return bool(own_policy(data))


def own_policy(data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The label and the annotation with which an object sets a policy, as they stand in its metadata."""
    labels, annotations = _metadata(data, "labels"), _metadata(data, "annotations")
    policy: dict[str, dict[str, str]] = {}
    if SPOT_LABEL in labels:
        policy["labels"] = {SPOT_LABEL: labels[SPOT_LABEL]}
    if POLICY_ANNOTATION in annotations:
        policy["annotations"] = {POLICY_ANNOTATION: annotations[POLICY_ANNOTATION]}
    return policy


def pods_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """What an object says of its pods: their templates, or Tekton's; ``None`` if its kind has none of its own."""
    tekton = _TEKTON if str(data.get("apiVersion", "")).startswith("tekton.dev/") else ()
    return [*_pod_templates(data), *(each for path in tekton for each in _matches(data, path.split(".")))] or None


def policy_of_templates(data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The policy that is written in the first of an object's placed pod templates."""
    placed = (template for template in _pod_templates(data) if POLICY_ANNOTATION in _metadata(template, "annotations"))
    template = next(placed, None)
    return {} if template is None else own_policy({"metadata": template.get("metadata")})


def has_placed_templates(data: Mapping[str, Any]) -> bool:
    """Whether the object has pod templates that were placed, in this object or in its owner.

    All of them have to be, except those of a Workflow, whose own steps may have no pods, and of a SparkApplication, whose driver
    and executors have annotations and no templates.
    """
    templates = list(_pod_templates(data))
    if templates:
        return all(POLICY_ANNOTATION in _metadata(template, "annotations") for template in templates)
    steps = _matches(data, ["spec", "templates", "*"])
    roles = _matches(data, ["spec", "executor", "annotations"])
    return any(POLICY_ANNOTATION in _metadata(step, "annotations") for step in steps) or any(
        POLICY_ANNOTATION in annotations for annotations in roles
    )


def controller_of(data: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The group, kind and name of the controller that owns an object; ``None`` if a user made it."""
    metadata = data.get("metadata") or {}
    for owner in metadata.get("ownerReferences") or ():
        if isinstance(owner, dict) and owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            return group, str(owner.get("kind", "")), str(owner.get("name", ""))
    return None


def _pod_templates(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pod templates of the kinds whose owners are placed: Jobs, sets of jobs, training jobs and clusters."""
    for pattern in _TEMPLATES:
        yield from _matches(data, pattern.split("."))
    for name in _REPLICA_SPECS:
        yield from _matches(data, ["spec", f"{name}ReplicaSpecs", "*", "template"])
    yield from _matches(data, ["spec", "headGroupSpec", "template"])
    yield from _matches(data, ["spec", "workerGroupSpecs", "*", "template"])


def _matches(value: Any, steps: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The mappings that a path leads to; ``*`` is every item of a list and every value of a mapping."""
    if not steps:
        if isinstance(value, dict):
            yield value
    elif steps[0] == "*":
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _matches(item, steps[1:])
    else:
        yield from _matches(value_at(value, (steps[0],)), steps[1:])


def _metadata(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    values = value_at(data, ("metadata", field))
    return values if isinstance(values, dict) else {}
