"""Copy artifacts that user code wrote to a ``custom_path`` on a mount that only the attempt can see.

The reader of an attempt's outputs (:mod:`spotwright.kfp.launcher`) copies custom paths to the artifacts' usual
paths, but cannot see the attempt's mounts. So the attempt copies them itself after its function has returned.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["copy_custom_paths"]


def copy_custom_paths(out: Path) -> None:
    """Copy files and folders at custom paths to the artifacts' usual paths below ``out``. Raises ``OSError`` if a copy fails."""
    try:
        output = json.loads((out / "executor_output.json").read_bytes())
    except (OSError, ValueError):
        return  # the reader of the outputs reports it
    for name, custom in _custom_paths(output):
        source, target = Path(custom), out / "artifacts" / os.path.basename(name)  # noqa: PTH119 (a name may hold any text)
        if not source.is_absolute() or not source.exists() or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def _custom_paths(output: Any) -> Iterator[tuple[str, str]]:
    artifacts = output.get("artifacts") if isinstance(output, dict) else None
    for name, entry in artifacts.items() if isinstance(artifacts, dict) else ():
        entries = entry.get("artifacts") if isinstance(entry, dict) else None
        first = entries[0] if isinstance(entries, list) and entries else None
        custom = first.get("custom_path") if isinstance(first, dict) else None
        if isinstance(custom, str) and custom:
            yield name, custom
