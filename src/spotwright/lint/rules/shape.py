"""The rules on documents that cannot be linted: values of another shape, which the reader finds, and no objects at all."""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.lint.examples import ON_SPOT, job
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.objects import KubeObject

__all__ = ["RULES", "WRONG_SHAPE"]


def _no_object(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    if subject.value.keys() >= {"version", "pools"}:  # our own spotwright.yaml, which is read as the settings
        return
    whole = subject.document.get((), None)
    if not isinstance(whole, dict):
        words = "a list" if isinstance(whole, list) else "a text"
        yield Problem(subject.base, f"this is {words} and no Kubernetes object, so nothing in it was checked")
    elif not subject.kind and not subject.api_version and subject.outer is None:
        keys = ", ".join(list(subject.value)[:3])
        yield Problem(
            subject.base, f"this has no kind, so it is no Kubernetes object and nothing in it was checked ({keys})"
        )


WRONG_SHAPE = Rule(
    id="wrong-shape",
    severity=Severity.ERROR,
    title="A field is a list, a mapping or a text where another one belongs",
    why="The API server refuses the object.",
    fix="Write the field as the message says.",
    fails=job(ON_SPOT.replace("- {key: kubernetes.azure.com", "  {key: kubernetes.azure.com")),
    passes=job(ON_SPOT),
    checks=Checks(),
    source="Kubernetes API reference, PodSpec",
)

RULES = (
    WRONG_SHAPE,
    Rule(
        id="no-object",
        severity=Severity.NOTE,
        title="A document that is no Kubernetes object",
        why="Without apiVersion and kind nobody knows what it is: a fragment of a manifest, the values of a chart, a "
        "patch. Nothing in it is checked.",
        fix="Write the whole object; render charts and patches first (helm template, kustomize build).",
        fails="Worker:\n  nodeSelector: {pool: spot}\n",
        passes=job(ON_SPOT),
        checks=Checks(objects=_no_object),
    ),
)
"""The rules of this module."""
