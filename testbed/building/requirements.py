"""What the machine must have: Linux with root, Debian packages, and Go where something has still to be built.

Everything that is missing is named in one message with the command that installs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.errors import TestbedError

__all__ = ["check_machine", "obstacle"]

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


def check_machine(*, building: bool) -> None:
    """Raise a :class:`TestbedError` that says what this machine lacks. Go is needed only for ``building``."""
    reason = obstacle(building=building)
    if reason:
        raise TestbedError(reason)


def obstacle(*, building: bool) -> str | None:
    """Why no cluster can start here, in one sentence or two with the remedy, or None."""
    if sys.platform != "linux":
        return "the test bed needs Linux: its nodes are namespaces of the kernel"
    if os.geteuid() != 0:
        return "the test bed needs root: it makes network namespaces, mounts and control groups"
    missing = [package for package, part in _PACKAGES.items() if not _has(part)]
    if missing:
        return f"missing programs; on Debian: apt-get install -y --no-install-recommends {' '.join(missing)}"
    if building and (version := _go_version()) < _GO:
        found = f"{'.'.join(map(str, version))} is too old" if version else "is not on the PATH"
        return f"Go {'.'.join(map(str, _GO))} or newer is needed to build Kubernetes, once; go {found}"
    return None


def _has(part: str) -> bool:
    return Path(part).exists() if part.startswith("/") else shutil.which(part) is not None


def _go_version() -> tuple[int, ...]:
    if shutil.which("go") is None:
        return ()
    text = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()
