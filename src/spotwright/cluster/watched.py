"""Publishes the watcher's scope as the text of a ConfigMap, for people.

``explain`` needs it for a workload without a run: its namespace may not be served, or its kind may be unreadable.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "ENABLED_LABEL",
    "WATCHED",
    "WATCHED_KEY",
    "Watched",
    "text_of",
    "watched_of",
]


ENABLED_LABEL = "spotwright.dev/enabled"
"""The label, with the value ``true``, of namespaces that are served if no namespaces are listed."""

WATCHED_KEY = "watched.json"
"""The key in the ConfigMap for readers."""

WATCHED = "watched"
"""The state of a kind that is watched."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """A watcher's scope: the UIDs of its namespaces by name, and by kind :data:`WATCHED` or the reason why not."""

    namespaces: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


def watched_of(text: str, place: str) -> Watched:
    """The content of a text at a place; empty if it cannot be read."""
    try:
        found = json.loads(text)
        parts = ({str(key): str(value) for key, value in found[part].items()} for part in ("namespaces", "kinds"))
        return Watched(*parts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s: cannot be read (%s)", place, error)
        return Watched()


def text_of(watched: Watched) -> str:
    """The text that :func:`watched_of` reads back."""
    return json.dumps({"namespaces": watched.namespaces, "kinds": watched.kinds})
