"""Artifacts that the code has written to a path of its own choice (``custom_path``) on a mount that only it can see.

Whoever reads an attempt's outputs copies such files to where artifacts lie (:mod:`spotwright.pipelines.outputs`), but cannot see
what was mounted for the attempt. So the attempt does it itself when its function has returned.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["bring"]


def bring(out: Path) -> None:
    """Copy what lies at custom paths to the places of the artifacts. Raises ``OSError`` where one cannot be copied."""
    try:
        said = json.loads((out / "executor_output.json").read_bytes())
    except (OSError, ValueError):
        return  # whoever reads the outputs says so
    for name, custom in _custom_paths(said):
        source, target = Path(custom), out / "artifacts" / os.path.basename(name)  # noqa: PTH119 (whatever a name holds)
        if not source.is_absolute() or not source.exists() or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def _custom_paths(said: Any) -> Iterator[tuple[str, str]]:
    artifacts = said.get("artifacts") if isinstance(said, dict) else None
    for name, entry in artifacts.items() if isinstance(artifacts, dict) else ():
        entries = entry.get("artifacts") if isinstance(entry, dict) else None
        first = entries[0] if isinstance(entries, list) and entries else None
        custom = first.get("custom_path") if isinstance(first, dict) else None
        if isinstance(custom, str) and custom:
            yield name, custom
