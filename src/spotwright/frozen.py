"""Frozen values for sets of many small classes, such as the kinds of event, at hardly any cost of import.

A ``dataclass(frozen=True, slots=True)`` compiles its methods at its definition, 0.25 to 0.35 ms of every start of the command,
and a run uses only a third of the kinds. These classes compile theirs with their first value. A named tuple is light too, but
equals every tuple with the same values, whatever its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

__all__ = ["REQUIRED", "Frozen"]

REQUIRED: Any = object()
"""Marks a field without a default."""

_COMPILED = ("__init__", "of_values")


@dataclass_transform(frozen_default=True)
class _FrozenType(type):
    """Makes a slot of every annotated name; ``kw_only``: the class's own fields are keyword-only."""

    _defaults: Mapping[str, Any] = {}  # of all fields, in their order

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool = False
    ) -> _FrozenType:
        annotations: Mapping[str, str] = namespace.get("__annotations__", {})  # texts, as modules defer them
        own = tuple([each for each, hint in annotations.items() if not hint.startswith("ClassVar")])
        defaults = {each: namespace.pop(each, REQUIRED) for each in own}
        if bases:  # each class has its own, because its base may have compiled ones
            namespace |= {method: vars(Frozen)[method] for method in _COMPILED}
        above = tuple([name for base in bases for name in getattr(base, "__match_args__", ())])
        namespace["__match_args__"] = above if kw_only else above + own
        made = super().__new__(cls, name, bases, {**namespace, "__slots__": own})
        made._defaults = {**made._defaults, **defaults}
        return made


class Frozen(metaclass=_FrozenType):
    """A value whose class declares its fields as a dataclass does. Equal to a value of the same class with equal fields.

    A default that is a ``dict`` is copied for each value. As with dataclasses, each class's ``kw_only`` applies to its own
    fields, also in subclasses.
    """

    _defaults: ClassVar[Mapping[str, Any]]

    def __init__(self, *positional: Any, **named: Any) -> None:
        """Compile the constructor of this class, and call it. Raises ``TypeError`` like any function."""
        _compile_constructor(type(self))
        type(self).__init__(self, *positional, **named)

    @classmethod
    def of_values(cls, *values: Any) -> Self:
        """The value with these fields in order, without the constructor's defaults."""
        _compile_of_values(cls)
        made: Self = cls.of_values(*values)  # by the compiled method
        return made

    @classmethod
    def fields(cls) -> Mapping[str, Any]:
        """The names of the fields in their order, with their defaults or :data:`REQUIRED`."""
        return cls._defaults

    def replaced(self, **changes: Any) -> Self:
        """The same value with other values for these fields. Raises ``TypeError`` for an unknown name."""
        return type(self)(**{**{name: getattr(self, name) for name in self._defaults}, **changes})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._defaults)

    def __hash__(self) -> int:
        return hash(tuple([getattr(self, name) for name in self._defaults]))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({values})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot set {name!r}: {type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete {name!r}: {type(self).__name__} is frozen")

    def __reduce__(self) -> tuple[Callable[..., Frozen], tuple[Any, ...]]:
        return _restore, (type(self), *[getattr(self, name) for name in self._defaults])


def _restore(kind: type[Frozen], *values: Any) -> Frozen:
    return kind.of_values(*values)


def _compile_constructor(kind: type[Frozen]) -> None:
    """Write the ``__init__`` of a class, which sets one slot after another."""
    parameters, body, known = [], [], _setters(kind)
    fields, positional = kind.fields(), kind.__match_args__
    for number, name in enumerate([*positional, *(each for each in fields if each not in positional)]):
        default = known[f"_default_{name}"] = fields[name]
        parameters += ["*"] if number == len(positional) else []
        parameters.append(name if default is REQUIRED else f"{name}=_default_{name}")
        value = f"{{}} if {name} is _default_{name} else {name}" if type(default) is dict else name
        body.append(f" _set_{name}(self, {value})")
    source = [f"def __init__(self, {', '.join(parameters)}):", *body]
    exec("\n".join(source), known)  # noqa: S102 (the names of fields are ours)
    kind.__init__ = known["__init__"]  # type: ignore[method-assign]


def _compile_of_values(kind: type[Frozen]) -> None:
    """Write the ``of_values`` of a class: for reading journals, whose events need neither checks nor defaults."""
    known = _setters(kind) | {"_kind": kind, "_new": object.__new__}
    body = [" self = _new(_kind)", *(f" _set_{name}(self, {name})" for name in kind.fields()), " return self"]
    exec("\n".join([f"def of_values({', '.join(kind.fields())}):", *body]), known)  # noqa: S102 (the same)
    kind.of_values = staticmethod(known["of_values"])  # type: ignore[method-assign]


def _setters(kind: type[Frozen]) -> dict[str, Any]:
    """The functions that write the slots of a class, past the check of ``Frozen.__setattr__``."""
    return {f"_set_{name}": getattr(kind, name).__set__ for name in kind.fields()}
