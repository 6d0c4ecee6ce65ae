"""Decodes the tree of a checkpoint into a state. No code of the checkpoint runs, unless the caller allows pickle.

An unknown mark in the tree is refused: it may be of a newer Spotwright, and a part of a state is no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spotwright.checkpoint.errors import BrokenCheckpoint, OtherProgram
from spotwright.checkpoint.state import arrays
from spotwright.checkpoint.state.files import Content, Directory, File, decode_directory, decode_file
from spotwright.checkpoint.state.state_file import Reader

__all__ = ["decode"]


def decode(reader: Reader, content: Content, *, allow_pickle: bool = False) -> Any:
    """Return the state in a state file. All bytes are read and their checksums checked, also those of files.

    ``content`` returns the bytes of a blob later, after ``reader`` was closed. Raises :class:`BrokenCheckpoint` if the file is
    not whole, and :class:`OtherProgram` for values that this version cannot read.
    """
    try:
        return _Decoder(reader, content, allow_pickle=allow_pickle).value(reader.tree)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise BrokenCheckpoint(f"a value is malformed ({error!r})") from error


class _Decoder:
    def __init__(self, reader: Reader, content: Content, *, allow_pickle: bool) -> None:
        self._reader, self._content, self._allow_pickle = reader, content, allow_pickle
        self._arrays: dict[int, Any] = {}
        self._by_mark: dict[str, Callable[[dict[str, Any]], Any]] = {
            "int": lambda node: int(node["v"], 16),
            "float": lambda node: float.fromhex(node["v"]),
            "tuple": lambda node: tuple(map(self.value, node["v"])),
            "dict": lambda node: {self.value(key): self.value(value) for key, value in node["v"]},
            "bytes": lambda node: bytes(self._bytes(node)),
            "bytearray": self._bytes,
            "ndarray": self._array,
            "scalar": self._array,
            "array.array": self._array,
            "same": lambda node: self._arrays[node["b"]],
            "file": self._file,
            "directory": self._directory,
            "pickle": self._pickled,
        }

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(each) for each in node]
        if not isinstance(node, dict):
            return node
        mark = node.get("~")
        if mark is None:
            return {key: self.value(value) for key, value in node.items()}
        decoder = self._by_mark.get(mark)
        if decoder is None:
            raise OtherProgram(f"a value has the unknown kind {mark!r}: a newer Spotwright wrote this checkpoint")
        return decoder(node)

    def _bytes(self, node: dict[str, Any]) -> bytearray:
        data = bytearray(self._reader.size(node["b"]))
        self._reader.into(node["b"], memoryview(data))
        return data

    def _array(self, node: dict[str, Any]) -> Any:
        index = node["b"]
        array = arrays.rebuild(node, self._reader.size(index), lambda memory: self._reader.into(index, memory))
        return self._arrays.setdefault(index, array)

    def _file(self, node: dict[str, Any]) -> File:
        self._check(node["b"])
        return decode_file(node, self._content)

    def _directory(self, node: dict[str, Any]) -> Directory:
        for entry in node["entries"]:
            if "b" in entry:
                self._check(entry["b"])
        return decode_directory(node, self._content)

    def _check(self, index: int) -> None:
        for _ in self._reader.stream(index):  # only the checksum matters now
            continue

    def _pickled(self, node: dict[str, Any]) -> Any:
        if not self._allow_pickle:
            raise OtherProgram(
                "this checkpoint holds pickled values, and loading them runs code: if you trust its writer, "
                "use Checkpoint(..., allow_pickle=True)"
            )
        import pickle

        return pickle.loads(self._bytes(node))  # noqa: S301  # the caller asked for it
