"""Memory of the processes of pods on the test bed, whose nodes are this machine."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from tests.cluster.live.kube import Object

__all__ = ["highest_memory"]


def highest_memory(pod: Object) -> int:
    """The highest resident set of the largest process of a pod so far, in bytes."""
    uid = str(pod["metadata"]["uid"])
    found = [_of(path.parent) for path in Path("/proc").glob("[0-9]*/cgroup") if uid in _text(path)]
    assert any(found), f"no process of pod {pod['metadata']['name']} runs on this machine"
    return max(found)


def _of(process: Path) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", _text(process / "status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _text(path: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return path.read_text(encoding="utf-8")
    return ""
