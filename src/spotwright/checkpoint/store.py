"""Places for checkpoints: their interface, the choice of one by its address, and the folder as a place.

A place stores files that are written once, read, listed and removed. One operation decides between several writers: only one
can create a file that does not exist yet. A folder is on a local disk, or on a volume that several nodes mount; object stores
are in :mod:`spotwright.checkpoint.object_store`.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO, Protocol

from spotwright.checkpoint.errors import PlaceError, SaveFailed
from spotwright.links_below import is_plain

__all__ = ["FolderStore", "Store", "open_store"]


class Store(Protocol):
    """A flat folder of files. Every method raises :class:`PlaceError` for errors that its docstring does not name."""

    place: str
    """The address without credentials."""

    def names(self) -> list[str]:
        """Return the names of all files, in any order; empty if the place does not exist yet."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a small, durable file. Returns ``False``, and changes nothing, if a file of that name exists.

        Raises :class:`SaveFailed` if it cannot be written; an empty or truncated file of that name may then exist.
        """

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file for sequential writing; it is durable after the block, unless that raises.

        Raises :class:`SaveFailed`, also from within the block, and then leaves no file.
        """

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; ``None`` if it does not exist."""

    def open(self, name: str) -> BinaryIO | None:
        """Open a seekable file for reading; ``None`` if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""


def open_store(
    place: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None, *, name: str = ""
) -> Store:
    """Return the store of an address; ``None`` means ``SPOTWRIGHT_CHECKPOINT``, or the default folder.

    ``options`` go to fsspec. ``name`` names one of several trainings, whose place is below the address. Nothing is created or
    read yet. Raises :class:`PlaceError` for an unsupported address, and :class:`ValueError` for a name that is not a relative
    path.
    """
    address = os.fspath(place) if place is not None else os.environ.get("SPOTWRIGHT_CHECKPOINT", "")
    if not address:
        if place is not None:
            raise PlaceError(
                'the place for checkpoints is empty: name a folder or a URL, such as Checkpoint("checkpoints")'
            )
        from spotwright.checkpoint.attempt_environment import default_folder

        address = default_folder()
    if name:
        address = _below(address, name)
    scheme, mark, rest = address.partition("://")
    if not mark or scheme == "file":
        return FolderStore(_local(rest) if mark else address)
    if scheme == "pvc":
        raise PlaceError(
            f"{address}: pvc:// is for policies; in the container, name the folder at which the volume is mounted"
        )
    from spotwright.checkpoint.object_store import ObjectStore

    return ObjectStore(address, options or {})


def _below(address: str, name: str) -> str:
    """Return the address of a named training in a shared place."""
    if not is_plain(name):
        raise ValueError(f"name={name!r}: expected a relative path, such as name='fold1'")
    head, mark, query = address.partition("?") if "://" in address else (address, "", "")
    return f"{head.rstrip('/')}/{name}{mark}{query}"


def _local(rest: str) -> str:
    """Return the path in a ``file://`` URL. Only ``%XX`` is special; another host is refused."""
    from urllib.parse import unquote

    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise PlaceError(f"file://{rest}: expected file:///FOLDER on this machine")
    return "/" + unquote(path)


_BUFFER = 1 << 18  # bytes; smaller pieces are buffered, larger ones go straight to the kernel
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # do not follow links or wait for pipes
_STRETCH = 8 << 20  # bytes between two hints to the kernel
_LARGE = 8 << 20  # bytes of a file above which a thread removes it
_TRANSIENT = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE}
"""Errors that may be gone at the next save. Any other error means that the folder is not writable."""


