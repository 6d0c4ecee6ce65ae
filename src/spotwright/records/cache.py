"""Results that later runs may use: one file per fingerprint of a task's code and inputs, as KFP's cache keeps them.

A result counts only while every file it brought is still there; one that cannot be read is no result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.records.folders import write_atomically

__all__ = ["Cache"]

_PARTS = {"parameters", "artifacts", "run", "task"}


class Cache:
    """Results by fingerprint below one folder. Safe between runs at the same time: the last writer of equal results wins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, fingerprint: str) -> Mapping[str, Any] | None:
        """The result (``parameters``, ``artifacts``, ``run``, ``task``) for a fingerprint, where there is a whole one."""
        try:
            result = json.loads((self._folder / f"{fingerprint}.json").read_bytes())
            whole = result.keys() >= _PARTS and all(Path(file).exists() for file in result["files"])
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return None
        return result if whole else None

    def keep(self, fingerprint: str, result: Mapping[str, Any]) -> None:
        """Keep a result. Raises :class:`StateError` where it cannot be written."""
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
