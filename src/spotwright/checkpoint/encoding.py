"""Encodes a state as a JSON tree with bytes beside it, and decodes it.

A loaded state equals the saved one, with exact types: a tuple stays a tuple, and 1 does not become ``True``. A value whose type
would be lost is refused with its path, before the first byte is written. An array at two paths is stored once, and loaded as
one array. Pickle is used only if the user allows it.

In the tree a JSON object with the key ``~`` represents a value that JSON does not have. Decoding does not run code from the
checkpoint. NumPy is imported only if a value is an array.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from spotwright.checkpoint.errors import BrokenCheckpoint, OtherProgram, UnstorableState
from spotwright.checkpoint.file_values import (
    Content,
    Directory,
    File,
    decode_directory,
    decode_file,
    encode_directory,
    encode_file,
)
from spotwright.checkpoint.state_file import Blob, Reader, pieces

__all__ = ["Described", "decode", "describe", "encode", "rebuild"]


_KINDS = "biufcmMSUV"  # kinds of dtypes with their values in the array; objects and variable-length texts are pointers

Refuse = Callable[[str], UnstorableState]


class Described:
    """The stored form of an array: its kind, its description, its bytes."""

    __slots__ = ("data", "facts", "kind")

    def __init__(self, kind: str, facts: Mapping[str, Any], data: memoryview) -> None:
        self.kind, self.facts, self.data = kind, facts, data


def describe(value: Any, refuse: Refuse) -> Described | None:
    """Return the bytes and the description of an array, without a copy if possible; ``None`` for other values."""
    if isinstance(value, array):
        return Described("array.array", {"type": value.typecode}, memoryview(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _described(numpy, numpy.asarray(value), "scalar", refuse)
    if numpy is not None and isinstance(value, numpy.ndarray):
        if type(value) not in (numpy.ndarray, numpy.memmap):
            raise refuse(f"a {type(value).__name__} holds more than an array: store its parts")
        return _described(numpy, value, "ndarray", refuse)
    kind = type(value)
    if hasattr(kind, "__array_interface__") or hasattr(kind, "__dlpack__"):
        return _foreign(value, refuse)
    return None


def _foreign(value: Any, refuse: Refuse) -> Described:
    try:
        import numpy as np
    except ImportError as error:
        raise refuse("storing an array needs NumPy, which is not installed") from error
    try:
        if hasattr(type(value), "__array_interface__") or hasattr(type(value), "__array__"):
            values_array = np.asarray(value)
        else:
            values_array = np.from_dlpack(value)
    except Exception as error:
        raise refuse(
            f"a {type(value).__name__} whose memory NumPy cannot read ({error}); copy it to the CPU"
        ) from error
    return _described(np, values_array, "ndarray", refuse)


def _described(numpy: Any, value: Any, kind: str, refuse: Refuse) -> Described:
    if value.dtype.hasobject:
        raise refuse(f"an array of dtype {value.dtype} holds Python objects; store them as a list")
    order = "C"
    if not value.flags.c_contiguous:
        if value.flags.f_contiguous:
            value, order = value.T, "F"
        else:
            value = numpy.ascontiguousarray(value)
    shape = value.shape[::-1] if order == "F" else value.shape
    facts = {"dtype": _dtype(value.dtype, refuse), "shape": list(shape), **({"order": "F"} if order == "F" else {})}
    return Described(kind, facts, memoryview(value.reshape(-1).view(numpy.uint8)) if value.nbytes else memoryview(b""))


def _dtype(dtype: Any, refuse: Refuse) -> Any:
    """Return a dtype as JSON: its text, its parts, or a name with the module that registers it."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"of": _dtype(base, refuse), "shape": list(shape)}
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        formats, offsets = [_dtype(field[0], refuse) for field in fields], [field[1] for field in fields]
        titles = [field[2] if len(field) > 2 else None for field in fields]
        if not all(title is None or isinstance(title, str) for title in titles):
            raise refuse(f"an array of dtype {dtype}, whose fields have titles other than text, cannot be stored")
        facts = {"names": list(dtype.names), "formats": formats, "offsets": offsets, "size": dtype.itemsize}
        return {**facts, "titles": titles} if any(titles) else facts
    if dtype.isbuiltin == 2:  # registered by another package, such as bfloat16
        return {"name": dtype.name, "module": dtype.type.__module__.partition(".")[0]}
    if dtype.kind not in _KINDS:
        raise refuse(f"an array of dtype {dtype} holds references to its values; store them as a list")
    return dtype.str


