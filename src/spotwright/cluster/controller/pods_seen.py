"""Follows the pods that were made precise, so that every replica knows by itself which of the numbers it gave out are in use.

The stream shows a pod some milliseconds after it was made, and its deletion too. So this replica knows of a pod also while no
leader writes journals.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotwright.cluster.admission.pods import ADMISSION_ANNOTATION
from spotwright.cluster.api.mirror import ChangeKind, Mirror, Resource
from spotwright.cluster.api.requests import Api
from spotwright.cluster.workloads.owners import metadata, uid_of

__all__ = ["PodsSeen"]

_LOG = logging.getLogger(__name__)
_KEPT = 50_000  # tokens that were told already


class PodsSeen:
    """The precise pods of all namespaces; await :meth:`follow`. ``confirm`` is told each token once, when its pod is seen."""

    def __init__(self, api: Api, confirm: Callable[[Sequence[str]], None]) -> None:
        self._confirm = confirm
        self._mirror = Mirror(api, Resource("/api/v1", "pods"), keep=_has_token, slim=_slim)
        self._told: OrderedDict[str, None] = OrderedDict()
        self.is_complete = False

    @property
    def problem(self) -> str:
        """Why the pods cannot be followed at present; empty while they can."""
        return self._mirror.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._mirror.changes():
            if change.kind is ChangeKind.SYNCED:
                self.is_complete = True
                continue
            token = token_of(change.data)
            if token not in self._told:
                self._told[token] = None
                self._confirm([token])
            while len(self._told) > _KEPT:
                self._told.popitem(last=False)


def token_of(pod: Mapping[str, Any]) -> str:
    """The token of the review that made a pod precise; empty if none did."""
    return str((metadata(pod).get("annotations") or {}).get(ADMISSION_ANNOTATION, ""))


def _has_token(pod: Mapping[str, Any]) -> bool:
    return bool(token_of(pod))


def _slim(pod: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a pod: ten thousand of them fit into a few megabytes."""
    meta = metadata(pod)
    kept = {key: meta[key] for key in ("name", "namespace", "resourceVersion") if key in meta}
    return {"metadata": {**kept, "uid": uid_of(pod), "annotations": {ADMISSION_ANNOTATION: token_of(pod)}}}
