"""Edits of one document, first as data; :mod:`spotwright.placing.yaml_writer` turns them into text.

A kind's module asks for edits (:meth:`Editor.add`, :meth:`Editor.extend`, :meth:`Editor.replace`) and reads the document
through the editor, so that it sees earlier edits. Only :meth:`Editor.replace` replaces a value of the user's, and its old text
is kept.

Paths refer to the user's document, also below a list that was extended: in the text new items come before the old ones, in
:meth:`Editor.get` behind them, so that indexes keep their meaning.

Objects that come as data, such as an API server's, are documents without a text.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

import yaml

from spotwright.placing.documents import MISSING, Document, ManifestError, Path
from spotwright.yaml_composer import Node

__all__ = [
    "STAND_IN",
    "DataDocument",
    "Edit",
    "Editor",
    "RemarkedNumber",
    "RemarkedText",
    "Splice",
    "Steps",
    "TooMuchWork",
    "clone",
    "data_document",
    "edited",
    "is_same",
    "json_patch",
    "json_pointer",
    "patched",
    "replacing",
    "value_at",
]


_T = TypeVar("_T")

STAND_IN = 0
"""Replaces a value where only its position matters."""


class RemarkedText(str):
    """A string that is followed by a comment in block-style YAML."""

    __slots__ = ("remark",)
    remark: str

    def __new__(cls, value: str, remark: str) -> Self:
        """The text, equal to one without a comment."""
        text = super().__new__(cls, value)
        text.remark = remark
        return text


class RemarkedNumber(int):
    """A whole number with a comment, as :class:`RemarkedText` has one."""

    remark: str

    def __new__(cls, value: int, remark: str) -> Self:
        """The number, equal to one without a comment."""
        number = super().__new__(cls, value)
        number.remark = remark
        return number


class Splice(NamedTuple):
    """Replace ``old`` by ``text`` at a position of a text; an insertion has no ``old``.

    ``short``, if not empty, is the same key or item with :data:`STAND_IN` as its value. ``ends_flow``: the key is inserted into
    an empty ``{}``, so that a further key needs a comma.
    """

    at: int
    text: str
    old: str = ""
    short: str = ""
    ends_flow: bool = False


@dataclass(slots=True)
class Edit:
    """One edit: ``add`` a key with a value, ``extend`` a list by items at its beginning, or ``replace`` a scalar.

    ``embed`` changes a string that is itself YAML: ``value`` is the new text, ``inner`` are the changes of the old one.
    ``append`` adds a document behind the last one.
    """

    kind: str  # add | extend | replace | embed | append
    path: Path
    value: Any
    inner: tuple[Splice, ...] = ()


class TooMuchWork(ManifestError):
    """The placement of an object would take more steps than are allowed, so it is not placed."""


@dataclass(slots=True)
class Steps:
    """The remaining work of one placement, in steps of about 4 microseconds. Unlimited by default.

    Each read of a document and each edit is a step; longer reads charge more. Unlike a clock, a count gives the same answer on
    a busy machine as on an idle one.
    """

    left: int = sys.maxsize

    def charge(self, steps: int) -> None:
        """Use up steps. Raises :class:`TooMuchWork` where none is left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork("it is too large to be placed while it is created; place its file with spotwright place")


