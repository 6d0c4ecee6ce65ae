"""The network of a cluster: a namespace with a bridge for the control plane, and one namespace with one cable per node.

The machine's own network only gets a listener on 127.0.0.1. Pods of a node have a separate subnet, which the bridge's
namespace routes to the node; so processes that run there reach every pod and node.
"""

from __future__ import annotations

from pathlib import Path

from testbed.errors import TestbedError
from testbed.machine.processes import run
from testbed.settings import NETWORK, Settings

__all__ = ["connect_node", "create_control_plane", "namespaces", "plug", "remove", "unplug"]

_NAMESPACES = Path("/run/netns")


def create_control_plane(settings: Settings) -> None:
    """Make the namespace of the control plane with the bridge.

    The Service "kubernetes" works without kube-proxy: its address is one of this namespace, and a rule leads port 443 to
    the API server.
    """
    run(["ip", "netns", "add", settings.namespace])
    commands = [
        "ip link set lo up",
        "ip link add br0 type bridge",
        f"ip addr add {NETWORK.control_plane}/24 dev br0",
        f"ip addr add {NETWORK.kubernetes_service}/32 dev lo",
        "ip link set br0 up",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
    ]
    commands += [
        f"iptables -w -t nat -A {chain} -d {NETWORK.kubernetes_service} -p tcp --dport 443 -j REDIRECT --to-ports 6443"
        for chain in ("PREROUTING", "OUTPUT")
    ]
    _inside(settings.namespace, commands)


def connect_node(settings: Settings, number: int) -> None:
    """Create a node's namespace and connect it to the bridge; keep an existing one.

    The address of metadata servers belongs to the node itself, so its pods reach it and other nodes do not.
    """
    name = settings.node_namespace(number)
    if name in namespaces(settings):
        return
    run(["ip", "netns", "add", name])
    try:
        _lay_cable(settings, number, name)
    except TestbedError:
        run(["ip", "netns", "del", name])
        raise


def _lay_cable(settings: Settings, number: int, name: str) -> None:
    run(["ip", "link", "add", name, "netns", settings.namespace, "type", "veth", "peer", "name", "eth0", "netns", name])
    route = f"ip route replace {NETWORK.pods(number)} via {NETWORK.node(number)}"
    _inside(settings.namespace, [f"ip link set {name} master br0 up", route])
    _inside(
        name,
        [
            "ip link set lo up",
            f"ip addr add {NETWORK.metadata}/32 dev lo",
            f"ip addr add {NETWORK.node(number)}/24 dev eth0",
            "ip link set eth0 up",
            f"ip route add default via {NETWORK.control_plane}",
            "echo 1 >/proc/sys/net/ipv4/ip_forward",
        ],
    )


def unplug(settings: Settings, number: int) -> None:
    """Pull a node's cable: its processes continue, unreachable."""
    _inside(settings.node_namespace(number), ["ip link set eth0 down"])


def plug(settings: Settings, number: int) -> None:
    """Put a node's cable back."""
    route = f"ip route replace default via {NETWORK.control_plane}"
    _inside(settings.node_namespace(number), ["ip link set eth0 up", route])


def remove(settings: Settings, number: int | None = None) -> None:
    """Remove a node's namespace with its interfaces, or without a number all namespaces of the cluster."""
    ours = namespaces(settings)
    names = ours if number is None else [name for name in ours if name == settings.node_namespace(number)]
    for name in reversed(names):  # nodes before the control plane, which holds the other ends of their cables
        if name != settings.namespace and settings.namespace in ours:  # the kernel alone would do it some time later
            _inside(settings.namespace, [f"ip link del {name} || [ ! -e /proc/sys/net/ipv4/conf/{name} ]"])
        run(["ip", "netns", "del", name])


def namespaces(settings: Settings) -> list[str]:
    """The network namespaces of the cluster that exist."""
    found = sorted(path.name for path in _NAMESPACES.glob("*"))
    return [name for name in found if name == settings.namespace or name.startswith(f"{settings.namespace}-n")]


def _inside(namespace: str, commands: list[str]) -> None:
    run(["nsenter", f"--net=/run/netns/{namespace}", "sh", "-ec", "\n".join(commands)])
