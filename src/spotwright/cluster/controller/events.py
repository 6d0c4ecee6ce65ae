"""Writes Events about objects, which ``kubectl describe`` and ``kubectl get events`` show to those who can mend them.

Every replica may report the same thing: the name of an Event is made from what it says and about which state of which object, so
that the API server keeps one of them.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.workloads.owners import metadata, uid_of

__all__ = ["EventWriter"]

_LOG = logging.getLogger(__name__)
_LONGEST = (
    1024  # bytes of a message; the API server refuses longer ones (Kubernetes, pkg/apis/core/validation/events.go)
)
_COMPONENT = "spotwright"


class EventWriter:
    """Writes Events. A failure is logged: nothing depends on an Event."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def write(self, about: Mapping[str, Any], reason: str, message: str, *, is_warning: bool) -> None:
        """Write one Event. ``reason`` is a word in CamelCase, ``message`` a sentence for people."""
        meta = metadata(about)
        namespace = str(meta.get("namespace", "")) or "default"
        said = "/".join((uid_of(about), str(meta.get("resourceVersion", "")), reason, message))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"spotwright.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": str(about.get("apiVersion", "v1")),
                "kind": str(about.get("kind", "")),
                "name": str(meta.get("name", "")),
                "namespace": namespace,
                "uid": uid_of(about),
                "resourceVersion": str(meta.get("resourceVersion", "")),
            },
            "reason": reason,
            "message": message.encode()[:_LONGEST].decode(errors="ignore"),
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": _COMPONENT, "host": socket.gethostname()},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.send("POST", f"/api/v1/namespaces/{namespace}/events", event)
        except ApiFailed as error:
            if error.status != 409:  # another replica was faster
                _LOG.warning("an Event about %s %s cannot be written: %s", about.get("kind"), meta.get("name"), error)
