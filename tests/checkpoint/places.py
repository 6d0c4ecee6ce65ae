"""Helpers: a store in memory that fails on request, and the shortest way to save and load a state."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from spotwright.checkpoint import SaveFailed
from spotwright.checkpoint.save_manager import SaveManager

__all__ = ["FACTS", "MemoryStore", "round_trip"]

FACTS = {"step": 0, "finished": False, "age": 0.0, "step_seconds": None}
"""The facts of a save beside its state."""


class MemoryStore:
    """A place in memory. ``tears`` holds the names whose next creation fails, with how many bytes of it are there then."""

    def __init__(self) -> None:
        self.place = "memory"
        self.files: dict[str, bytes] = {}
        self.tears: dict[str, int | None] = {}

    def names(self) -> list[str]:
        return list(self.files)

    def create(self, name: str, data: bytes) -> bool:
        if name in self.files:
            return False
        if name in self.tears:
            kept = self.tears.pop(name)
            if kept is not None:
                self.files[name] = data[:kept]
            raise SaveFailed("memory: full")
        self.files[name] = data
        return True

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        file = io.BytesIO()
        yield file
        self.files[name] = file.getvalue()

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def open(self, name: str) -> BinaryIO | None:
        return io.BytesIO(self.files[name]) if name in self.files else None

    def remove(self, name: str) -> None:
        self.files.pop(name, None)


def round_trip(state: Any) -> Any:
    """Save a state and load it."""
    manager = SaveManager(MemoryStore(), program="", keep=1, allow_pickle=False)
    manager.claim(None)
    manager.save(state, FACTS)
    loaded = manager.load()
    assert loaded is not None
    return loaded.state
