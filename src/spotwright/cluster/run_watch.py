"""What changes of the objects of a run, as the API server tells it to a reader that waits: nothing is listed again meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_objects import RUN, WORKLOAD_LABEL, records_path

__all__ = ["RunWatch"]


_LOG = logging.getLogger(__name__)
_LASTS, _SILENCE = 300, 330.0  # seconds until a watch ends by itself, and until a silent one counts as dead


class RunWatch:
    """Watches from these versions on, by kind, until one of the streams ends. A thread waits for it.

    ``uid`` is that of the workload, whose label the objects have. The streams end with the login.
    """

    def __init__(
        self, kubernetes: Kubernetes, namespace: str, name: str, uid: str, versions: Mapping[str, str]
    ) -> None:
        self._kubernetes, self._namespace = kubernetes, namespace
        self._changes: list[dict[str, Any]] | None = []  # None: something was missed
        self._news = threading.Condition()
        self._streams: list[asyncio.Task[None]] = []
        by_name, by_label = f"metadata.name={name}", f"{WORKLOAD_LABEL}={uid}"
        selectors = {
            kind: {"fieldSelector": by_name} if kind == RUN else {"labelSelector": by_label} for kind in versions
        }
        kubernetes.call(
            self._begin(
                [self._follow(kind, {**selectors[kind], "resourceVersion": at}) for kind, at in versions.items()]
            )
        )

    def wait(self, seconds: float) -> None:
        """Wait for news, for no longer than this."""
        with self._news:
            self._news.wait_for(lambda: self._changes is None or self._changes, seconds)

    def take(self) -> list[dict[str, Any]] | None:
        """The objects that have changed since the last call; None: a stream has ended, and all has to be read again."""
        with self._news:
            changes = self._changes
            self._changes = None if changes is None else []
            return changes

    def end(self) -> None:
        """Close the streams."""
        self._kubernetes.call(self._cancel())

    async def _begin(self, streams: list[Coroutine[Any, Any, None]]) -> None:
        self._streams = [asyncio.create_task(stream, name="watch of a run") for stream in streams]

    async def _cancel(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def _follow(self, kind: str, selector: Mapping[str, str]) -> None:
        asked = {**selector, "watch": "true", "timeoutSeconds": str(_LASTS)}
        try:
            async with self._kubernetes.api.lines(
                records_path(kind, self._namespace), asked, silence=_SILENCE
            ) as lines:
                async for line in lines:
                    change = msgspec.json.decode(line, type=dict[str, Any])
                    if change["type"] not in ("ADDED", "MODIFIED"):  # deleted, or too old
                        return
                    self._heard({"kind": kind, **change["object"]})
        except (ApiFailed, ValueError, KeyError, TypeError) as error:
            _LOG.debug("the watch of %ss in namespace %s ends: %s", kind, self._namespace, error)
        finally:
            self._heard(None)

    def _heard(self, found: dict[str, Any] | None) -> None:
        with self._news:
            if found is None:
                self._changes = None
            elif self._changes is not None:
                self._changes.append(found)
            self._news.notify_all()
