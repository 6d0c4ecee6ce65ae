"""The process of a run's metadata servers: for each simulated node its cloud's server, and a node agent that reads it.

The servers speak the protocols that the clouds document. The agent uses the code of real nodes: the same source of notices, the
same watching thread, the same published state. A separate process keeps the waiting engine idle, and runs without simulated
cloud nodes do not start it. It ends with its engine, when the socket between them closes.

Orders are JSON objects, one per packet: ``boot`` (a node's name, with its two listening sockets), ``notice``, ``gone``. The
answer ``approved`` says that a node may go early.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from spotwright.notices import Source
from spotwright.notices.agent import NoticeRelay
from spotwright.notices.http_client import format_http_date
from spotwright.notices.http_server import DeferredResponse, HttpServer, Request, Response
from spotwright.notices.notice import PollingSource

__all__ = [
    "AwsMetadataServer",
    "AzureGroup",
    "AzureMetadataServer",
    "GcpMetadataServer",
    "MetadataServer",
    "metadata_server_of",
    "serve",
]


_TEXT = "text/plain; charset=utf-8"


class MetadataServer(Protocol):
    """The metadata server of one node."""

    def handle(self, request: Request) -> Response | DeferredResponse:
        """Answer a request as the cloud does."""

    def notice(self, ends_at: float) -> None:
        """Announce that the node is reclaimed at this Unix time."""

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
    """``instance/preempted`` and ``instance/maintenance-event``. ``changed`` rechecks waiting requests."""

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
    """IMDSv2: tokens, ``spot/instance-action`` and the rebalance recommendation, which is never present."""

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
    service: str, resource: str, group: AzureGroup, *, approved: Callable[[str], None], changed: Callable[[], None]
) -> MetadataServer:
    """The metadata server of a node, by the service of its provider (``spotwright.clouds``). Raises :class:`ValueError`."""
    if service == "azure":
        return AzureMetadataServer(resource, group, approved)
    if service == "gcp":
        return GcpMetadataServer(changed)
    if service == "aws":
        return AwsMetadataServer()
    raise ValueError(f"{service!r} is not a metadata service")


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(status, json.dumps(content).encode(), "application/json; charset=utf-8")


_PACKET = 1 << 14
"""Maximum size of an order in bytes."""

_MAX_CONNECTIONS = 1 << 14  # two for each attempt and node of a large run
_MIN_INTERVAL = 0.1  # seconds between two polls, at any time scale


@dataclass(frozen=True, slots=True)
class _NodeServers:
    metadata: MetadataServer
    relay: NoticeRelay
    listeners: tuple[socket.socket, socket.socket]


class _Servers:
    """The event loop with the servers of all nodes that are up."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine = engine
        self._server = HttpServer(
            max_connections=_MAX_CONNECTIONS, max_per_peer=_MAX_CONNECTIONS
        )  # every connection comes from this machine
        self._nodes: dict[str, _NodeServers] = {}
        self._groups: dict[str, AzureGroup] = {}
        self._resources: dict[str, str] = {}
        self.open = True
        self._server.add_reader(engine, self._read)

    def turn(self) -> None:
        self._server.run_once()

    def _read(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._engine, _PACKET, 2)
        if not data:
            self.open = False
            return
        order = json.loads(data)
        if order["what"] == "boot":
            self._boot(order, [socket.socket(fileno=descriptor) for descriptor in descriptors])
        elif order["node"] in self._nodes:
            servers = self._nodes[order["node"]]
            if order["what"] == "notice":
                servers.metadata.notice(time.time() + order["seconds"])
            else:
                self._gone(order["node"], servers)

    def _boot(self, order: dict[str, Any], listeners: list[socket.socket]) -> None:
        metadata_socket, agent_socket = listeners
        name, pool = order["node"], order["pool"]
        resource = f"aks-{pool}-vmss_{name.rpartition('-')[2]}"
        self._resources[resource] = name
        group = self._groups.setdefault(pool, AzureGroup())
        metadata = metadata_server_of(
            order["service"], resource, group, approved=self._approved, changed=self._server.wake
        )
        host, port = metadata_socket.getsockname()
        self._server.listen(metadata_socket, metadata.handle)
        relay = NoticeRelay(_source(order, f"http://{host}:{port}", resource), self._server)
        self._server.listen(agent_socket, relay.board.handle)
        self._nodes[name] = _NodeServers(metadata, relay, (metadata_socket, agent_socket))

    def _gone(self, name: str, servers: _NodeServers) -> None:
        servers.metadata.withdraw()
        servers.relay.stop()
        for listener in servers.listeners:
            self._server.unlisten(listener)
        del self._nodes[name]

    def _approved(self, resource: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the engine has ended, and the node with it
            self._engine.send(json.dumps({"approved": self._resources[resource]}).encode())


def _source(order: dict[str, Any], url: str, resource: str) -> Source:
    """The agent's source of notices; it polls as often as on a real node, in the run's scaled time."""
    source: PollingSource
    if order["service"] == "gcp":
        from spotwright.notices.metadata_services import GcpSource

        return GcpSource(url, notice=order["notice"])
    if order["service"] == "azure":
        from spotwright.notices.metadata_services import AzureSource

        source = AzureSource(url, resource=resource)
    else:
        from spotwright.notices.metadata_services import AwsSource

        source = AwsSource(url)
    source.interval = max(_MIN_INTERVAL, source.interval / order["scale"])
    return source


def serve(descriptor: int) -> None:
    """Serve until the engine closes its end of the socket."""
    servers = _Servers(socket.socket(fileno=descriptor))
    while servers.open:
        servers.turn()
    os._exit(0)  # do not wait for threads with open requests


if __name__ == "__main__":
    serve(int(sys.argv[1]))
