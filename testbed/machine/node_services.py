"""What stands beside the kubelet on a node: its cloud's metadata server, and a stand-in for logind. One process a node.

It runs inside the node's namespaces, so a power cut takes it as well. The metadata server answers at 169.254.169.254 as that
of AKS, GKE or EKS does; it is the one that simulated nodes of Spotwright use. The test bed sends orders to a socket in the
node's folder, one JSON object a connection, and reads an answer:

| order | what happens |
|---|---|
| {"do": "notice", "seconds": 30} | the metadata server announces that the node goes in so many seconds |
| {"do": "withdraw"} | it takes that back |
| {"do": "shutdown"} | logind announces a shutdown; the answer comes when the kubelet lets go |
| {"do": "state"} | whether a kubelet would hear of a shutdown |
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.local.imds_server import AzureGroup, metadata_server_of
from spotwright.notices.http_server import HttpServer
from testbed.machine.logind import Logind
from testbed.settings import NETWORK

__all__ = ["order", "socket_path"]

_BACKLOG = 64
_MAX_ORDER = 1 << 12  # bytes


def socket_path(folder: Path) -> Path:
    """The socket for orders, in the folder of a node."""
    return folder / "services.sock"


def order(folder: Path, what: str, *, timeout: float = 10.0, **details: float) -> dict[str, Any]:
    """Send an order to a node's services and return their answer. ``timeout`` is in seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout)
        client.connect(str(socket_path(folder)))
        client.sendall(json.dumps({"do": what, **details}).encode())
        client.shutdown(socket.SHUT_WR)
        answer: dict[str, Any] = json.loads(client.makefile("rb").read())
        return answer


class _Services:
    """The services of one node."""

    def __init__(self, cloud: str, resource: str, folder: Path, bus: Path, max_delay: float) -> None:
        self._server = HttpServer()
        self._metadata = metadata_server_of(
            PROVIDERS[cloud].metadata_service,
            resource,
            AzureGroup(),
            approved=self._approved,
            changed=self._server.wake,
        )
        listener = socket.create_server((NETWORK.metadata, 80), backlog=_BACKLOG)
        self._server.listen(listener, self._metadata.handle)
        self._logind = Logind(bus, max_delay)
        socket_path(folder).unlink(missing_ok=True)
        self._orders = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._orders.bind(str(socket_path(folder)))
        self._orders.listen()

    def run(self) -> None:
        threading.Thread(target=self._take_orders, daemon=True).start()
        while True:
            self._server.run_once()

    def _approved(self, resource: str) -> None:
        print(f"{resource}: the event was approved", flush=True)  # noqa: T201  # the log of the node

    def _take_orders(self) -> None:
        while True:
            client, _ = self._orders.accept()
            with client:
                client.settimeout(5.0)
                try:
                    answer = self._obey(json.loads(client.makefile("rb").read(_MAX_ORDER)))
                    client.sendall(json.dumps(answer).encode())
                except (OSError, ValueError, KeyError) as error:
                    print(f"order failed: {error!r}", flush=True)  # noqa: T201

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        match order["do"]:
            case "notice":
                self._metadata.notice(time.time() + float(order["seconds"]))
                return {}
            case "withdraw":
                self._metadata.withdraw()
                return {}
            case "shutdown":
                released = self._logind.shut_down()
                return {"released": released, "seconds": time.monotonic() - started}
            case "state":
                return {"inhibited": self._logind.inhibited}
            case unknown:
                raise ValueError(unknown)


def main() -> None:
    """Serve until the node ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloud", required=True)
    parser.add_argument("--resource", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bus", type=Path, required=True)
    parser.add_argument("--max-delay", type=float, required=True)
    options = parser.parse_args()
    _Services(options.cloud, options.resource, options.folder, options.bus, options.max_delay).run()


if __name__ == "__main__":
    main()