class FolderStore:
    """A folder of this machine, created at the first write."""

    def __init__(self, path: str) -> None:
        self.place = os.path.abspath(path)
        self._removal: threading.Thread | None = None

    def names(self) -> list[str]:
        """See :class:`Store`."""
        try:
            return os.listdir(self.place)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("read", error) from error

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`Store`."""
        try:
            file = self._new(name)
        except FileExistsError:
            return False
        with _as_save_failed(self.place):
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self.place)
        return True

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See :class:`Store`."""
        self._finish_removal()  # the new file may need the room
        file = self._new(name)
        try:
            with _as_save_failed(self.place), file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):  # the error above matters; the next attempt removes the rest
                os.unlink(self._path(name))
            raise

    def read(self, name: str) -> bytes | None:
        """See :class:`Store`."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            try:
                return file.read()
            except OSError as error:
                raise self._unusable("read", error) from error

    def open(self, name: str) -> BinaryIO | None:
        """See :class:`Store`."""
        try:
            descriptor = os.open(self._path(name), _READING)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read", error) from error
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return open(descriptor, "rb", buffering=_BUFFER)
            os.close(descriptor)
            raise PlaceError(f"{self._path(name)}: not a file; free this place, or name another one")
        except OSError as error:
            raise self._unusable("read", error) from error

    def remove(self, name: str) -> None:
        """See :class:`Store`. A large file is removed in a thread, one at a time; the interpreter waits for it at exit.

        An error in that thread is logged. The next removal of old saves retries, because the file is still listed.
        """
        try:
            if os.lstat(self._path(name)).st_size < _LARGE:
                os.unlink(self._path(name))
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable("changed", error) from error
        self._finish_removal()
        removal = threading.Thread(target=self._remove_large, args=(name,), name="spotwright-removal")
        try:
            removal.start()
        except RuntimeError:  # the interpreter is shutting down, or no thread is available
            self._remove_large(name)
        else:
            self._removal = removal

    def _remove_large(self, name: str) -> None:
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            import logging

            logging.getLogger("spotwright.checkpoint").warning("%s", self._unusable("changed", error))

    def _finish_removal(self) -> None:
        if self._removal is not None:
            self._removal.join()
            self._removal = None

    def _path(self, name: str) -> str:
        return os.path.join(self.place, name)

    def _new(self, name: str) -> BinaryIO:
        try:
            self._make_folder()
            return io.BufferedWriter(_Outgoing(self._path(name), "xb"), _BUFFER)
        except FileExistsError:
            if os.path.isdir(self.place):
                raise
            raise PlaceError(f"{self.place}: is a file; checkpoints need a folder") from None
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise _save_failed(self.place, error) from error
            raise self._unusable("written", error) from error

    def _make_folder(self) -> None:
        if not os.path.isdir(self.place):
            os.makedirs(self.place, exist_ok=True)
            _sync_folder(os.path.dirname(self.place))

    def _unusable(self, action: str, error: OSError) -> PlaceError:
        path = error.filename if isinstance(error.filename, str) else self.place
        return PlaceError(f"{path}: cannot be {action} ({error.strerror}); name another place, or free this one")


class _Outgoing(io.FileIO):
    """A new file whose bytes go to the disk while the next ones are written, so that the final sync is short.

    Linux starts to write out the pages that a process declares unneeded (``mm/fadvise.c``), and may drop them, which leaves
    memory to the training data.
    """

    _hinted = 0

    def write(self, data: Any, /) -> int:
        """Write, and declare each finished stretch unneeded."""
        written = super().write(data)
        position = self.tell()
        if position - self._hinted >= _STRETCH and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # a hint that a file system may not support
                os.posix_fadvise(self.fileno(), self._hinted, position - self._hinted, os.POSIX_FADV_DONTNEED)
            self._hinted = position
        return written


def _sync_folder(folder: str) -> None:
    """Make new names in a folder durable, if the file system can sync folders; some network ones cannot."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _as_save_failed(place: str) -> Iterator[None]:
    """Turn an error of the operating system into :class:`SaveFailed`."""
    try:
        yield
    except OSError as error:
        raise _save_failed(place, error) from error


def _save_failed(place: str, error: OSError) -> SaveFailed:
    return SaveFailed(f"{place}: the checkpoint could not be written ({error.strerror}); the previous one is untouched")
