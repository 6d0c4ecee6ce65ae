"""Server-sent events: the changes of a run while a window shows it.

All windows that follow a run share one look at it four times a second, in a worker. Each message has the number of the run's
last event, so a window knows what it has seen. A window whose place is forgotten reloads (``reset``).

Server-sent events are https://html.spec.whatwg.org/multipage/server-sent-events.html: the browser reconnects by itself and
sends the last ``id``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

from spotwright.page.workers import Answer, Workers

__all__ = ["Followers", "event"]

_EVERY = 0.25  # seconds between looks at a followed run
_IDLE_EVERY = 1.0  # at one without an engine
_FULL = 40  # looks pending for a slow window; beyond, it reloads


def event(name: str, document: Any, identity: str = "") -> bytes:
    """One event in wire format. ``identity``: the id that the browser sends when it reconnects."""
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: {json.dumps(document, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()


def _document(answer: Answer) -> Any:
    return json.loads(gzip.decompress(answer.body) if answer.is_gzip else answer.body)


class Followers:
    """The windows that follow runs, by run."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._windows: dict[str, set[asyncio.Queue[bytes | None]]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def follow(self, run: str, made_at: str, after: int) -> AsyncIterator[bytes]:
        """The endless events of a run from a place on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_FULL)
        windows = self._windows.setdefault(run, set())
        windows.add(queue)
        try:
            answer = await self._workers.ask("changes", run, made_at=made_at, after=after)
            document = _document(answer)
            for piece in _events(answer.status, document):
                yield piece
            if answer.status != 200 or document.get("reset"):
                return
            if run not in self._looking:
                self._looking[run] = asyncio.create_task(self._look(run, document["made_at"], document["seq"]))
            while (piece_or_end := await queue.get()) is not None:
                yield piece_or_end
        finally:
            windows.discard(queue)
            if not windows:
                self._windows.pop(run, None)
                task = self._looking.pop(run, None)
                if task is not None:
                    task.cancel()

    async def _look(self, run: str, made_at: str, after: int) -> None:
        """Look until the run has no followers or is unreadable; then its windows are disconnected, and reconnect."""
        try:
            await self._look_on(run, made_at, after)
        finally:
            if self._looking.get(run) is asyncio.current_task():
                del self._looking[run]
                for queue in list(self._windows.get(run, ())):
                    _put(queue, b"", ends=True)

    async def _look_on(self, run: str, made_at: str, after: int) -> None:
        number = 0  # of the last sent head
        while True:
            answer = await self._workers.ask("changes", run, made_at=made_at, after=after, head=number)
            document = _document(answer)
            pieces = b"".join(_events(answer.status, document))
            if pieces:
                for queue in list(self._windows.get(run, ())):
                    _put(queue, pieces)
            if answer.status != 200 or document.get("reset"):
                return
            after, number = document["seq"], document.get("head_number", number)
            await asyncio.sleep(_EVERY if document["driven"] else _IDLE_EVERY)

    async def close(self) -> None:
        """Disconnect all windows."""
        for task in list(self._looking.values()):
            task.cancel()
        for windows in self._windows.values():
            for queue in windows:
                _put(queue, b"", ends=True)


def _put(queue: asyncio.Queue[bytes | None], pieces: bytes, *, ends: bool = False) -> None:
    if queue.full():  # a window that does not read gets the newest state later
        while not queue.empty():
            queue.get_nowait()
        pieces, ends = event("reset", {}), True
    if pieces:
        queue.put_nowait(pieces)
    if ends:
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(None)


def _events(status: int, document: dict[str, Any]) -> list[bytes]:
    if status == 404:
        return [event("gone", document)]
    if status != 200:
        return [event("problem", document)]
    if document.get("reset"):
        return [event("reset", {})]
    found = []
    for look in document["looks"]:
        identity = f"{document['made_at']}.{look['seq']}"
        place = {"seq": look["seq"], "now": document["now"], "driven": document["driven"]}
        found.append(event("changes", {**look, **place}, identity))
    if document.get("head") is not None:
        found.append(event("head", document["head"]))
    return found
