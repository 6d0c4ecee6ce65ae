"""Encodes a state as a tree of JSON and the bytes beside it.

A loaded state equals the saved one, with exact types: a tuple stays a tuple, and 1 does not become ``True``. A value whose type
would be lost is refused with its path, before the first byte is written. An array at two paths is stored once, and is one array
again after loading. Pickle is used only if the user allows it.

In the tree a JSON object with the key ``~`` stands for a value that JSON does not have; :mod:`.decoding` is the inverse.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from spotwright.checkpoint.errors import UnstorableState
from spotwright.checkpoint.state import arrays
from spotwright.checkpoint.state.files import Directory, File, encode_directory, encode_file
from spotwright.checkpoint.state.state_file import Blob, pieces

__all__ = ["encode"]

_SAFE = 1 << 53  # integers up to here are the same in every JSON reader
_KEYS = (str, int, float, bool, bytes, type(None), tuple)


def encode(state: Any, *, allow_pickle: bool = False) -> tuple[Any, list[Blob]]:
    """Return the tree of a state, and its blobs in the order of their numbers in the tree.

    Raises :class:`UnstorableState` with the path of the first value that cannot be stored.
    """
    encoder = _Encoder(allow_pickle=allow_pickle)
    try:
        return encoder.value(state), encoder.blobs
    except RecursionError:
        raise UnstorableState(f"{encoder.here()}: nested too deeply, or within itself") from None


class _Encoder:
    def __init__(self, *, allow_pickle: bool) -> None:
        self.blobs: list[Blob] = []
        self._path: list[Any] = []
        self._arrays: dict[int, tuple[int, Any]] = {}  # by identity; the references keep the identities valid
        self._allow_pickle = allow_pickle
        self._by_type: dict[type, Callable[[Any], Any]] = {
            type(None): _unchanged,
            bool: _unchanged,
            str: _unchanged,
            int: _integer,
            float: _number,
            bytes: lambda value: {"~": "bytes", "b": self._blob(memoryview(value))},
            bytearray: lambda value: {"~": "bytearray", "b": self._blob(memoryview(value))},
            list: self._items,
            tuple: lambda value: {"~": "tuple", "v": self._items(value)},
            dict: self._mapping,
            OrderedDict: self._mapping,
            File: lambda value: {"~": "file", **encode_file(value, self._add, self.refuse)},
            Directory: lambda value: {"~": "directory", **encode_directory(value, self._add, self.refuse)},
        }

    def here(self) -> str:
        """Return the path of the value that is being encoded, cut if it is very long."""
        keys = [f"[{key!r}]" for key in self._path[:8]]
        return "state" + "".join(keys) + ("..." if len(self._path) > 8 else "")

    def refuse(self, why: str) -> UnstorableState:
        return UnstorableState(f"{self.here()}: {why}")

    def value(self, value: Any) -> Any:
        encoder = self._by_type.get(type(value))
        return encoder(value) if encoder else self._other(value)

    def _add(self, blob: Blob) -> int:
        self.blobs.append(blob)
        return len(self.blobs) - 1

    def _blob(self, data: memoryview) -> int:
        return self._add(lambda: pieces(data))

    def _items(self, values: list[Any] | tuple[Any, ...]) -> list[Any]:
        encoded = []
        for index, value in enumerate(values):
            self._path.append(index)
            encoded.append(self.value(value))
            self._path.pop()
        return encoded

    def _mapping(self, values: dict[Any, Any]) -> Any:
        encoded = []
        for key, value in values.items():
            self._path.append(key)
            if type(key) not in _KEYS:
                raise self.refuse(f"a key of type {_name_of(key)} cannot be stored; use text, numbers, bytes or tuples")
            encoded.append((key, self.value(value)))
            self._path.pop()
        if all(type(key) is str and key != "~" for key, _ in encoded):
            return dict(encoded)
        return {"~": "dict", "v": [[self.value(key), value] for key, value in encoded]}

    def _other(self, value: Any) -> Any:
        if id(value) in self._arrays:  # a model may use one array under two names
            return {"~": "same", "b": self._arrays[id(value)][0]}
        array = arrays.describe(value, self.refuse)
        if array is not None:
            blob = self._blob(array.data)
            self._arrays[id(value)] = (blob, value)
            return {"~": array.kind, **array.facts, "b": blob}
        if self._allow_pickle:
            import pickle

            try:
                data = pickle.dumps(value, protocol=5)
            except Exception as error:
                raise self.refuse(f"a {_name_of(value)} that cannot be pickled ({error})") from error
            return {"~": "pickle", "b": self._blob(memoryview(data))}
        raise self.refuse(
            f"a {_name_of(value)} cannot be stored; store its parts: numbers, text, bytes, lists, dicts and arrays"
            f"{_hint(value)}"
        )


def _unchanged(value: Any) -> Any:
    return value


def _integer(value: int) -> Any:
    return value if -_SAFE < value < _SAFE else {"~": "int", "v": hex(value)}  # Python limits the digits of decimals


def _number(value: float) -> Any:
    if value - value == 0:
        return value
    return {"~": "float", "v": value.hex()}  # inf and nan do not exist in JSON


def _name_of(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _hint(value: Any) -> str:
    """Advice about a value of a well-known library."""
    root = type(value).__module__.partition(".")[0]
    if root == "sklearn":
        return ", or spotwright.checkpoint.sklearn.state_of(model)"
    if root == "torch" and "torch" in sys.modules:
        return ", such as its state_dict(); see the page about checkpoints"
    if callable(value):
        return "; step_done() takes a function, save() takes the state itself"
    return ""
