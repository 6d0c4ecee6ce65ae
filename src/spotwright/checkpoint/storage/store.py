"""The interface of a place for checkpoints, and the choice of its kind by the address.

A place stores files that are written once, read, listed and removed. One operation decides between several writers: only one of
them can create a file that does not exist yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from spotwright.checkpoint.errors import PlaceError

__all__ = ["Store", "open_store"]


class Store(Protocol):
    """A flat folder of files. Every method raises :class:`PlaceError` for errors that its docstring does not name."""

    place: str
    """The address without credentials."""

    def names(self) -> list[str]:
        """Return the names of all files, in any order; none if the place does not exist yet."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a small, durable file. Returns ``False``, and changes nothing, if a file of that name exists.

        Raises :class:`SaveFailed` if it cannot be written; a file of that name may then exist nevertheless, empty or cut.
        """

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file for writing from beginning to end; it is durable after the block, unless that raises.

        Raises :class:`SaveFailed`, also from within the block, and then leaves no file.
        """

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; ``None`` if it does not exist."""

    def open(self, name: str) -> BinaryIO | None:
        """Open a seekable file for reading; ``None`` if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""


def open_store(place: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None) -> Store:
    """Return the store of an address; ``None`` stands for ``SPOTWRIGHT_CHECKPOINT``, or the default folder.

    ``options`` go to fsspec. It creates and reads nothing yet. Raises :class:`PlaceError` for an address that no store can open.
    """
    address = os.fspath(place) if place is not None else os.environ.get("SPOTWRIGHT_CHECKPOINT", "")
    if not address:
        if place is not None:
            raise PlaceError(
                'the place for checkpoints is empty: name a folder or a URL, such as Checkpoint("checkpoints")'
            )
        from spotwright.checkpoint.default_folder import default_folder

        address = default_folder()
    scheme, mark, rest = address.partition("://")
    if not mark or scheme == "file":
        from spotwright.checkpoint.storage.folder import FolderStore

        return FolderStore(_local(rest) if mark else address)
    if scheme == "pvc":
        raise PlaceError(
            f"{address}: pvc:// is for policies; in the container, name the folder at which the volume is mounted"
        )
    from spotwright.checkpoint.storage.object_store import ObjectStore

    return ObjectStore(address, options or {})


def _local(rest: str) -> str:
    """Return the path in a ``file://`` URL. Only ``%XX`` are special; a host other than this one is refused."""
    from urllib.parse import unquote

    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise PlaceError(f"file://{rest}: expected file:///FOLDER on this machine")
    return "/" + unquote(path)
