"""Decide about whatever is created: objects are placed, pods are made precise, and a pod of its user is both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.admission.objects import Outcome, admit_object
from spotwright.cluster.admission.pods import PodFacts, admit_pod
from spotwright.cluster.admission.updates import Update, restore_object
from spotwright.config import Config

__all__ = ["admit"]


def admit(
    data: Mapping[str, Any],
    config: Config | None,
    beside: Sequence[Mapping[str, Any]] = (),
    facts: PodFacts | None = None,
    *,
    update: Update | None = None,
    refusal_image: str,
    by: str = "",
) -> Outcome:
    """The outcome for an object that is about to be created, or updated if there is an ``update``; ``data`` is not changed.

    ``config`` is the configuration of its namespace. ``beside`` are the objects that
    :func:`~spotwright.cluster.admission.objects.referenced_objects` names. ``facts`` were recorded of a pod's task.
    ``by`` names this controller.
    """
    if update is not None:
        return restore_object(data, update, config, beside, by)
    if data.get("kind") != "Pod" or data.get("apiVersion") != "v1":
        return admit_object(data, config, beside, by)
    first = admit_object(data, config, by=by)
    second = admit_pod(first.placed or data, config, facts or PodFacts(), refusal_image)
    if first.placed is None:
        return second
    return Outcome(second.verdict, [*first.patch, *second.patch], [*first.warnings, *second.warnings])
