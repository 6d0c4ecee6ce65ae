"""What newer SDKs write into compiled files and the messages here have no field for: taken out, and put back after parsing.

``set_retry(policy=...)`` is written as ``retryPolicy.policy``. Source: kubeflow/pipelines#13386; what it means is read in
``spotwright.model.kfp_settings``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.model.kfp_settings import RETRY_POLICIES

__all__ = ["put_back", "take_out"]

Held = Mapping[tuple[str, str], str]
"""The retry policies of a document, by component (empty: the root) and task."""


def take_out(document: Mapping[str, Any]) -> Held:
    """Take the retry policies that are known out of a document. Others stay, and are refused with their place."""
    held: dict[tuple[str, str], str] = {}
    for place, retry in _retries(document):
        if retry.get("policy") in RETRY_POLICIES:
            held[place] = retry.pop("policy")
    return held


def put_back(document: Mapping[str, Any], held: Held) -> None:
    """Put back what :func:`take_out` has given."""
    for place, retry in _retries(document):
        if place in held:
            retry["policy"] = held[place]


def _retries(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    components = _mapping(document.get("components"))
    for name, component in [("", document.get("root")), *components.items()]:
        for key, task in _mapping(_mapping(_mapping(component).get("dag")).get("tasks")).items():
            retry = _mapping(task).get("retryPolicy")
            if isinstance(retry, dict):
                yield (name, key), retry


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
