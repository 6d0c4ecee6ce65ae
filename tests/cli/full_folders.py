"""File systems of a few kilobytes, which tests fill."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

MEGABYTES = 3


def can_mount() -> str:
    """Why a small file system cannot be mounted here; empty when one can."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting a small disk needs root"
    place = Path("/run") if Path("/run").is_dir() else Path("/")
    trial = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)],
        capture_output=True,
        check=False,
    )
    return "" if trial.returncode == 0 else "no file system can be mounted here"


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 4096, 512, 64, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler
