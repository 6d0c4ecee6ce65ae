"""Edits of one document: what is to be added, as data first and as text last.

A kind's module says *what* it wants (:meth:`Editor.add`, :meth:`Editor.extend`, :meth:`Editor.replace`) and reads the document
through the editor, so that it sees what was added before. :mod:`spotwright.manifests.splice` turns the result into insertions at
the marks of the parser. Nothing is ever dropped: a value of the user's is replaced only where :meth:`Editor.replace` says so,
and the old text is kept.

Paths name values as they stand in the user's document, also below a list that was extended: new items come before the old
ones in the text, and behind them in what :meth:`Editor.get` gives, so that indexes keep their meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from spotwright.manifests.documents import MISSING, Document, Path
from spotwright.manifests.nodes import ManifestError

__all__ = ["STAND_IN", "Edit", "Editor", "Splice", "clone", "value_at"]


_T = TypeVar("_T")

STAND_IN = 0
"""Stands for a value where only its place matters."""


class Splice(NamedTuple):
    """Put ``text`` in the place of ``old`` at a position of a text. An insertion has no ``old``.

    ``short`` may stand for ``text``: the same key or item, with :data:`STAND_IN` for its value.
    """

    at: int
    text: str
    old: str = ""
    short: str = ""


@dataclass(slots=True)
class Edit:
    """One edit: ``add`` a key with a value, ``extend`` a list at its beginning by ``value``, or ``replace`` a scalar.

    ``embed`` changes a text that is YAML itself: ``value`` is the new text, ``inner`` what was changed in the old one. ``append``
    puts a document behind the last one.
    """

    kind: str  # add | extend | replace | embed | append
    path: Path
    value: Any
    inner: tuple[Splice, ...] = ()


@dataclass(slots=True)
class Editor:
    """The edits of one document, and the document as it will be."""

    document: Document
    edits: list[Edit] = field(default_factory=list)
    data: Any = None
    changes: int = field(default=0, init=False)  # grows with every change
    _made: set[Path] = field(default_factory=set, init=False)  # paths of what was added or appended
    _lengths: set[int] = field(default_factory=set, init=False)  # of those paths
    _changed: dict[Path, Edit] = field(default_factory=dict, init=False)  # lists that were extended, scalars replaced
    _own: dict[Path, Any] = field(
        default_factory=dict, init=False
    )  # collections that may be changed, because they are copies

    def __post_init__(self) -> None:
        """What the document gives is shared and never changed: a collection is copied before it is."""
        self.data = self.document.get(())

    def get(self, path: Path, default: Any = None) -> Any:
        """The value at a path with every edit so far applied; ``default`` where there is none. Never change what is returned."""
        known = self._own.get(path, MISSING)
        return value_at(self.data, path, default) if known is MISSING else known

    def add(self, path: Path, value: Any) -> None:
        """Add a key that is not there; mappings above it are made where they are missing. Equal values are left alone."""
        present, depth = self._way(path)
        if depth == len(path) and present is not None:
            if present == value:
                return
            raise self.problem(path, f"expected nothing or {value!r} here, found {present!r}")
        if depth == len(path) or (present is None and depth):
            depth -= 1  # a null counts as an empty mapping
        elif not isinstance(present, dict):
            raise self.problem(path[:depth], f"expected a mapping, found {present!r}")
        made = path[: depth + 1]
        for step in reversed(path[depth + 1 :]):
            value = {step: value}
        self.changes += 1
        value = clone(value)
        self._writable(path[:depth])[made[-1]] = value
        if not self._is_added(made):
            self._guard(path[:depth])
            self._made.add(made)
            self._lengths.add(len(made))
            self._own[made] = value
            self.edits.append(Edit("add", made, value))

    def append(self) -> None:
        """Put a document behind those of a file that are edited together, an empty mapping yet."""
        path = (len(self.data),)
        self._writable(()).append({})
        self._made.add(path)
        self._lengths.add(1)
        self._own[path] = self.data[-1]
        self.edits.append(Edit("append", path, self.data[-1]))

    def extend(self, path: Path, items: Sequence[Any]) -> None:
        """Put items into a list, before those that are there; the list is made where it is missing. Equal items are left out."""
        present = self.get(path)
        if present is None:
            if items:
                self.add(path, list(items))
            return
        if not isinstance(present, list):
            raise self.problem(path, f"expected a list, found {present!r}")
        new = [clone(item) for item in items if item not in present]
        if not new:
            return
        self.changes += 1
        self._writable(path).extend(new)
        if self._is_added(path):
            return
        self._guard(path)
        known = self._changed.get(path)
        if known is not None:
            known.value.extend(new)
        else:
            self._changed[path] = Edit("extend", path, new)
            self.edits.append(self._changed[path])

    def replace(self, path: Path, value: Any) -> None:
        """Replace a scalar of the user's. The caller has made sure that this is wanted."""
        if self.get(path) == value:
            return
        self.changes += 1
        self._writable(path[:-1])[path[-1]] = value
        if self._is_added(path):
            return
        self._guard(path[:-1])
        known = self._changed.get(path)
        if known is not None:
            known.value = value
        else:
            self._changed[path] = Edit("replace", path, value)
            self.edits.append(self._changed[path])

    def embed(self, path: Path, text: str, inner: Sequence[Splice]) -> None:
        """Change a text that is YAML itself: ``inner`` are the changes that make ``text`` of it, by rising position."""
        self.changes += 1
        self._writable(path[:-1])[path[-1]] = text
        self._guard(path[:-1])
        self.edits.append(Edit("embed", path, text, tuple(inner)))

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path of the document."""
        return self.document.problem(path, text)

    def result(self, short: Collection[Edit] = ()) -> Any:
        """The document as its text will give it, new items of a list before the old ones.

        The values of the edits in ``short`` are not themselves, but :data:`STAND_IN`.
        """
        stands = {id(edit) for edit in short}
        holder: list[Any] = [self.document.get(())]
        own: dict[Path, Any] = {}
        for edit in sorted(self.edits, key=lambda edit: -len(edit.path)):
            parent = _copied(holder, edit.path[:-1], own)
            if edit.kind == "extend":
                new = [STAND_IN] if id(edit) in stands else edit.value
                parent[edit.path[-1]] = [*new, *parent[edit.path[-1]]]
            elif edit.kind == "append":
                parent.append(edit.value)
            else:
                parent[edit.path[-1]] = STAND_IN if id(edit) in stands else edit.value
        return holder[0]

    def _is_added(self, path: Path) -> bool:
        made = self._made
        if made:
            for length in self._lengths:  # a generator would take twice as long, in the busiest place of all
                if path[:length] in made:
                    return True
        return False

    def _way(self, path: Path) -> tuple[Any, int]:
        """How far a path leads, in steps, and what stands there."""
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
        """The collection at a path, to be changed."""
        holder = [self.data]
        value = _copied(holder, path, self._own)
        self.data = holder[0]
        return value

    def _guard(self, path: Path) -> None:
        """Refuse an edit inside an anchor that another place shares: it would change both."""
        lines = self.document.aliased(path)
        if lines is not None:
            text = f"this stands inside the anchor of line {lines[0]}, which line {lines[1]} shares"
            raise self.problem(path, f"{text}; write it out in one of the two")


def _copied(holder: list[Any], path: Path, own: dict[Path, Any]) -> Any:
    """What stands at a path of ``holder[0]``, where every collection on the way is a copy that may be changed."""
    known = own.get(path)
    if known is None:
        around: Any = _copied(holder, path[:-1], own) if path else holder
        key = path[-1] if path else 0
        known = own[path] = around[key] = around[key].copy()
    return known


def clone(value: _T) -> _T:
    """A copy of plain data; many times faster than :func:`copy.deepcopy`, which looks for more than there can be.

    Most of what there is are texts and numbers, so they are seen to without a call of their own.
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


def value_at(value: Any, path: Path, default: Any = None) -> Any:
    """What stands at a path of plain data; ``default`` where nothing does."""
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