@dataclass(slots=True)
class Editor:
    """Collects the edits of one document and shows the document with them applied. ``steps`` limits the work."""

    document: Document
    edits: list[Edit] = field(default_factory=list)
    data: Any = None
    steps: Steps = field(default_factory=Steps, kw_only=True)
    changes: int = field(default=0, init=False)  # grows with every change
    _added: set[Path] = field(default_factory=set, init=False)  # paths of values and documents that edits add
    _lengths: set[int] = field(default_factory=set, init=False)  # of these paths
    _changed: dict[Path, Edit] = field(default_factory=dict, init=False)  # extended lists and replaced scalars
    _copies: dict[Path, Any] = field(default_factory=dict, init=False)  # collections that may be changed

    def __post_init__(self) -> None:
        """Start from the document's own data, which is shared: a collection is copied before it is changed."""
        self.data = self.document.get(())

    def get(self, path: Path, default: Any = None) -> Any:
        """The value at a path with all edits so far, not to be changed, by default ``default``."""
        self.steps.left -= 1  # inlines charge(), which would take as long as the read itself
        if self.steps.left < 0:
            self.steps.charge(0)
        return value_at(self.data, path, default)

    def add(self, path: Path, value: Any) -> None:
        """Add a missing key, and missing mappings above it. An equal value is left alone."""
        present, depth = self._reach(path)
        if depth == len(path) and present is not None:
            if present == value:
                return
            raise self.problem(path, f"expected no value or {value!r} here, found {present!r}")
        if depth == len(path) or (present is None and depth):
            depth -= 1  # a null counts as an empty mapping
        elif not isinstance(present, dict):
            raise self.problem(path[:depth], f"expected a mapping, found {present!r}")
        added = path[: depth + 1]
        for step in reversed(path[depth + 1 :]):
            value = {step: value}
        self.changes += 1
        self._writable(path[:depth])[added[-1]] = value
        if not self._is_added(added):
            self._added.add(added)
            self._lengths.add(len(added))
            self.edits.append(Edit("add", added, value))

    def append(self) -> None:
        """Add an empty document behind the documents that are edited together."""
        path = (len(self.data),)
        self._writable(()).append({})
        self._added.add(path)
        self._lengths.add(1)
        self.edits.append(Edit("append", path, {}))

    def extend(self, path: Path, items: Sequence[Any]) -> None:
        """Insert items at the beginning of a list; add a missing list. Present items are left out."""
        present = self.get(path)
        if present is None:
            if items:
                self.add(path, list(items))
            return
        if not isinstance(present, list):
            raise self.problem(path, f"expected a list, found {present!r}")
        new = [item for item in items if item not in present]
        if not new:
            return
        self.changes += 1
        self._writable(path).extend(new)
        if self._is_added(path):
            return
        earlier = self._changed.get(path)
        if earlier is not None:
            earlier.value.extend(new)
        else:
            self._changed[path] = Edit("extend", path, new)
            self.edits.append(self._changed[path])

    def replace(self, path: Path, value: Any) -> None:
        """Replace a scalar of the user's. The caller has checked that the user allows this."""
        if self.get(path) == value:
            return
        self.changes += 1
        self._writable(path[:-1])[path[-1]] = value
        if self._is_added(path):
            return
        earlier = self._changed.get(path)
        if earlier is not None:
            earlier.value = value
        else:
            self._changed[path] = Edit("replace", path, value)
            self.edits.append(self._changed[path])

    def embed(self, path: Path, text: str, inner: Sequence[Splice]) -> None:
        """Change a string that is itself YAML to ``text``. ``inner`` are the changes, by rising position."""
        self.changes += 1
        self._writable(path[:-1])[path[-1]] = text
        self.edits.append(Edit("embed", path, text, tuple(inner)))

    def is_edited(self, path: Path) -> bool:
        """Whether an edit changes the value at a path, or something in it."""
        return any(edit.path[: len(path)] == path for edit in self.edits)

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path of the document."""
        return self.document.problem(path, text)

    def final_edits(self) -> Sequence[Edit]:
        """The edits with their final values, because later edits may add to an earlier one's value."""
        for edit in self.edits:
            if edit.kind in ("add", "append"):
                edit.value = value_at(self.data, edit.path)
        return self.edits

    def result(self, short: Collection[Edit] = ()) -> Any:
        """The data of the edited text, new items of a list before the old ones.

        The edits in ``short`` have :data:`STAND_IN` instead of their values.
        """
        return edited(self.document.get(()), self.final_edits(), short)

    def _is_added(self, path: Path) -> bool:
        """Whether an edit has added the value at a path, or a value around it."""
        added = self._added
        if added:
            for length in self._lengths:  # a generator would take twice as long, and this is called for every edit
                if path[:length] in added:
                    return True
        return False

    def _reach(self, path: Path) -> tuple[Any, int]:
        """The deepest existing value on a path, and how many steps lead to it."""
        value = self.data
        for depth, step in enumerate(path):
            if isinstance(value, dict):
                if step not in value:
                    return value, depth
            elif not (isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)):
                return value, depth
            value = value[step]
        return value, len(path)

    def _writable(self, path: Path) -> Any:
        """A copy of the collection at a path, put in its place and safe to change."""
        self.steps.charge(1)
        holder = [self.data]
        value = _copied(holder, path, self._copies)
        self.data = holder[0]
        return value


def edited(data: Any, edits: Sequence[Edit], short: Collection[Edit] = ()) -> Any:
    """A document's data with edits that have their final values; :meth:`Editor.result` says more.

    Unchanged values are shared with ``data``.
    """
    shortened = {id(edit) for edit in short}
    holder: list[Any] = [data]
    copies: dict[Path, Any] = {}
    for edit in sorted(edits, key=lambda edit: -len(edit.path)):
        parent = _copied(holder, edit.path[:-1], copies)
        if edit.kind == "extend":
            new = [STAND_IN] if id(edit) in shortened else edit.value
            parent[edit.path[-1]] = [*new, *parent[edit.path[-1]]]
        elif edit.kind == "append":
            parent.append(edit.value)
        else:
            parent[edit.path[-1]] = STAND_IN if id(edit) in shortened else edit.value
    return holder[0]


def _copied(holder: list[Any], path: Path, copies: dict[Path, Any]) -> Any:
    """The collection at a path of ``holder[0]``. It and every collection around it is replaced by a copy, once."""
    copy = copies.get(path)
    if copy is None:
        parent: Any = _copied(holder, path[:-1], copies) if path else holder
        key = path[-1] if path else 0
        copy = copies[path] = parent[key] = parent[key].copy()
    return copy


