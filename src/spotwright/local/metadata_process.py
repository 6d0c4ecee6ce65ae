"""The process of all metadata servers of a run: for each simulated node its cloud's server, and a node agent that reads it.

The agent is the one that runs on real nodes: the same source, the same thread that watches it, the same board. It is a process
of its own so that an engine that waits uses no processor time, and so that a node that nobody simulates costs nothing. It ends
when its engine does: the socket between them is closed then.

Orders are JSON objects, one a packet: ``boot`` (a node's name, with its two listening sockets), ``notice``, ``gone``. Back comes
``approved``, when a node may go before its time.
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

from spotwright.local.metadata_protocols import AzureGroup, Node, node_of
from spotwright.model.pools import Provider
from spotwright.notices import Source
from spotwright.notices.notice import Polling
from spotwright.notices.serving import Loop
from spotwright.notices.telling import Teller

__all__ = ["serve"]

_PACKET = 1 << 14
"""Bytes of an order at most."""

_MOST = 1 << 14  # connections: two for each attempt and node of a large run
_SHORTEST = 0.1  # seconds between two questions, whatever the time scale


@dataclass(frozen=True, slots=True)
class _Served:
    node: Node
    teller: Teller
    listeners: tuple[socket.socket, socket.socket]


class _Servers:
    """The nodes that are up."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine = engine
        self._loop = Loop(most=_MOST, most_of_one=_MOST)  # all come from this machine
        self._nodes: dict[str, _Served] = {}
        self._groups: dict[str, AzureGroup] = {}
        self._resources: dict[str, str] = {}
        self.open = True
        self._loop.watch(engine, self._read)

    def turn(self) -> None:
        self._loop.turn()

    def _read(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._engine, _PACKET, 2)
        if not data:
            self.open = False
            return
        order = json.loads(data)
        if order["what"] == "boot":
            self._boot(order, [socket.socket(fileno=descriptor) for descriptor in descriptors])
        elif order["node"] in self._nodes:
            served = self._nodes[order["node"]]
            if order["what"] == "notice":
                served.node.notice(time.time() + order["seconds"])
            else:
                self._gone(order["node"], served)

    def _boot(self, order: dict[str, Any], listeners: list[socket.socket]) -> None:
        metadata, agent = listeners
        name, pool = order["node"], order["pool"]
        resource = f"aks-{pool}-vmss_{name.rpartition('-')[2]}"
        self._resources[resource] = name
        group = self._groups.setdefault(pool, AzureGroup())
        node = node_of(order["provider"], resource, group, approved=self._approved, changed=self._loop.wake)
        host, port = metadata.getsockname()
        self._loop.listen(metadata, node.handle)
        teller = Teller(_source(order, f"http://{host}:{port}", resource), self._loop)
        self._loop.listen(agent, teller.board.handle)
        self._nodes[name] = _Served(node, teller, (metadata, agent))

    def _gone(self, name: str, served: _Served) -> None:
        served.node.withdraw()
        served.teller.stop()
        for listener in served.listeners:
            self._loop.unlisten(listener)
        del self._nodes[name]

    def _approved(self, resource: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the engine has gone, and the node with it
            self._engine.send(json.dumps({"approved": self._resources[resource]}).encode())


def _source(order: dict[str, Any], url: str, resource: str) -> Source:
    """The source of the node's agent, which asks as often as on a real node, seen in the run's own time."""
    source: Polling
    if order["provider"] == Provider.GKE:
        from spotwright.notices.gcp import GcpSource

        return GcpSource(url, notice=order["notice"])
    if order["provider"] == Provider.AKS:
        from spotwright.notices.azure import AzureSource

        source = AzureSource(url, resource=resource)
    else:
        from spotwright.notices.aws import AwsSource

        source = AwsSource(url)
    source.interval = max(_SHORTEST, source.interval / order["scale"])
    return source


def serve(descriptor: int) -> None:
    """Serve until the engine's end of the socket is closed."""
    servers = _Servers(socket.socket(fileno=descriptor))
    while servers.open:
        servers.turn()
    os._exit(0)  # threads that wait for an answer are nobody's business any more


if __name__ == "__main__":
    serve(int(sys.argv[1]))
