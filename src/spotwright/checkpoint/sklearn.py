"""Checkpoints for scikit-learn: fitted models as arrays and plain data, without pickle.

A fitted model is an object with attributes, some of which are scikit-learn objects again, down to trees and losses written in
Cython. Their attributes are stored, and their classes by name. Loading only makes objects of scikit-learn's classes. The
program must first build a model of the same class under the same version of scikit-learn, whose internals change between
versions.

::

    model = SGDClassifier(random_state=0)
    restore(model, ckpt.load())  # changes nothing before the first save
    for step in ckpt.steps(20):
        model.partial_fit(*batch(step), classes=range(10))
        ckpt.step_done(lambda: state_of(model))
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import sklearn
from numpy.random import Generator, RandomState

from spotwright.checkpoint.errors import OtherProgram, UnstorableState

__all__ = ["restore", "state_of"]

_MARK = "sklearn"  # the key of a dict that represents an object; the model's own dicts have no such key
_CYTHON = "__pyx_unpickle_"  # prefix of Cython's functions that recreate objects
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def state_of(model: Any) -> dict[str, Any]:
    """Return the fitted attributes and settings of a model, to be saved alone or as a part of a state.

    Raises :class:`UnstorableState` for a model with circular references, such as ``Birch``.
    """
    try:
        return {"class": _name(type(model)), "version": sklearn.__version__, "attributes": _Packer().pack(vars(model))}
    except RecursionError:
        raise UnstorableState(f"a {type(model).__name__} cannot be stored: its parts point to each other") from None


def restore(model: Any, state: dict[str, Any] | None) -> None:
    """Set the attributes of a model from :func:`state_of` of a model of its class; ``None`` changes nothing.

    Raises :class:`OtherProgram` if the class or the version of scikit-learn differs.
    """
    if state is None:
        return
    ours = (_name(type(model)), sklearn.__version__)
    theirs = (state["class"], state["version"])
    if ours != theirs:
        raise OtherProgram(
            f"the checkpoint is of {theirs[0]} under scikit-learn {theirs[1]}, and this is {ours[0]} under {ours[1]}: "
            "train again, or use the class and version that it was saved with"
        )
    attributes = _Unpacker().unpack(state["attributes"])
    vars(model).clear()
    vars(model).update(attributes)


class _Packer:
    """Converts every scikit-learn object in a value to a dict. Other objects stay, and the save refuses them.

    An object at two paths stays one object: parts of a model may share a random generator.
    """

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}
        self._by_type: dict[type, Callable[[Any], Any]] = {
            list: lambda value: [self.pack(each) for each in value],
            tuple: lambda value: tuple(self.pack(each) for each in value),
            dict: lambda value: {key: self.pack(each) for key, each in value.items()},
        }

    def pack(self, value: Any) -> Any:
        known = self._by_type.get(type(value))
        if known is not None:
            return known(value)
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            return {_MARK: "objects", "shape": list(value.shape), "items": self.pack(value.ravel().tolist())}
        ours = isinstance(value, (RandomState, Generator)) or type(value).__module__.partition(".")[0] == "sklearn"
        if not ours:
            return value
        if id(value) in self._met:
            return {_MARK: "same", "number": self._met[id(value)][0]}
        packed = self._object(value)
        if packed is not value:
            packed["number"] = len(self._met)
            self._met[id(value)] = (len(self._met), value)
        return packed

    def _object(self, value: Any) -> Any:
        """Return an object as data, from its reduction for pickle: its class, its arguments, its attributes."""
        if isinstance(value, RandomState):
            return {_MARK: "RandomState", "state": value.get_state(legacy=False)}
        if isinstance(value, Generator):
            return {_MARK: "Generator", "state": value.bit_generator.state}
        make, arguments, *rest = value.__reduce_ex__(2)
        if any(rest[1:]):
            return value
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]  # what object.__reduce_ex__ gives
            how, (make, *arguments) = "new", arguments
        elif isinstance(make, type):
            how = "call"
        elif make.__name__ == f"{_CYTHON}{type(value).__name__}":
            how, arguments = "cython", arguments[1:]  # the first is the class
            make = type(value)
        else:
            return value
        attributes = self.pack(rest[0] if rest else None)
        return {_MARK: how, "class": _name(make), "arguments": self.pack(list(arguments)), "attributes": attributes}


class _Unpacker:
    """The inverse of :class:`_Packer`."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._by_mark: dict[str, Callable[[dict[str, Any]], Any]] = {
            "objects": self._objects,
            "RandomState": _random_state,
            "Generator": _generator,
            "new": self._object,
            "call": self._object,
            "cython": self._object,
        }

    def unpack(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.unpack, value))
        if not isinstance(value, dict):
            return value
        mark = value.get(_MARK)
        if mark is None:
            return {key: self.unpack(each) for key, each in value.items()}
        if mark == "same":
            return self._made[value["number"]]
        made = self._by_mark[mark](value)
        if "number" in value:
            self._made[value["number"]] = made
        return made

    def _objects(self, value: dict[str, Any]) -> Any:
        items = self.unpack(value["items"])
        array = np.empty(len(items), object)
        array[:] = items
        return array.reshape(value["shape"])

    def _object(self, value: dict[str, Any]) -> Any:
        kind, arguments = _class(value["class"]), self.unpack(value["arguments"])
        if value[_MARK] == "new":
            made = kind.__new__(kind, *arguments)
        elif value[_MARK] == "call":
            made = kind(*arguments)
        else:
            made = getattr(sys.modules[kind.__module__], f"{_CYTHON}{kind.__name__}")(kind, *arguments)
        attributes = self.unpack(value["attributes"])
        if attributes is None:
            return made
        if hasattr(made, "__setstate__"):
            made.__setstate__(attributes)
        else:
            vars(made).update(attributes)
        return made


def _random_state(value: dict[str, Any]) -> RandomState:
    random = RandomState()
    random.set_state(value["state"])
    return random


def _generator(value: dict[str, Any]) -> Generator:
    name = value["state"]["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise OtherProgram(f"the checkpoint holds a random generator {name!r}, which NumPy does not have")
    bits = getattr(np.random, name)()
    bits.state = value["state"]
    return Generator(bits)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> type:
    """Return a class of scikit-learn by its name. No other class is accepted, so a checkpoint cannot choose code to run."""
    module, _, qualified_name = name.partition(":")
    if module.partition(".")[0] != "sklearn" or "." in qualified_name:
        raise OtherProgram(f"the checkpoint names {name!r}, which is not a class of scikit-learn")
    kind = getattr(sys.modules.get(module) or import_module(module), qualified_name, None)
    if not isinstance(kind, type) or kind.__module__ != module:
        raise OtherProgram(f"the checkpoint names {name!r}, which this scikit-learn does not have")
    return kind
