"""Real nodes: a kubelet and a containerd each, in one tree of processes that SIGKILL ends like a power cut.

A node has separate mount, pid, uts and network namespaces, and its control groups below one of the cluster. Its disk (pods,
images, the kubelet's state) is a folder that survives a power cut, as on a real machine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.building.builds import Cache
from testbed.building.images import PAUSE, archives
from testbed.errors import TestbedError
from testbed.machine import network
from testbed.machine.node_services import socket_path
from testbed.machine.processes import Processes, run, wait_until
from testbed.pools import identity
from testbed.settings import NETWORK, Settings

__all__ = ["cut_power", "execute", "import_images", "is_running", "remove_cgroups", "start", "stop"]

_ROOT = Path(__file__).resolve().parent
_CGROUPS = Path("/sys/fs/cgroup")
_PLUGINS = "/usr/lib/cni"
_FOLDERS = ("kubelet", "containerd", "cni", "network", "log", "pods", "containers", "layers")
_BUS = "/run/dbus/system_bus_socket"
_IMPORT_SECONDS = 180.0  # on a busy machine
_SPARE_DELAY = 10  # seconds that logind waits longer than the kubelet needs; with less the kubelet would rewrite /etc


def start(settings: Settings, number: int) -> None:
    """Start a node, connected to the network; it is Ready about ten seconds later. Does nothing if it runs."""
    if is_running(settings, number):
        return
    folder = settings.node_folder(number)
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    socket_path(folder).unlink(missing_ok=True)
    network.connect_node(settings, number)
    _write_configuration(settings, number)
    _make_cgroups(settings, number)
    isolate = [
        "unshare",
        "--mount",
        "--pid",
        "--uts",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    ]
    Processes(settings).start(
        _process(number),
        [*isolate, "bash", _ROOT / "init.sh"],
        namespace=settings.node_namespace(number),
        environment=_environment(settings, number),
        log=folder / "log" / "init.log",
    )


def cut_power(settings: Settings, number: int) -> None:
    """End every process of a node at once. Its disk keeps what was written."""
    Processes(settings).end(_process(number), kill=True)
    _clean_up(settings, number)


def stop(settings: Settings, number: int) -> None:
    """Stop a node's services with SIGTERM, and then the node. Kubernetes is not notified."""
    init = _init(settings, number)
    if init is not None:
        run(["kill", "-TERM", str(init)])
        processes = Processes(settings)
        ends = time.monotonic() + 20
        while processes.pid(_process(number)) is not None and time.monotonic() < ends:
            time.sleep(0.05)
    cut_power(settings, number)


def is_running(settings: Settings, number: int) -> bool:
    """Whether a node has power."""
    return Processes(settings).pid(_process(number)) is not None


def execute(settings: Settings, number: int, command: list[str]) -> None:
    """Become a command inside a node's namespaces; does not return."""
    init = _init(settings, number)
    if init is None:
        raise TestbedError(f"n{number} has no power")
    os.execvp("nsenter", [*_inside(init), *command])


def import_images(settings: Settings, number: int, paths: Sequence[Path]) -> None:
    """Import archives of images on a node that runs. One without power imports them when it starts."""
    folder = settings.node_folder(number)

    def is_done() -> bool:
        try:
            init = _init(settings, number)
            if init is None:
                return True
            if not socket_path(folder).exists():  # it does not have its own mounts yet
                return False
            run([*_inside(init), "sh", _ROOT / "import.sh", folder, *paths])
        except (TestbedError, OSError):  # it starts or ends just now
            return False
        return True

    wait_until(is_done, f"n{number} imports {', '.join(path.name for path in paths)}", _IMPORT_SECONDS)


def remove_cgroups(settings: Settings, number: int | None = None) -> None:
    """Remove the empty control groups of a node, or of the cluster."""
    for root in _cgroup_roots():
        folder = root / settings.name / (f"n{number}" if number is not None else "")
        for path in sorted(folder.rglob("*"), key=lambda path: -len(path.parts)):
            if path.is_dir():
                _remove_cgroup(path)
        if folder.is_dir():
            _remove_cgroup(folder)


def _process(number: int) -> str:
    return f"n{number}"


def _init(settings: Settings, number: int) -> int | None:
    """The id of a node's first process, as this machine counts."""
    parent = Processes(settings).pid(_process(number))
    if parent is None:
        return None
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0]) if children else None


def _inside(init: int) -> list[str]:
    """The command prefix that enters the node whose first process has this id."""
    return ["nsenter", f"--target={init}", "--mount", "--pid", "--net", "--uts"]


