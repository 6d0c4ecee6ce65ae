"""Reads the state of a node near the end of a pod: conditions, taints, and its kind of capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spotwright.clouds.providers import is_spot_node
from spotwright.cluster.evidence.fields import mapping, mappings, text
from spotwright.model.attempts import StatusCondition

__all__ = ["events_of", "is_spot", "taints_of"]


def taints_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the node's taints, each once."""
    keys = (text(taint.get("key")) for taint in mappings(mapping(node.get("spec")).get("taints")))
    return tuple(dict.fromkeys(key for key in keys if key))


def is_spot(node: Mapping[str, Any]) -> bool | None:
    """True for a spot node, False for an on-demand node, None if its labels and taints do not tell."""
    labels = mapping(mapping(node.get("metadata")).get("labels"))
    return is_spot_node({name: text(value) for name, value in labels.items()}, taints_of(node))


def events_of(events: Iterable[Mapping[str, Any]]) -> tuple[StatusCondition, ...]:
    """Events about the node, as the API writes them (``v1`` Event), in the shape of a condition."""
    return tuple(
        StatusCondition(text(event.get("reason")), "True", text(event.get("reason")), text(event.get("message")))
        for event in events
    )
