"""Checkpoints in an object store, through fsspec, which only this module imports.

Objects appear whole or not at all. A store must also support one operation: creating an object only if it does not exist.
fsspec calls it ``mode="create"`` (https://filesystem-spec.readthedocs.io/en/latest/features.html, "Exclusive writes"): s3fs
sends ``If-None-Match: *``, gcsfs ``ifGenerationMatch=0``, adlfs ``overwrite=False``. Some servers of the S3 API ignore it. So
each attempt first creates its claim twice, and logs a warning if the second try succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from spotwright.checkpoint.errors import PlaceError, SaveFailed

__all__ = ["ObjectStore"]


_PART = 16 << 20  # bytes of one upload or download request
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}


class ObjectStore:
    """The objects below an address such as ``s3://bucket/folder``; ``options`` go to fsspec's file system."""

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        scheme, _, rest = address.partition("://")
        self.place = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"  # without user and password
        extra = _EXTRAS.get(scheme)
        try:
            from fsspec.core import url_to_fs

            self._system, root = url_to_fs(address, **options)
        except ImportError as error:
            needed = (
                f"pip install 'spotwright-train[{extra}]'"
                if extra
                else "install fsspec and its package for this scheme"
            )
            raise PlaceError(f"{self.place}: {error}; {needed}") from error
        except Exception as error:
            raise self._unusable("opened", error) from error
        self._root = str(root).rstrip("/")
        self._tried = False

    def names(self) -> list[str]:
        """See :class:`Store`."""
        try:
            self._system.invalidate_cache(self._root)
            paths = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._unusable("listed", error) from error
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`Store`. With a client that retries, ``False`` may be due to its own first try."""
        if not self._create(name, data):
            return False
        if not self._tried:
            self._tried = True
            if self._create(name, data):
                import logging

                logging.getLogger("spotwright.checkpoint").warning(
                    "%s: this store ignores conditional writes: an older attempt that still runs is detected late, and its last"
                    " save may win",
                    self.place,
                )
        return True

    def _create(self, name: str, data: bytes) -> bool:
        try:
            self._system.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            if self.read(name) is not None:  # a conflict that the client reports as another error
                return False
            raise self._failed(error) from error
        return True

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See :class:`Store`."""
        path = self._path(name)
        file: Any = None
        try:
            file = self._system.open(path, "wb", block_size=_PART)
            with _ClientFile(file) as sink:
                yield sink
        except BaseException as error:
            with suppress(Exception):  # the error above matters; the next attempt removes the rest
                self._system.rm_file(path)
            if isinstance(error, _StoreError):
                raise self._failed(error.error) from error.error
            if file is None and isinstance(error, Exception):
                raise self._failed(error) from error
            raise

    def read(self, name: str) -> bytes | None:
        """See :class:`Store`."""
        try:
            return bytes(self._system.cat_file(self._path(name)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unusable("read", error) from error

    def open(self, name: str) -> BinaryIO | None:
        """See :class:`Store`."""
        try:
            self._system.invalidate_cache(self._root)
            return cast("BinaryIO", self._system.open(self._path(name), "rb", block_size=_PART, cache_type="readahead"))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unusable("read", error) from error

    def remove(self, name: str) -> None:
        """See :class:`Store`."""
        try:
            self._system.rm_file(self._path(name))
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._unusable("changed", error) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _unusable(self, what: str, error: Exception) -> PlaceError:
        return PlaceError(f"{self.place}: cannot be {what} ({_first_line(error)}){_advice(error)}")

    def _failed(self, error: Exception) -> PlaceError | SaveFailed:
        if isinstance(error, FileNotFoundError) or "NotFound" in type(error).__name__ or _advice(error):
            return self._unusable("written", error)
        return SaveFailed(
            f"{self.place}: the checkpoint could not be written ({_first_line(error)}); the previous one is untouched"
        )


class _StoreError(Exception):
    """An error of the store's client, as opposed to the caller's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _ClientFile:
    """A file of the store's client that marks the client's errors, which may be of any type."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: memoryview | bytes) -> int:
        """Write all data."""
        try:
            self._file.write(data)
        except Exception as error:
            raise _StoreError(error) from error
        return len(data)

    def __enter__(self) -> BinaryIO:
        return cast("BinaryIO", self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # closing it would complete the object
            with suppress(Exception):
                self._file.discard()
            self._file.closed = True
            return
        try:
            self._file.close()
        except Exception as error:
            raise _StoreError(error) from error


def _first_line(error: Exception) -> str:
    """The type of a client's error, with the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _advice(error: Exception) -> str:
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, PermissionError) or any(
        word in text for word in ("credential", "auth", "forbidden", "denied")
    ):
        return "; check that the credentials of this process may list, read, write and delete there"
    return ""
