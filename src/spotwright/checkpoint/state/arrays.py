"""Encodes arrays without a dependency on NumPy, which is imported only if a value is an array.

Accepted are NumPy arrays and scalars, ``array.array``, and objects that expose their memory to NumPy (``__array_interface__``,
``__dlpack__``: JAX, PyTorch on the CPU, CuPy's host arrays), which are loaded as NumPy arrays. Objects that can only be
converted to an array (``__array__``: a data frame) are refused, because they are more than an array.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from spotwright.checkpoint.errors import BrokenCheckpoint, UnstorableState

__all__ = ["Described", "describe", "rebuild"]

_KINDS = "biufcmMSUV"  # kinds of dtypes with values in the array itself; objects and variable texts are pointers

Refuse = Callable[[str], UnstorableState]


class Described:
    """The stored form of an array: its kind, its description, its bytes."""

    __slots__ = ("data", "facts", "kind")

    def __init__(self, kind: str, facts: Mapping[str, Any], data: memoryview) -> None:
        self.kind, self.facts, self.data = kind, facts, data


def describe(value: Any, refuse: Refuse) -> Described | None:
    """Return the bytes and the description of an array, without a copy if possible; ``None`` if the value is no array."""
    if isinstance(value, array):
        return Described("array.array", {"type": value.typecode}, memoryview(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _described(numpy, numpy.asarray(value), "scalar", refuse)
    if numpy is not None and isinstance(value, numpy.ndarray):
        if type(value) not in (numpy.ndarray, numpy.memmap):
            raise refuse(f"a {type(value).__name__} is more than an array: store its parts")
        return _described(numpy, value, "ndarray", refuse)
    kind = type(value)
    if hasattr(kind, "__array_interface__") or hasattr(kind, "__dlpack__"):
        return _foreign(value, refuse)
    return None


def _foreign(value: Any, refuse: Refuse) -> Described:
    try:
        import numpy as np
    except ImportError as error:
        raise refuse("an array needs NumPy to be stored, which is not installed") from error
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
            raise refuse(f"an array of dtype {dtype}, whose fields have titles that are no text, cannot be stored")
        facts = {"names": list(dtype.names), "formats": formats, "offsets": offsets, "size": dtype.itemsize}
        return {**facts, "titles": titles} if any(titles) else facts
    if dtype.isbuiltin == 2:  # registered by another package, such as bfloat16
        return {"name": dtype.name, "module": dtype.type.__module__.partition(".")[0]}
    if dtype.kind not in _KINDS:
        raise refuse(f"an array of dtype {dtype} does not hold its values itself; store them as a list")
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
    values_array = np.empty(facts["shape"], _read_dtype(np, facts["dtype"]), order=facts.get("order", "C"))
    if values_array.nbytes != size:
        raise BrokenCheckpoint(f"an array of {values_array.nbytes} bytes has {size} in this checkpoint")
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
        import ml_dtypes  # registers its dtypes with NumPy

        dtype = numpy.dtype(getattr(ml_dtypes, given["name"]))
    else:
        raise BrokenCheckpoint(f"an array of the dtype {given['name']} of {given['module']} cannot be loaded")
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise BrokenCheckpoint(f"an array of the dtype {dtype} cannot be loaded")
    return dtype
