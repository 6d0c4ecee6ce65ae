"""What a place for checkpoints must be able to do, and which kind of place an address means.

A checkpoint needs little of its place: files that are written once, read, listed and removed, and one act that only one of
several writers can win: the creation of a file that is not there yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from spotwright.checkpoint.errors import PlaceError

__all__ = ["Store", "open_store"]


class Store(Protocol):
    """A flat folder of files. Every method raises :class:`PlaceError` for what it does not name itself."""

    place: str
    """The address, as it may be shown."""

    def names(self) -> list[str]:
        """The names of all files, in any order; none where the place is not there yet."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a small file durable, unless one of that name exists: then ``False``, and nothing has changed.

        Raises :class:`SaveFailed` where it cannot be written; a file of that name may then be there all the same, empty or cut.
        """

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A new file to be written from its beginning to its end; durable when the block is left without an exception.

        Raises :class:`SaveFailed`, from the block too, and leaves nothing behind then.
        """

    def read(self, name: str) -> bytes | None:
        """A small file; ``None`` where there is none."""

    def open(self, name: str) -> BinaryIO | None:
        """A file to be read, which can be positioned; ``None`` where there is none."""

    def remove(self, name: str) -> None:
        """Take a file away; nothing where there is none."""


def open_store(place: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None) -> Store:
    """The store of an address; ``None`` stands for ``SPOTWRIGHT_CHECKPOINT``. ``options`` go to fsspec.

    Nothing is made or asked yet. Raises :class:`PlaceError` for no address, or one that nothing here can open.
    """
    address = os.fspath(place) if place is not None else os.environ.get("SPOTWRIGHT_CHECKPOINT", "")
    if not address:
        raise PlaceError(
            "no place for checkpoints: SPOTWRIGHT_CHECKPOINT is not set, as it is in every attempt of `spotwright run`; "
            'outside of it name one: Checkpoint("checkpoints")'
        )
    scheme, mark, rest = address.partition("://")
    if not mark or scheme == "file":
        from spotwright.checkpoint.folder import FolderStore

        return FolderStore(_local(rest) if mark else address)
    if scheme == "pvc":
        raise PlaceError(
            f"{address}: pvc:// is for policies; in the container name the folder where the volume is mounted"
        )
    from spotwright.checkpoint.objects import ObjectStore

    return ObjectStore(address, options or {})


def _local(rest: str) -> str:
    """The path in a ``file://`` URL. Only its ``%XX`` are special; a host other than this one is refused."""
    from urllib.parse import unquote

    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise PlaceError(f"file://{rest}: expected file:///FOLDER on this machine")
    return "/" + unquote(path)
