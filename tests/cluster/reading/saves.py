"""Whether an attempt on a real cluster has saved its work."""

from __future__ import annotations

from pathlib import Path


def is_saved(folder: Path) -> bool:
    """Whether a checkpoint's folder has a save. The first entry there is the attempt's claim, and each save adds one."""
    return len(list(folder.rglob("entry-*"))) > 1
