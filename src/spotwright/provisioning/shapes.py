"""The shapes of the objects that are read: what is not as the API writes it is refused, with its place, before anything uses it.

Only fields that are used are named; others may have any value. A field that is missing or null has no wrong shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from spotwright.model.quantities import parse_duration

__all__ = ["API_MODEL", "KUBELET", "NODE", "NODE_POOL", "PRIORITY_CLASS", "find_wrong", "word_for"]

_SHOWN = 40  # characters of a value that a message repeats
_DIGITS = re.compile(r"[0-9]{1,9}")
_WORDS: Mapping[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "nothing",
}

_TEXT, _SCALAR, _NUMBER = "a text", "a text or a number", "a whole number"
_DURATION, _PRIORITY = "a duration such as 30s", "a priority, which is a whole number"


def _is_duration(value: Any) -> bool:
    try:
        parse_duration(value)
    except ValueError:
        return False
    return True


_IS: Mapping[str, Callable[[Any], bool]] = {
    _TEXT: lambda value: isinstance(value, str),
    _SCALAR: lambda value: isinstance(value, str | int | float),
    _NUMBER: lambda value: not isinstance(value, bool) and _DIGITS.fullmatch(str(value)) is not None,
    _DURATION: _is_duration,
    _PRIORITY: lambda value: isinstance(value, int) and not isinstance(value, bool),
}

_TAINTS = [{"key": _TEXT, "value": _TEXT, "effect": _TEXT}]
_LIMITS = {"min-nodes": _NUMBER, "max-nodes": _NUMBER}

NODE: Mapping[str, Any] = {
    "metadata": {"name": _TEXT, "labels": {"*": _TEXT}},
    "spec": {"taints": _TAINTS, "providerID": _TEXT},
    "status": {"allocatable": {"*": _SCALAR}, "capacity": {"*": _SCALAR}, "conditions": [{"type": _TEXT}]},
}
"""A Node of Kubernetes."""

NODE_POOL: Mapping[str, Any] = {
    "metadata": {"name": _TEXT},
    "spec": {"template": {"spec": {"requirements": [{"key": _TEXT, "values": [_TEXT]}], "taints": _TAINTS}}},
}
"""A NodePool of Karpenter."""

KUBELET: Mapping[str, Any] = {
    "shutdownGracePeriod": _DURATION,
    "shutdownGracePeriodCriticalPods": _DURATION,
    "shutdownGracePeriodByPodPriority": [{"priority": _PRIORITY, "shutdownGracePeriodSeconds": _NUMBER}],
}
"""The settings of a kubelet, as far as they are about the end of its node."""

PRIORITY_CLASS: Mapping[str, Any] = {"metadata": {"name": _TEXT}, "value": _PRIORITY}
"""A PriorityClass of Kubernetes."""

API_MODEL: Mapping[str, Any] = {
    "properties": {
        "agentPoolProfiles": [
            {
                "name": _TEXT,
                "count": _NUMBER,
                "vmSize": _TEXT,
                "scaleSetPriority": _TEXT,
                "scaleSetEvictionPolicy": _TEXT,
                "osType": _TEXT,
                "availabilityZones": [_SCALAR],
                "customNodeLabels": {"*": _SCALAR},
                "vnetSubnetId": _TEXT,
                "OSDiskSizeGB": _NUMBER,
                "osDiskSizeGB": _NUMBER,
            }
        ],
        "orchestratorProfile": {
            "kubernetesConfig": {
                "addons": [{"name": _TEXT, "config": _LIMITS, "pools": [{"name": _TEXT, "config": _LIMITS}]}]
            }
        },
    }
}
"""The API model of aks-engine."""


def find_wrong(value: Any, shape: Any, path: str = "") -> str:
    """The first field that has not the shape, with what it should be and what it is; empty if there is none."""
    if isinstance(shape, str):
        text = str(value)
        shown = f" ({text})" if isinstance(value, str | int | float) and 0 < len(text) <= _SHOWN else ""
        return "" if _IS[shape](value) else f"{path}: expected {shape}, found {word_for(value)}{shown}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path}: expected a list, found {word_for(value)}"
        found = (find_wrong(item, shape[0], f"{path}[{index}]") for index, item in enumerate(value))
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return f"{path or 'object'}: expected a mapping, found {word_for(value)}"
    any_key = shape.get("*")
    wanted = ((key, shape.get(key, any_key), item) for key, item in value.items() if item is not None)
    found = (find_wrong(item, one, f"{path}.{key}".lstrip(".")) for key, one, item in wanted if one is not None)
    return next(filter(None, found), "")


def word_for(value: Any) -> str:
    """What a value is, for people."""
    return _WORDS.get(type(value), "another value")
