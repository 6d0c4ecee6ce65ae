"""The machine's requirements: Linux with root, Debian packages, and Go if something has still to be built.

Everything that is missing is named in one message with the command that installs it. Whether the kernel lets root create
nodes, which it does not inside most containers, can only be found by trying.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import TestbedError

__all__ = ["check_machine", "install_packages", "kernel_obstacle", "missing_packages", "obstacle"]

_PACKAGES = {  # Debian package -> a program or a file of it
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "iproute2": "ip",
    "util-linux": "nsenter",
    "socat": "socat",
    "busybox-static": "/bin/busybox",
    "openssl": "openssl",
}
_GO = (1, 25)  # what k8s.io/kubernetes v1.35 requires

_CGROUPS = Path("/sys/fs/cgroup")
_TRIAL = """\
ip link set lo up
ip link add br0 type bridge
ip link add n1 type veth peer name eth0
iptables -w -t nat -A OUTPUT -d 127.0.0.2 -p tcp --dport 443 -j REDIRECT --to-ports 6443
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work"
mount -t overlay -o "lowerdir=/var/lib,upperdir=$0/upper,workdir=$0/work" overlay /var/lib
"""
"""Kernel features for a cluster's network and the first process of a node (`machine/init.sh`); gone when its shell ends."""

_ISOLATED = ("unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--propagation", "private")
_TRIAL_SECONDS = 30
_INSTALL_SECONDS = 240


def check_machine(*, building: bool) -> None:
    """Raise a :class:`TestbedError` that names what this machine lacks. Go is needed only for ``building``."""
    reason = obstacle(building=building)
    if reason:
        raise TestbedError(reason)


def obstacle(*, building: bool) -> str | None:
    """Why a cluster cannot start here, in one or two sentences with the remedy, or None."""
    if sys.platform != "linux":
        return "the test bed needs Linux: its nodes are namespaces of the kernel"
    if os.geteuid() != 0:
        return "the test bed needs root: it makes network namespaces, mounts and control groups"
    if missing := missing_packages():
        return f"missing programs; on Debian: apt-get install -y --no-install-recommends {' '.join(missing)}"
    if building and (version := _go_version()) < _GO:
        found = f"{'.'.join(map(str, version))} is too old" if version else "is not on the PATH"
        return f"Go {'.'.join(map(str, _GO))} or newer is needed to build Kubernetes, once; go {found}"
    return None


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not on this machine."""
    return [package for package, part in _PACKAGES.items() if not _has(part)]


def kernel_obstacle() -> str | None:
    """Why the kernel does not allow nodes here, or None; for root, if :func:`obstacle` found nothing."""
    groups = [path for path in (_CGROUPS, _CGROUPS / "memory") if (path / "cgroup.procs").exists()]
    if not groups or not all(os.access(path, os.W_OK) for path in groups):
        return "the kernel does not allow control groups here, as inside most containers"
    with tempfile.TemporaryDirectory() as folder:
        command = [*_ISOLATED, "sh", "-ec", _TRIAL, folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"a trial of namespaces and mounts did not end within {_TRIAL_SECONDS} s"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return f"the kernel does not allow nodes here, as inside most containers: {said}"


def install_packages(packages: Sequence[str]) -> str:
    """Install Debian packages, as root on a CI machine without prompts. Returns why it failed, or nothing."""
    if shutil.which("apt-get") is None:
        return "apt-get is not installed"
    options = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install, update = ["apt-get", "install", *options, *packages], ["apt-get", "update"]
    said = ""
    for command in (install, update, install):  # the lists of packages may be old, or not there
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_INSTALL_SECONDS,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(command[:2])} did not end within {_INSTALL_SECONDS} s"
        if not missing_packages():
            return ""
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return said


def _has(part: str) -> bool:
    return Path(part).exists() if part.startswith("/") else shutil.which(part) is not None


def _go_version() -> tuple[int, ...]:
    if shutil.which("go") is None:
        return ()
    text = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()