def rebuild(facts: Mapping[str, Any], size: int, fill: Callable[[memoryview], None]) -> Any:
    """Return the array of a description; ``fill`` fills its memory of ``size`` bytes."""
    if facts["~"] == "array.array":
        values = array(facts["type"])
        values.frombytes(bytes(size))
        fill(memoryview(values).cast("B") if size else memoryview(bytearray()))
        return values
    try:
        import numpy as np
    except ImportError as error:
        raise BrokenCheckpoint("this checkpoint holds arrays: install NumPy to load it") from error
    dtype = _read_dtype(np, facts["dtype"])
    needed = math.prod(map(int, facts["shape"])) * dtype.itemsize  # known before memory is allocated
    if needed != size:
        raise BrokenCheckpoint(f"an array of {needed} bytes has {size} in this checkpoint")
    values_array = np.empty(facts["shape"], dtype, order=facts.get("order", "C"))
    flat = values_array.reshape(-1, order="A")
    fill(memoryview(flat.view(np.uint8)) if size else memoryview(bytearray()))
    return values_array[()] if facts["~"] == "scalar" else values_array


def _read_dtype(numpy: Any, given: Any) -> Any:
    if isinstance(given, str):
        dtype = numpy.dtype(given)
    elif "of" in given:
        dtype = numpy.dtype((_read_dtype(numpy, given["of"]), tuple(given["shape"])))
    elif "names" in given:
        formats = [_read_dtype(numpy, each) for each in given["formats"]]
        parts = {"names": given["names"], "formats": formats, "offsets": given["offsets"], "itemsize": given["size"]}
        dtype = numpy.dtype({**parts, **({"titles": given["titles"]} if "titles" in given else {})})
    elif given["module"] == "ml_dtypes":
        try:
            import ml_dtypes  # registers its dtypes with NumPy
        except ImportError as error:
            raise BrokenCheckpoint("this checkpoint holds arrays of ml_dtypes: install it to load them") from error
        dtype = numpy.dtype(getattr(ml_dtypes, given["name"]))
    else:
        raise BrokenCheckpoint(f"an array of the dtype {given['name']} of {given['module']} cannot be loaded")
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise BrokenCheckpoint(f"an array of the dtype {dtype} cannot be loaded")
    return dtype


_MALFORMED = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    SyntaxError,  # NumPy reads the text of a dtype as Python's literals
)
_SAFE = 1 << 53  # integers up to here are exact in every JSON reader
_KEYS = (str, int, float, bool, bytes, type(None), tuple)


def encode(state: Any, *, allow_pickle: bool = False) -> tuple[Any, list[Blob]]:
    """Return the tree of a state, and its blobs in the order of their numbers.

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
        """Return the path of the value being encoded, cut if very long."""
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
        if id(value) in self._arrays:  # a model may have an array under two names
            return {"~": "same", "b": self._arrays[id(value)][0]}
        array = describe(value, self.refuse)
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
    """Advice for a value of a well-known library."""
    root = type(value).__module__.partition(".")[0]
    if root == "sklearn":
        return ", or spotwright.checkpoint.sklearn.state_of(model)"
    if root == "torch" and "torch" in sys.modules:
        return ", such as its state_dict(); see the page about checkpoints"
    if callable(value):
        return "; step_done() takes a function, save() takes the state itself"
    return ""


def decode(reader: Reader, content: Content, *, allow_pickle: bool = False) -> Any:
    """Return the state in a state file. All bytes, including those of files, are read and checked by checksum.

    ``content`` returns the bytes of a blob after ``reader`` is closed. Raises :class:`BrokenCheckpoint` if the file is not
    whole, and :class:`OtherProgram` for values that this version cannot read.
    """
    try:
        return _Decoder(reader, content, allow_pickle=allow_pickle).value(reader.tree)
    except _MALFORMED as error:
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
        array = rebuild(node, self._reader.size(index), lambda memory: self._reader.into(index, memory))
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
        for _ in self._reader.stream(index):  # only for the checksum
            continue

    def _pickled(self, node: dict[str, Any]) -> Any:
        if not self._allow_pickle:
            raise OtherProgram(
                "this checkpoint holds pickled values, and loading them runs code: if you trust its writer, "
                "use Checkpoint(..., allow_pickle=True)"
            )
        import pickle

        return pickle.loads(self._bytes(node))  # noqa: S301  # the caller asked for it
