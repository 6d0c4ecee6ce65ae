"""The protocols of the clouds' metadata servers, as their documentation describes them.

They let a simulated node use the same code to read notices as a node in the cloud. They are as strict as the real servers: a
request without the header that a cloud requires is refused. Beside the notice they answer only what their readers need.
Sources: those of :mod:`spotwright.notices.azure`, :mod:`~spotwright.notices.gcp` and :mod:`~spotwright.notices.aws`; written
from the documentation, not from those modules.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from spotwright.agent.http_server import DeferredResponse, Request, Response
from spotwright.model.pools import Provider
from spotwright.notices.http_client import format_http_date

__all__ = [
    "AwsMetadataServer",
    "AzureGroup",
    "AzureMetadataServer",
    "GcpMetadataServer",
    "MetadataServer",
    "metadata_server_of",
]

_TEXT = "text/plain; charset=utf-8"


class MetadataServer(Protocol):
    """The metadata server of one node."""

    def handle(self, request: Request) -> Response | DeferredResponse:
        """Answer a request as the cloud does."""

    def notice(self, ends_at: float) -> None:
        """Announce that the node goes at this Unix time."""

    def withdraw(self) -> None:
        """Withdraw the notice: the node stays, or is gone."""


class AzureGroup:
    """The placement group of a pool's nodes: each node sees the events of all nodes."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.events: dict[str, dict[str, Any]] = {}  # by name of the resource

    def change(self, resource: str, event: dict[str, Any] | None) -> None:
        """Set or remove the event of a resource."""
        self.events.pop(resource, None)
        if event is not None:
            self.events[resource] = event
        self.incarnation += 1


