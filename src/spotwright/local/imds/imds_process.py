"""The process with all metadata servers of a run: for each simulated node its cloud's server, and a node agent that reads it.

The agent uses the code of real nodes: the same source of notices, the same watching thread, the same published state. A separate
process lets a waiting engine use no processor time, and runs without simulated cloud nodes do not start it. It ends with its
engine, when the socket between them closes.

Orders are JSON objects, one per packet: ``boot`` (a node's name, with its two listening sockets), ``notice``, ``gone``. The
answer ``approved`` says that a node may go early.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from spotwright.agent.http_server import HttpServer
from spotwright.agent.relay import NoticeRelay
from spotwright.local.imds.imds_protocols import AzureGroup, MetadataServer, metadata_server_of
from spotwright.model.pools import Provider
from spotwright.notices import Source
from spotwright.notices.notice import PollingSource

__all__ = ["serve"]

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
            order["provider"], resource, group, approved=self._approved, changed=self._server.wake
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
    if order["provider"] == Provider.GKE:
        from spotwright.notices.gcp import GcpSource

        return GcpSource(url, notice=order["notice"])
    if order["provider"] == Provider.AKS:
        from spotwright.notices.azure import AzureSource

        source = AzureSource(url, resource=resource)
    else:
        from spotwright.notices.aws import AwsSource

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
