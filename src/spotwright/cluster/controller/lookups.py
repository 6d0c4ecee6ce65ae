"""Reads single objects from the API server for a review: what a placement refers to, and the owners of a pod.

Reviews come in bursts about the same runtimes and owners, so answers are kept for a short while. What is read of an owner never
changes: its UID, its own owner and the shape of its pods; so owners are kept until others take their place.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from spotwright.cluster.admission.registration import plural_of
from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.workloads.owners import Lineage, controller_reference, lineage, metadata, uid_of

__all__ = ["Lookups"]

_LOG = logging.getLogger(__name__)
_FRESH = 3.0  # seconds in which an answer is given again: a template that was changed counts for what comes after
_KEPT = 10_000


class Lookups:
    """Reads objects. ``clock`` is monotonic. An object that cannot be read counts as missing, and the log says why."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._answers: OrderedDict[str, tuple[float, Mapping[str, Any] | None]] = OrderedDict()
        self._owners: OrderedDict[str, Mapping[str, Any]] = OrderedDict()  # by UID

    async def find_object(self, api_version: str, kind: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        """An object by its name, up to three seconds old; None if it is missing or cannot be read."""
        path = _path(api_version, kind, name, namespace)
        read_at, found = self._answers.get(path, (float("-inf"), None))
        if self._clock() - read_at > _FRESH:
            found = await self._read(path)
            _keep(self._answers, path, (self._clock(), found))
            self._drop_stale()
        return found

    def _drop_stale(self) -> None:
        """Drop answers that are not given again: ten thousand objects as they are would be hundreds of megabytes."""
        while self._answers and self._clock() - next(iter(self._answers.values()))[0] > _FRESH:
            self._answers.popitem(last=False)

    async def owners(self, pod: Mapping[str, Any]) -> Lineage:
        """The owners of a pod, as far as they can be read."""
        namespace = str(metadata(pod).get("namespace", ""))
        while True:
            found = lineage(pod, lambda _kind, _namespace, uid: self._owners.get(uid))
            if found.is_complete:
                return found
            reference = controller_reference(found.root(pod)) or {}
            kind, name, uid = (str(reference.get(key, "")) for key in ("kind", "name", "uid"))
            owner = await self._read(_path(str(reference.get("apiVersion", "")), kind, name, namespace))
            if owner is None or uid_of(owner) != uid:
                return found
            _keep(self._owners, uid, _slim(owner))

    async def _read(self, path: str) -> Mapping[str, Any] | None:
        try:
            return await self._api.get_or_none(path)
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return None


def _path(api_version: str, kind: str, name: str, namespace: str) -> str:
    base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"{base}/{where}{plural_of(kind)}/{name}"


def _slim(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """An owner with what never changes and names tasks: a workflow's templates and status may have megabytes."""
    meta, spec = metadata(owner), owner.get("spec") or {}
    return {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner.get("kind"),
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "ownerReferences") if key in meta},
        "spec": {
            **{key: spec[key] for key in ("completions", "parallelism", "completionMode") if key in spec},
            "replicatedJobs": [
                {"name": each.get("name"), "replicas": each.get("replicas", 1)}
                for each in spec.get("replicatedJobs") or ()
            ],
        },
    }


def _keep(kept: OrderedDict[str, Any], key: str, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