class AzureMetadataServer:
    """Scheduled Events and the machine's name. ``approved`` is called when the node's event is approved to start early."""

    VERSIONS = ("2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01")

    def __init__(self, resource: str, group: AzureGroup, approved: Callable[[str], None]) -> None:
        self._resource, self._group, self._approved = resource, group, approved
        self._ends_at = 0.0

    def notice(self, ends_at: float) -> None:
        """See :class:`MetadataServer`."""
        self._ends_at = ends_at
        event = {
            "EventId": secrets.token_hex(16).upper(),
            "EventStatus": "Scheduled",
            "EventType": "Preempt",
            "ResourceType": "VirtualMachine",
            "Resources": [self._resource],
            "NotBefore": format_http_date(ends_at),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self._group.change(self._resource, event)

    def withdraw(self) -> None:
        """See :class:`MetadataServer`."""
        self._group.change(self._resource, None)

    def handle(self, request: Request) -> Response:
        """See :class:`MetadataServer`."""
        if request.headers.get("metadata", "").lower() != "true" or "x-forwarded-for" in request.headers:
            return _json(400, {"error": "Bad request. Required metadata header not specified"})
        if request.path == "/metadata/instance/compute/name" and request.query.get("format") == "text":
            return Response(200, self._resource.encode(), _TEXT)
        if request.path.rstrip("/") != "/metadata/scheduledevents":
            return _json(404, {"error": "Not found"})
        if request.query.get("api-version") not in self.VERSIONS:
            return _json(400, {"error": "Bad request. api-version is invalid or was not specified"})
        if request.method == "POST":
            return self._start(request.body)
        if request.method != "GET":
            return _json(405, {"error": "Method not allowed"})
        event = self._group.events.get(self._resource)
        if event is not None and event["EventStatus"] == "Scheduled" and time.time() >= self._ends_at:
            self._begin(event)
        document = {"DocumentIncarnation": self._group.incarnation, "Events": list(self._group.events.values())}
        return _json(200, document)

    def _start(self, body: bytes) -> Response:
        """Handle ``StartRequests``: approvals to start events early. Every node that sees an event may approve it."""
        try:
            requested = [str(item["EventId"]) for item in json.loads(body)["StartRequests"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _json(400, {"error": "Bad request. The payload is malformed"})
        resources = {event["EventId"]: resource for resource, event in self._group.events.items()}
        if not requested or not set(requested) <= set(resources):
            return _json(400, {"error": "Bad request. No such event"})
        for event_id in requested:
            event = self._group.events[resources[event_id]]
            if event["EventStatus"] == "Scheduled":
                self._begin(event)
                self._approved(resources[event_id])
        return Response(200, b"")

    def _begin(self, event: dict[str, Any]) -> None:
        event.update(EventStatus="Started", NotBefore="")
        self._group.incarnation += 1


class GcpMetadataServer:
    """``instance/preempted`` and ``instance/maintenance-event``. ``changed`` looks at the questions that wait."""

    ROOT = "/computeMetadata/v1/instance/"

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._preempted = "FALSE"
        self._etag = secrets.token_hex(8)

    def notice(self, ends_at: float) -> None:  # noqa: ARG002  # Google does not say when
        """See :class:`MetadataServer`."""
        self._set("TRUE")

    def withdraw(self) -> None:
        """See :class:`MetadataServer`."""
        self._set("FALSE")

    def _set(self, value: str) -> None:
        self._preempted, self._etag = value, secrets.token_hex(8)
        self._changed()

    def handle(self, request: Request) -> Response | DeferredResponse:
        """See :class:`MetadataServer`."""
        if request.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in request.headers:
            return Response(403, b"Missing Metadata-Flavor:Google header.", _TEXT)
        if request.method != "GET":
            return self._say("", status=405)
        if request.path == f"{self.ROOT}maintenance-event":
            return self._say("NONE", etag="0" * 16)
        if request.path != f"{self.ROOT}preempted":
            return self._say("", status=404)
        etag = request.query.get("last_etag", self._etag)
        if request.query.get("wait_for_change") != "true" or etag != self._etag:
            return self._say(self._preempted)
        seconds = request.query.get("timeout_sec", "")
        wait = min(float(seconds) if seconds.isdecimal() and len(seconds) < 8 else 3600.0, 3600.0)
        return DeferredResponse(
            time.monotonic() + wait,
            lambda over: self._say(self._preempted) if over or self._etag != etag else None,
            lambda: None,
        )

    def _say(self, value: str, *, status: int = 200, etag: str = "") -> Response:
        headers = {"Metadata-Flavor": "Google", "ETag": etag or self._etag, "Server": "Metadata Server for VM"}
        return Response(status, value.encode(), "application/text", headers)


class AwsMetadataServer:
    """IMDSv2: tokens, ``spot/instance-action`` and the rebalance recommendation, which is never there."""

    DATA = "/latest/meta-data/"

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}
        self._ends_at: float | None = None

    def notice(self, ends_at: float) -> None:
        """See :class:`MetadataServer`."""
        self._ends_at = ends_at

    def withdraw(self) -> None:
        """See :class:`MetadataServer`."""
        self._ends_at = None

    def handle(self, request: Request) -> Response:
        """See :class:`MetadataServer`."""
        if "x-forwarded-for" in request.headers:
            return Response(403, b"", _TEXT)
        if request.path == "/latest/api/token":
            return self._new_token(request)
        now = time.monotonic()
        if self._tokens.get(request.headers.get("x-aws-ec2-metadata-token", ""), now) <= now:
            return Response(401, b"", _TEXT)
        if request.method != "GET":
            return Response(405, b"", _TEXT)
        if request.path == f"{self.DATA}instance-life-cycle":
            return Response(200, b"spot", _TEXT)
        if request.path == f"{self.DATA}spot/instance-action" and self._ends_at is not None:
            at = datetime.fromtimestamp(int(self._ends_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return _json(200, {"action": "terminate", "time": at})
        return Response(404, b"", _TEXT)

    def _new_token(self, request: Request) -> Response:
        life = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if request.method != "PUT" or not (life.isascii() and life.isdecimal() and 0 < int(life) <= 21600):
            return Response(400 if request.method == "PUT" else 405, b"", _TEXT)
        now, token = time.monotonic(), secrets.token_urlsafe(32) + "=="
        self._tokens = {token: until for token, until in self._tokens.items() if until > now}
        self._tokens[token] = now + int(life)
        return Response(200, token.encode(), _TEXT, {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": life})


def metadata_server_of(
    provider: str, resource: str, group: AzureGroup, *, approved: Callable[[str], None], changed: Callable[[], None]
) -> MetadataServer:
    """The metadata server of a node. Karpenter's nodes are machines of EC2, as its notice is (``spotwright.clouds``)."""
    if provider == Provider.AKS:
        return AzureMetadataServer(resource, group, approved)
    if provider == Provider.GKE:
        return GcpMetadataServer(changed)
    return AwsMetadataServer()


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(status, json.dumps(content).encode(), "application/json; charset=utf-8")
