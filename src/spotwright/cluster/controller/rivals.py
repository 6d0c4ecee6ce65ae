"""Says that another controller serves a namespace too, so that its pods are recorded twice and moved by both.

Each controller names itself in the mark of what it places. Of two webhooks the API server asks one after the other, so the second
one finds the mark of the first. That takes no right beyond those that a controller has anyway.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from spotwright.cluster.controller.events import EventWriter

__all__ = ["Rivals"]

_LOG = logging.getLogger(__name__)


class Rivals:
    """What was found so far. ``name`` is that of this controller: NAMESPACE/NAME."""

    def __init__(self, events: EventWriter, name: str) -> None:
        self._events, self.name = events, name
        self._known: set[tuple[str, str]] = set()
        self._new: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def found(self, namespace: str, rival: str) -> None:
        """Hear of an object in a namespace that the controller ``rival`` has placed. Each pair is told once."""
        if (namespace, rival) not in self._known:
            self._known.add((namespace, rival))
            self._new.put_nowait((namespace, rival))

    async def tell(self) -> None:
        """Write a line and an Event about each until cancelled."""
        while True:
            namespace, rival = await self._new.get()
            text = (
                f"{rival} serves namespace {namespace} beside {self.name}: what is created there follows the one that is asked"
                " first, and both record and move its pods; end one of them with spotwright controller --unregister"
            )
            _LOG.warning("%s", text)
            about: dict[str, Any] = {"name": namespace, "namespace": namespace}
            event = {"apiVersion": "v1", "kind": "Namespace", "metadata": about}
            await self._events.write(event, "TwoControllers", text, is_warning=True)
