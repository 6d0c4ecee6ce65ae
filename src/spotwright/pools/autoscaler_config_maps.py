"""Reads the two ConfigMaps of the cluster autoscaler in kube-system, and Karpenter's NodePools, as objects of the API.

They come from a cluster, or from files that ``kubectl`` has written. Their texts are untrusted YAML, so each is bounded before
it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from spotwright import yaml_composer
from spotwright.clouds.cluster_autoscaler import (
    PRIORITIES,
    STATUS,
    Priorities,
    Status,
    read_priorities,
    read_status,
)
from spotwright.errors import InputError
from spotwright.kube.object_fields import mapping

__all__ = ["NAMESPACE", "priorities_of", "status_of", "weights_of"]


NAMESPACE = "kube-system"
"""The namespace in which a cluster autoscaler runs, unless it was started with another one."""

_LONGEST = 1_000_000  # characters: a ConfigMap has at most 1 MiB
_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_DEFAULT_WEIGHT = 0  # Karpenter's documentation, "NodePools": spec.weight


def status_of(config_map: Mapping[str, Any]) -> Status:
    """The state of all groups. Raises :class:`InputError` for another text."""
    try:
        return read_status(_data(config_map, "status"))
    except ValueError as error:
        raise InputError(f"ConfigMap {STATUS}: status: {error}") from None


def priorities_of(config_map: Mapping[str, Any]) -> Priorities:
    """The patterns of the expander. Raises :class:`InputError` for another text."""
    try:
        return read_priorities(_data(config_map, "priorities"))
    except ValueError as error:
        raise InputError(f"ConfigMap {PRIORITIES}: priorities: {error}") from None


def weights_of(node_pools: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The weights of Karpenter's NodePools, by name."""
    found: dict[str, int] = {}
    for node_pool in node_pools:
        weight = mapping(node_pool.get("spec")).get("weight", _DEFAULT_WEIGHT)
        name = str(mapping(node_pool.get("metadata")).get("name", ""))
        found[name] = weight if isinstance(weight, int) else _DEFAULT_WEIGHT
    return found


def _data(config_map: Mapping[str, Any], key: str) -> Any:
    """The YAML under a key. Raises :class:`ValueError` for a text that is too long or not valid YAML."""
    text = mapping(config_map.get("data")).get(key)
    if not isinstance(text, str):
        raise ValueError("key not found")
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} characters")
    try:
        documents = list(yaml_composer.compose(text, lenient=True))  # refuses nesting too deep for the loader
        return yaml.load(text, Loader=_LOADER) if len(documents) == 1 else None  # noqa: S506  # the safe loader, in C
    except (yaml_composer.ComposeError, yaml.YAMLError, UnicodeEncodeError, ValueError) as error:
        raise ValueError(f"it is not valid YAML ({str(error).splitlines()[0]})") from None
