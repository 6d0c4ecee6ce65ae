"""Everything that a cluster may leave on a machine: what `down` removes, and how it checks that nothing is left."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from testbed.machine import network, nodes
from testbed.machine.processes import end_process, marked_pids
from testbed.settings import NETWORK, Settings

__all__ = ["find", "remove"]

_CGROUPS = Path("/sys/fs/cgroup")


def remove(settings: Settings) -> None:
    """Remove whatever is left of a cluster, also of one whose start or end was interrupted."""
    for pid in marked_pids(settings.folder):
        end_process(pid, kill=True)
    network.remove(settings)
    nodes.remove_cgroups(settings)
    shutil.rmtree(settings.folder, ignore_errors=True)


def find(settings: Settings) -> list[str]:
    """Name the leftovers of a cluster on this machine; an empty list is a clean machine."""
    return [
        *(f"process {pid}: {_command(pid)}" for pid in marked_pids(settings.folder)),
        *(f"network namespace {name}" for name in network.namespaces(settings)),
        *(f"interface {name}" for name in _interfaces(settings)),
        *(f"mount {place}" for place in _mounts(settings)),
        *(f"control group {path}" for path in _cgroups(settings)),
        *(f"iptables rule {rule}" for rule in _rules()),
        *([f"folder {settings.folder}"] if settings.folder.exists() else []),
    ]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    except OSError:
        return "has ended"


def _interfaces(settings: Settings) -> list[str]:
    """The machine's own interfaces with the name of a node's cable; Linux lists no others here."""
    prefix = f"{settings.name}-n"
    return [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(prefix)]


def _mounts(settings: Settings) -> list[str]:
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    ours = (f"{settings.folder}/", f"/run/netns/{settings.name}-n")
    return [place for place in places if place.startswith(ours) or place == f"/run/netns/{settings.name}"]


def _cgroups(settings: Settings) -> list[Path]:
    folders = [_CGROUPS / settings.name, *(path / settings.name for path in _CGROUPS.iterdir())]
    return [path for path in folders if path.is_dir()]


def _rules() -> list[str]:
    """Rules for a cluster's Services among the machine's own; its pods' addresses may be those of another program's network."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    ranges = (NETWORK.services, f"{NETWORK.kubernetes_service}/32")
    return [line for line in saved.splitlines() if any(text in line for text in ranges)]