def clone(value: _T) -> _T:
    """A deep copy of plain data, many times faster than :func:`copy.deepcopy`, which handles any object.

    Strings and numbers, the most frequent values, need no call.
    """
    if isinstance(value, dict):
        return {  # type: ignore[return-value]
            key: clone(item) if item.__class__ is dict or item.__class__ is list else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [  # type: ignore[return-value]
            clone(item) if item.__class__ is dict or item.__class__ is list else item for item in value
        ]
    return value


def is_same(one: Any, other: Any) -> bool:
    """Whether plain data is equal and of the same types: to Python 1, 1.0 and true are equal, and NaN is not equal to itself."""
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        plain = _without_remark(one), _without_remark(other)
        return (plain[0] is not one or plain[1] is not other) and is_same(*plain)
    if kind is dict:
        return one.keys() == other.keys() and all(map(is_same, one.values(), map(other.get, one)))
    if kind is list:
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other or repr(one) == repr(other)


def _without_remark(value: Any) -> Any:
    """The value itself, or the plain one that equals it."""
    if isinstance(value, RemarkedText):
        return str(value)
    return int(value) if isinstance(value, RemarkedNumber) else value


def value_at(value: Any, path: Path, default: Any = None) -> Any:
    """The value at a path of plain data, by default ``default``."""
    for step in path:
        if value.__class__ is dict:
            value = value.get(step, MISSING)
            if value is MISSING:
                return default
        elif value.__class__ is list and step.__class__ is int and 0 <= step < len(value):
            value = value[step]
        else:
            return default
    return value


_START: Any = yaml.Mark("", 0, 0, 0, None, 0)
_NO_TEXT: Any = yaml.ScalarEvent(None, None, (True, False), "", _START, _START)


@dataclass(slots=True)
class DataDocument(Document):
    """One object as plain data, which is not changed. ``file`` is the object's name for messages (``Job train``)."""

    data: Any = None

    def node(self, path: Path) -> Node | None:  # noqa: ARG002 (data has no text)
        """None: data has no positions."""
        return None

    def get(self, path: Path, default: Any = MISSING) -> Any:
        """The value at a path, not to be changed, by default ``default``."""
        return value_at(self.data, path, default)

    def line(self, path: Path) -> int:  # noqa: ARG002 (data has no text)
        """0, because data has no lines."""
        return 0

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path, with the field's name and without a line."""
        field_name = self.show(path)
        return ManifestError(f"{field_name}: {text}" if field_name else text)


def data_document(data: Mapping[str, Any], name: str) -> DataDocument:
    """The document of an object; ``name`` is its name in messages."""
    return DataDocument(name, "", _NO_TEXT, 0, 0, 0, data=data)


def json_patch(editor: Editor) -> list[dict[str, Any]]:
    """The edits as operations of a JSON patch (RFC 6902) that make :meth:`Editor.result` of the editor's data.

    Deeper values are edited first: new items go to the beginning of a list and would shift the other indexes.
    """
    operations: list[dict[str, Any]] = []
    for edit in sorted(editor.final_edits(), key=lambda edit: -len(edit.path)):
        if edit.kind == "extend":
            pointers = [json_pointer((*edit.path, index)) for index in range(len(edit.value))]
            operations += [
                {"op": "add", "path": pointer, "value": item}
                for pointer, item in zip(pointers, edit.value, strict=True)
            ]
        else:
            name = "add" if edit.kind in ("add", "append") else "replace"
            operations.append({"op": name, "path": json_pointer(edit.path), "value": edit.value})
    return operations


def replacing(
    path: Path, before: Mapping[str, Any], after: Mapping[str, Any], *, removes: bool = True
) -> list[dict[str, Any]]:
    """The operations that turn the mapping at a path into ``after``, field by field; only with ``removes`` are fields removed."""
    operations: list[dict[str, Any]] = []
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after and after[name] == before[name]:
            continue
        at = json_pointer((*path, name))
        if name in after:
            operations.append({"op": "replace" if name in before else "add", "path": at, "value": after[name]})
        elif removes:
            operations.append({"op": "remove", "path": at})
    return operations


def patched(data: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """An object with the operations add, replace and remove of a JSON patch; unchanged values are shared with ``data``.

    Raises :class:`LookupError`, :class:`ValueError` or :class:`TypeError` where an API server would refuse the patch.
    """
    result, copies = [data], dict[int, Any]()
    for operation in patch:
        steps: list[Any] = [
            0,
            *(step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]),
        ]
        parent: Any = result
        for step in steps[:-1]:
            key = int(step) if isinstance(parent, list) else step
            inner = parent[key]
            if isinstance(inner, dict | list) and id(inner) not in copies:
                inner = parent[key] = inner.copy()
                copies[id(inner)] = inner
            parent = inner
        is_list, adds = isinstance(parent, list), operation["op"] == "add"
        last = int(steps[-1]) if is_list else steps[-1]
        if (is_list and last > len(parent) - (not adds)) or (not is_list and not adds and last not in parent):
            raise LookupError(operation["path"])
        if operation["op"] == "remove":
            del parent[last]
        elif is_list and adds:
            parent.insert(last, operation["value"])
        else:
            parent[last] = operation["value"]
    return result[0]


def json_pointer(path: Path) -> str:
    """A path as a JSON pointer (RFC 6901): ``/metadata/labels/spotwright.dev~1spot``."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
