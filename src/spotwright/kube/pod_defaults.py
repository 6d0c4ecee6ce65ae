"""The additions of Kubeflow's PodDefaults to the pods that they select, as far as the given objects show them.

Source: kubeflow/dashboard, ``components/admission-webhook`` (``filterPodDefaults``, ``applyPodDefaultsOnPod``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.kube.admission import Others
from spotwright.kube.object_fields import mapping, mappings, metadata
from spotwright.model.scheduling_terms import Expression

__all__ = ["is_selected", "with_pod_defaults"]


def is_selected(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector selects pods with these labels."""
    given = {str(key): str(value) for key, value in labels.items()}
    wanted = [
        Expression(str(key), "In", (str(value),))
        for key, value in mapping(mapping(selector).get("matchLabels")).items()
    ]
    for one in mappings(mapping(selector).get("matchExpressions")):
        values = one.get("values")
        texts = tuple(map(str, values)) if isinstance(values, list) else ()
        wanted.append(Expression(str(one.get("key")), str(one.get("operator")), texts))
    return all(one.matches(given) for one in wanted)


def with_pod_defaults(
    spec: Mapping[str, Any], labels: Mapping[str, Any], namespace: str | None, others: Others
) -> Mapping[str, Any]:
    """A pod spec with the tolerations of the PodDefaults that select it; the same one if none does."""
    added = [one for default in _selecting(labels, namespace, others) for one in mappings(default.get("tolerations"))]
    if not added:
        return spec
    given = spec.get("tolerations")
    return {**spec, "tolerations": [*(given if isinstance(given, list) else ()), *added]}


def _selecting(labels: Mapping[str, Any], namespace: str | None, others: Others) -> Iterator[Mapping[str, Any]]:
    for one in others("PodDefault"):
        spec = mapping(one.get("spec"))
        own = metadata(one).get("namespace") or ""
        if spec.get("selector") and own == (namespace or "") and is_selected(spec["selector"], labels):
            yield spec
