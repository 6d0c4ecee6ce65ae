"""The small types of the API in which a misspelt field prevents placing or retries: all their fields, and their values.

Affinity, tolerations and the retries of each kind (in its record) are types that seldom change, so that any other name in them
is wrong. Larger types (pod specs, specs of jobs) gain fields with each release: there only names close to a relevant field are
found. Source: Kubernetes API reference, PodSpec.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from spotwright.model.scheduling_terms import is_placeholder
from spotwright.placing.documents import Path, show

__all__ = [
    "AFFINITY_PLACES",
    "POD_TYPES",
    "RESOURCES",
    "RETRY_WORDS",
    "Misspelt",
    "misspelt_in",
    "nearly",
]

Type: TypeAlias = Any
"""The fields of a mapping, each with its own type; the type of the items in a list; ``None`` for what is not looked at."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIREMENTS = [dict.fromkeys(("key", "operator", "values"))]
_TERM = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_SELECTOR = {"matchLabels": None, "matchExpressions": _REQUIREMENTS}
_POD_TERM = {
    "labelSelector": _SELECTOR,
    "topologyKey": None,
    "namespaces": None,
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": None,
    "mismatchLabelKeys": None,
}
_OF_PODS = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight": None, "podAffinityTerm": _POD_TERM}]}
_AFFINITY = {
    "nodeAffinity": {
        _REQUIRED: {"nodeSelectorTerms": [_TERM]},
        _PREFERRED: [{"weight": None, "preference": _TERM}],
    },
    "podAffinity": _OF_PODS,
    "podAntiAffinity": _OF_PODS,
}
POD_TYPES: Mapping[str, Type] = {
    "affinity": _AFFINITY,
    "tolerations": [dict.fromkeys(("key", "operator", "value", "effect", "tolerationSeconds"))],
    "topologySpreadConstraints": [
        {
            **dict.fromkeys(("maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "matchLabelKeys")),
            **dict.fromkeys(("nodeAffinityPolicy", "nodeTaintsPolicy")),
            "labelSelector": _SELECTOR,
        }
    ],
}
"""The fields of a pod spec by which it is placed."""

RESOURCES: Type = dict.fromkeys(("limits", "requests", "claims"))
"""The resources of a container."""

AFFINITY_PLACES: Mapping[str, tuple[str, ...]] = {
    "nodeAffinity": ("affinity",),
    "podAffinity": ("affinity",),
    "podAntiAffinity": ("affinity",),
    _REQUIRED: ("affinity", "nodeAffinity"),
    _PREFERRED: ("affinity", "nodeAffinity"),
    "nodeSelectorTerms": ("affinity", "nodeAffinity", _REQUIRED),
}
"""Fields of affinity that people write into the pod spec itself, with what they belong under."""


RETRY_WORDS: frozenset[str] = frozenset(
    {
        "backoff",
        "backoffLimit",
        "backoffLimitPerIndex",
        "failurePolicy",
        "maxRestarts",
        "maxRetries",
        "maxRetry",
        "onFailureRetries",
        "podFailurePolicy",
        "retries",
        "retry",
        "retryCount",
        "retryLimit",
        "retryOn",
        "retryPolicy",
        "retryStrategy",
    }
)
"""The fields for retries in the various systems. The API server drops a field at a level that does not define it."""


class Misspelt(NamedTuple):
    """An unknown field of a type, or a value of another shape if ``name`` is empty; ``fix`` is advice."""

    path: Path
    name: str
    fix: str


_MEANT: Mapping[str, tuple[str, ...]] = {
    "retryOn": ("retryPolicy",),
    "policy": ("retryPolicy", "action"),
    "restartPolicy": ("retryPolicy", "type"),
    "retries": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "retry": ("limit", "maxRestarts", "backoffLimit"),
    "maxRetries": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "maxRetry": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "attempts": ("limit",),
    "maxAttempts": ("limit",),
    "when": ("expression",),
    "interval": ("duration", "onFailureRetryInterval"),
    "multiplier": ("factor",),
    "maxBackoff": ("maxDuration",),
    "exitCodes": ("onExitCodes", "exitCode"),
    "conditions": ("onPodConditions",),
}
"""Other systems' names for a field, in the order of the search."""

_ADVICE: Mapping[str, str] = {
    "nodeAntiAffinity": "Write nodeAffinity with the operator NotIn. (In Argo, retryStrategy.affinity.nodeAntiAffinity: {} "
    "sends a retry to another node.)",
    "preference": "Write its matchExpressions here: only preferred terms have a preference.",
    "podAffinityTerm": "Write its fields here: only preferred terms have a podAffinityTerm.",
}
"""Advice for fields of another place whose content belongs here."""

_SEPARATORS = re.compile(r"[-_]")


def misspelt_in(value: Any, kind: Type, path: Path) -> Iterator[Misspelt]:
    """The fields inside a value that its type does not have, and the values of another shape."""
    yield from _misspelt_in(value, kind, path, (kind, path))


def _misspelt_in(value: Any, kind: Type, path: Path, top: tuple[Type, Path]) -> Iterator[Misspelt]:
    if kind is None or value is None or is_placeholder(value):
        return
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield Misspelt(path, "", "Write a list: begin each item with a hyphen.")
            return
        for index, item in enumerate(value):
            yield from _misspelt_in(item, kind[0], (*path, index), top)
    elif not isinstance(value, dict):
        yield Misspelt(path, "", f"Write a mapping with {', '.join(kind)}.")
    else:
        for name, inner in value.items():
            if name in kind:
                yield from _misspelt_in(inner, kind[name], (*path, name), top)
            elif "{{" not in name and "${" not in name:
                yield Misspelt((*path, name), name, _fix(name, kind, path, top))


def _fix(name: str, kind: Mapping[str, Type], path: Path, top: tuple[Type, Path]) -> str:
    """What to write where a type has no field of this name."""
    if name in _ADVICE:
        return _ADVICE[name]
    meant = next((one for one in _MEANT.get(name, ()) if one in kind), None)
    below = next(_paths_to(name, kind), None)
    if meant is None and below is not None:
        return f"Write it under {show((*path, *below))}."
    meant = meant or nearly(name, kind, 0.6)
    if meant is not None:
        return f"Write {meant}."
    elsewhere = next(_paths_to(name, top[0]), None)
    if elsewhere is not None:
        return f"Write it under {show((*top[1], *elsewhere))}."
    return f"The fields here are {', '.join(kind)}."


def _paths_to(name: str, kind: Type) -> Iterator[Path]:
    """The paths inside a type that lead to a field of this name, the first item of each list."""
    if isinstance(kind, list):
        for path in _paths_to(name, kind[0]):
            yield (0, *path)
    elif kind is not None:
        if name in kind:
            yield (name,)
        for step, inner in kind.items():
            for path in _paths_to(name, inner):
                yield (step, *path)


def nearly(name: str, names: Collection[str], alike: float = 0.82) -> str | None:
    """The closest of ``names`` to a misspelt name; ``None`` for an exact match, and where none is close.

    ``alike`` is the least similarity, from 0 to 1. Case, separators and the plural are ignored.
    """
    return None if name in names or len(name) > _LONGEST else _nearly(name, tuple(names), alike)


_LONGEST = 80


@lru_cache(maxsize=4096)
def _nearly(name: str, names: tuple[str, ...], alike: float) -> str | None:
    folded = {_folded(one): one for one in reversed(names)}
    return next((folded[one] for one in get_close_matches(_folded(name), folded, 1, alike)), None)


def _folded(name: str) -> str:
    plain = _SEPARATORS.sub("", name.lower())
    return f"{plain.removesuffix('ies')}y" if plain.endswith("ies") else plain.removesuffix("s")
