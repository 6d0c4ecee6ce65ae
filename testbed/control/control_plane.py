"""Starts and ends etcd, the API server, the controller manager, the scheduler, and the way to them from this machine.

They are processes of this machine in the cluster's network namespace. A client outside reaches the API server over a
socket file: one end listens on 127.0.0.1, the other stands inside the namespace.
"""

from __future__ import annotations

from pathlib import Path

from testbed.building.builds import Cache
from testbed.control.api import Api
from testbed.control.credentials import Credentials
from testbed.machine.processes import Processes, wait_until
from testbed.settings import NETWORK, Settings

__all__ = ["END_ORDER", "restart", "start"]

END_ORDER = ("scheduler", "controller-manager", "apiserver", "etcd", "relay", "relay-inside")
"""What depends on a process ends before it."""

_AUDIT = Path(__file__).parent / "configuration" / "audit-policy.yaml"
"""Audits the API requests of pods' accounts; a test compares used rights with granted ones."""

_READY_TIMEOUT = 120.0  # seconds, on a busy machine
_WAITING = (
    "backlog=1024"  # connections that wait for a relay; socat lets 5 wait, and a burst on a busy machine has more
)


def start(settings: Settings) -> None:
    """Start the control plane, and wait until the API server is ready."""
    for name in ("etcd", "apiserver", "relay-inside", "relay"):
        restart(settings, name)
    wait_until(Api(settings).ready, f"the API server; see {Processes(settings).log('apiserver')}", _READY_TIMEOUT)
    for name in ("controller-manager", "scheduler"):
        restart(settings, name)


def restart(settings: Settings, name: str) -> None:
    """Start one process of the control plane, after ending it if it runs."""
    processes = Processes(settings)
    processes.end(name)
    namespace = None if name == "relay" else settings.namespace
    processes.start(name, _commands(settings)[name], namespace=namespace)


def _commands(settings: Settings) -> dict[str, list[str]]:
    credentials, cache, socket = Credentials(settings), Cache(settings.cache), settings.folder / "run" / "api.sock"
    return {
        "etcd": [str(cache.component("etcd")), f"--data-dir={settings.folder}/etcd"],
        "apiserver": _api_server(settings, credentials, cache),
        "controller-manager": _controller_manager(settings, credentials, cache),
        "scheduler": [
            str(cache.component("kube-scheduler")),
            *_identity(settings, "scheduler"),
            "--leader-elect=false",
            *_speed(settings),
        ],
        "relay-inside": [
            "socat",
            f"UNIX-LISTEN:{socket},fork,unlink-early,mode=600,{_WAITING}",
            "TCP:127.0.0.1:6443,nodelay",
        ],
        "relay": [
            "socat",
            f"TCP-LISTEN:{settings.port},bind=127.0.0.1,fork,reuseaddr,nodelay,{_WAITING}",
            f"UNIX-CONNECT:{socket}",
        ],
    }


def _api_server(settings: Settings, credentials: Credentials, cache: Cache) -> list[str]:
    return [
        str(cache.component("kube-apiserver")),
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        f"--advertise-address={NETWORK.control_plane}",
        f"--service-cluster-ip-range={NETWORK.services}",
        f"--tls-cert-file={credentials.folder}/api.crt",
        f"--tls-private-key-file={credentials.folder}/api.key",
        f"--token-auth-file={credentials.tokens}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--default-not-ready-toleration-seconds={settings.toleration}",
        f"--default-unreachable-toleration-seconds={settings.toleration}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_accounts}",
        f"--service-account-signing-key-file={credentials.service_accounts}",
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=master-count",
        "--enable-aggregator-routing",  # webhooks behind a Service without pods: its endpoint is asked directly
        f"--audit-policy-file={_AUDIT}",
        f"--audit-log-path={settings.audit}",
    ]


def _controller_manager(settings: Settings, credentials: Credentials, cache: Cache) -> list[str]:
    return [
        str(cache.component("kube-controller-manager")),
        *_identity(settings, "controllers"),
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={credentials.service_accounts}",
        f"--root-ca-file={credentials.ca}",
        f"--cluster-signing-cert-file={credentials.ca}",
        f"--cluster-signing-key-file={credentials.ca_key}",
        f"--node-monitor-grace-period={settings.silence}s",
        "--node-monitor-period=1s",
        *_speed(settings),
    ]


def _speed(settings: Settings) -> list[str]:
    """With hundreds of nodes the limits of requests are higher: by default 20 pods a second are made, and 50 are bound."""
    return ["--kube-api-qps=150", "--kube-api-burst=300"] if settings.pretended else []


def _identity(settings: Settings, user: str) -> list[str]:
    flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [f"--{flag}={settings.user_kubeconfig(user)}" for flag in flags]