def _clean_up(settings: Settings, number: int) -> None:
    network.remove(settings, number)
    remove_cgroups(settings, number)


def _environment(settings: Settings, number: int) -> dict[str, str]:
    folder, cache, known = settings.node_folder(number), Cache(settings.cache), identity(settings.cloud, number)
    max_delay = settings.shutdown_grace + _SPARE_DELAY
    services = [sys.executable, "-m", "testbed.machine.node_services", f"--cloud={settings.cloud}"]
    services += [f"--resource={known.resource}", f"--folder={folder}", f"--bus={_BUS}", f"--max-delay={max_delay}"]
    labels = ",".join(f"{key}={value}" for key, value in known.labels.items())
    kubelet = [
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={settings.user_kubeconfig(f'n{number}')}",
        f"--hostname-override=n{number}",
        f"--node-ip={NETWORK.node(number)}",
        f"--node-labels={labels}",
        "--cert-dir=/var/lib/kubelet/pki",
    ]
    return {
        "NODE": f"n{number}",
        "FOLDER": str(folder),
        "BIN": str(cache.program("kubernetes").parent),
        "ARCHIVES": " ".join(map(str, archives(cache, settings.controllers))),
        "SERVICES": " ".join(services),
        "KUBELET_FLAGS": " ".join(kubelet),
        "PROXY_FLAGS": " ".join(_proxy_flags(settings, number)) if settings.proxy else "",
        "PYTHONPATH": str(_ROOT.parent.parent),
        "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={_BUS}",
    }


def _proxy_flags(settings: Settings, number: int) -> list[str]:
    kept = ("max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait")
    return [
        f"--kubeconfig={settings.user_kubeconfig('proxy')}",
        f"--hostname-override=n{number}",
        f"--cluster-cidr={NETWORK.all_pods}",
        "--proxy-mode=iptables",
        *(f"--conntrack-{name}=0" for name in kept),  # leave the machine's connection tracking as it is
        "--healthz-bind-address=127.0.0.1:10256",
    ]


def _write_configuration(settings: Settings, number: int) -> None:
    folder = settings.node_folder(number)
    (folder / "containerd.toml").write_text(_CONTAINERD.format(pause=PAUSE, plugins=_PLUGINS, folder=folder))
    (folder / "network" / "10-testbed.conflist").write_text(json.dumps(_pod_network(number)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(settings, number), indent=1))


_CONTAINERD = """\
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/network"
"""


def _pod_network(number: int) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": NETWORK.pods(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge, ports]}


def _kubelet(settings: Settings, number: int) -> dict[str, object]:
    known = identity(settings.cloud, number)
    taints = [_taint(text) for text in known.taints]
    nothing = ("nodefs.available", "imagefs.available", "nodefs.inodesFree")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},  # only processes of the cluster's own network reach a kubelet
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.name}/n{number}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "1Mi", **dict.fromkeys(nothing, "0%")},  # the machine's, not the node's
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,  # an image that is gone could not be pulled again
        "nodeLeaseDurationSeconds": settings.lease,
        "nodeStatusUpdateFrequency": "2s",
        "oomScoreAdj": 0,
        "providerID": known.provider_id,
        "registerWithTaints": taints,
        "resolvConf": "/dev/null",
        "serializeImagePulls": False,
        "shutdownGracePeriod": f"{settings.shutdown_grace}s",
        "shutdownGracePeriodCriticalPods": f"{settings.shutdown_grace_critical}s",
    }


def _taint(text: str) -> dict[str, str]:
    key, _, rest = text.partition("=")
    value, _, effect = rest.partition(":")
    return {"key": key, "value": value, "effect": effect}


def _cgroup_roots() -> list[Path]:
    """Where control groups can be: one hierarchy (v2), one for each controller (v1), or both beside each other."""
    return [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink())]


def _make_cgroups(settings: Settings, number: int) -> None:
    """Make a node's groups of version 1; a kubelet makes those of version 2. New groups of cpuset start empty."""
    for root in (path for path in _cgroup_roots() if (path / "tasks").exists()):
        for folder in (root / settings.name, root / settings.name / f"n{number}"):
            folder.mkdir(exist_ok=True)
            if root.name.startswith("cpuset"):
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (folder / name).write_text((root / name).read_text())


def _remove_cgroup(path: Path) -> None:
    """Remove an empty group. The kernel may still count its last process for a moment."""
    for _ in range(50):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
