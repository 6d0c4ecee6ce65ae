"""From the tree of a checkpoint back to a state. Nothing is run on the way, unless the caller allows pickle.

An unknown mark in the tree is refused, never guessed: it may be of a newer Spotwright, and half a state is no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spotwright.checkpoint import arrays
from spotwright.checkpoint.container import Reader
from spotwright.checkpoint.errors import BrokenCheckpoint, OtherProgram
from spotwright.checkpoint.files import Content, Directory, File, decode_directory, decode_file

__all__ = ["decode"]


def decode(reader: Reader, content: Content, *, allow_pickle: bool = False) -> Any:
    """The state of a state file. Everything is read and its checksums are looked at, also the content of files.

    ``content`` gives a blob later on, when ``reader`` has been closed. Raises :class:`BrokenCheckpoint` for what is not whole,
    and :class:`OtherProgram` for what this version cannot read.
    """
    try:
        return _Decoder(reader, content, allow_pickle=allow_pickle).value(reader.tree)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise BrokenCheckpoint(f"a value is not described as it should be ({error!r})") from error


class _Decoder:
    def __init__(self, reader: Reader, content: Content, *, allow_pickle: bool) -> None:
        self._reader, self._content, self._allow_pickle = reader, content, allow_pickle
        self._arrays: dict[int, Any] = {}
        self._by_mark: dict[str, Callable[[dict[str, Any]], Any]] = {
            "int": lambda found: int(found["v"], 16),
            "float": lambda found: float.fromhex(found["v"]),
            "tuple": lambda found: tuple(map(self.value, found["v"])),
            "dict": lambda found: {self.value(key): self.value(value) for key, value in found["v"]},
            "bytes": lambda found: bytes(self._bytes(found)),
            "bytearray": self._bytes,
            "ndarray": self._array,
            "scalar": self._array,
            "array.array": self._array,
            "same": lambda found: self._arrays[found["b"]],
            "file": self._file,
            "directory": self._directory,
            "pickle": self._pickled,
        }

    def value(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self.value(each) for each in found]
        if not isinstance(found, dict):
            return found
        mark = found.get("~")
        if mark is None:
            return {key: self.value(value) for key, value in found.items()}
        known = self._by_mark.get(mark)
        if known is None:
            raise OtherProgram(
                f"a value of the kind {mark!r} is not known here: a newer Spotwright wrote this checkpoint"
            )
        return known(found)

    def _bytes(self, found: dict[str, Any]) -> bytearray:
        data = bytearray(self._reader.size(found["b"]))
        self._reader.into(found["b"], memoryview(data))
        return data

    def _array(self, found: dict[str, Any]) -> Any:
        index = found["b"]
        array = arrays.rebuild(found, self._reader.size(index), lambda memory: self._reader.into(index, memory))
        return self._arrays.setdefault(index, array)

    def _file(self, found: dict[str, Any]) -> File:
        self._look_at(found["b"])
        return decode_file(found, self._content)

    def _directory(self, found: dict[str, Any]) -> Directory:
        for entry in found["entries"]:
            if "b" in entry:
                self._look_at(entry["b"])
        return decode_directory(found, self._content)

    def _look_at(self, index: int) -> None:
        for _ in self._reader.stream(index):  # its sum is all that matters now
            continue

    def _pickled(self, found: dict[str, Any]) -> Any:
        if not self._allow_pickle:
            raise OtherProgram(
                "this checkpoint holds pickled values, and loading them runs code: where you trust whoever wrote it, "
                "say Checkpoint(..., allow_pickle=True)"
            )
        import pickle

        return pickle.loads(self._bytes(found))  # noqa: S301  # the caller asked for it
