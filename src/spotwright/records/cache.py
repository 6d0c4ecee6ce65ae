"""The cache of task results: one file per fingerprint of a task's code and inputs, as in KFP's cache.

A result is used only while all its files exist; a file that cannot be read is no result.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.records.state_folder import write_atomically

__all__ = ["Cache"]

_PARTS = {"parameters", "artifacts", "run", "task"}


class Cache:
    """Results by fingerprint below one folder. Runs may write at the same time: the last of equal results stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, fingerprint: str) -> Mapping[str, Any] | None:
        """The result (``parameters``, ``artifacts``, ``run``, ``task``) for a fingerprint; ``None`` without a complete one."""
        try:
            result: Mapping[str, Any] = json.loads((self._folder / f"{fingerprint}.json").read_bytes())
            whole = result.keys() >= _PARTS and all(Path(file).exists() for file in result["files"])
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return None
        if not whole:
            return None
        with contextlib.suppress(OSError):  # in a folder that may only be read
            os.utime(self._folder / f"{fingerprint}.json")  # prune deletes results that were not used for long
        return result

    def keep(self, fingerprint: str, result: Mapping[str, Any]) -> None:
        """Store a result. Raises :class:`StateError` if it cannot be written."""
        try:
            self._folder.mkdir(exist_ok=True)
            files = [uri for uri in _local_uris(result.get("artifacts")) if Path(uri).exists()]
            write_atomically(self._folder / f"{fingerprint}.json", {**result, "files": files})
        except OSError as error:
            raise StateError(
                f"{self._folder}: cannot be written ({error.strerror}); free some space or use --cache off"
            ) from error


def _local_uris(artifacts: Any) -> Iterator[str]:
    """The absolute paths among the URIs of artifacts in KFP's shape: ``{name: {"artifacts": [{"uri": ...}]}}``."""
    if isinstance(artifacts, dict):
        uri = artifacts.get("uri")
        if isinstance(uri, str) and uri.startswith("/"):
            yield uri
        for value in artifacts.values():
            yield from _local_uris(value)
    elif isinstance(artifacts, list):
        for value in artifacts:
            yield from _local_uris(value)
