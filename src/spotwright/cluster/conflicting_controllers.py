"""Says that another controller serves the same namespace: its pods would be recorded twice, and moved by both."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol

from spotwright.cluster.admit_objects import admitted_by
from spotwright.cluster.api_client import EventWriter

__all__ = ["ConflictingControllers"]


_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[-.a-z0-9]{1,63}/[-.a-z0-9]{1,253}")  # of a controller
_MOST_RIVALS = 3  # of one namespace: whoever may make objects there writes the names
_MOST_WAITING = 100
_MADE_AFTER = 2.0  # seconds after its review in which an object is there


class FindObject(Protocol):
    """Finds an object of the cluster, as :meth:`spotwright.cluster.attempt_lookup.Lookups.find_object` does."""

    async def __call__(self, api_version: str, kind: str, name: str, namespace: str, /) -> Mapping[str, Any] | None:
        """The object; None if there is none of this name, or it cannot be read."""


class ConflictingControllers:
    """What was found so far. ``name`` is that of this controller: NAMESPACE/NAME.

    Whoever reaches the webhook's port may send reviews of objects that do not exist, so nothing is told before the object was
    found in the cluster with its mark.
    """

    def __init__(self, events: EventWriter, name: str, find_object: FindObject) -> None:
        self._events, self.name, self._find = events, name, find_object
        self._known: dict[str, set[str]] = {}  # by namespace
        self._new: asyncio.Queue[tuple[tuple[str, ...], str]] = asyncio.Queue(_MOST_WAITING)

    def found(self, where: tuple[str, ...], rival: str) -> None:
        """Hear of an object that the controller ``rival`` has placed, by its API version, kind, name and namespace.

        Each pair of a namespace and a controller is told once; what is too much at once is not told.
        """
        known = self._known.get(where[-1], set())
        if rival not in known and len(known) < _MOST_RIVALS and _NAME.fullmatch(rival) and not self._new.full():
            self._new.put_nowait((where, rival))

    async def tell(self) -> None:
        """Write a line and an Event about each until cancelled."""
        while True:
            where, rival = await self._new.get()
            namespace = where[-1]
            if rival in self._known.get(namespace, ()):
                continue
            await asyncio.sleep(_MADE_AFTER)
            version, kind, name, _ = where
            found = await self._find(version, kind, name, namespace) if name else None
            if found is None or admitted_by(found) != rival:
                continue
            self._known.setdefault(namespace, set()).add(rival)
            text = (
                f"{rival} serves namespace {namespace} beside {self.name}: what is created there follows the one that is asked"
                " first, and both record and move its pods; end one of them with spotwright controller unregister"
            )
            _LOG.warning("%s", text)
            about: dict[str, Any] = {"name": namespace, "namespace": namespace}
            event = {"apiVersion": "v1", "kind": "Namespace", "metadata": about}
            await self._events.write(event, "TwoControllers", text, is_warning=True)
