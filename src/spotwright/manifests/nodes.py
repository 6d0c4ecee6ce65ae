"""YAML text as nodes that know where they stand, with their values beside them: one pass over libyaml's events.

PyYAML's own nodes have no values, and building the two one after the other costs twice. A scalar's node is the parser's event
itself. What Kubernetes' readers refuse or would take for something else is refused here, at its line: a key that stands twice,
a key that is no text, an alias to nothing or to what it stands in, and aliases that unfold to more than anybody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import yaml

from spotwright.errors import InputError

__all__ = [
    "MAY_MEAN_MORE",
    "CollectionNode",
    "Extent",
    "ManifestError",
    "MappingNode",
    "Node",
    "ScalarNode",
    "SequenceNode",
    "compose",
    "events",
    "is_null",
    "together",
    "value_of",
]


class Mark(Protocol):
    """A place in the text, counted from nought: in characters, in lines, and in characters of its line."""

    index: int
    line: int
    column: int


if TYPE_CHECKING:

    class ScalarNode:
        """``value`` is its text, ``style`` how it is written: ``|``, ``>``, a quote, or nothing."""

        start_mark: Mark
        end_mark: Mark
        value: Any  # a text
        style: str | None
        tag: str | None
        implicit: tuple[bool, bool]

else:
    ScalarNode = yaml.ScalarEvent

_SCALAR: Any = yaml.ScalarEvent  # the parser's events carry no useful types
_MAPPING_END: Any = yaml.MappingEndEvent
_SEQUENCE_END: Any = yaml.SequenceEndEvent
_PARSER: Final[Any] = yaml.cyaml.CParser if yaml.__with_libyaml__ else yaml.SafeLoader  # type: ignore[attr-defined]
_TAG = "tag:yaml.org,2002:"
_MAX_DEPTH = 200
_MAX_UNFOLDED = 1_000_000  # values, those of every alias counted again
_REMEMBERED = 64  # characters: longer texts are seldom met twice
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_IMPLICIT: dict[str, list[tuple[str, Any]]] = yaml.resolver.Resolver.yaml_implicit_resolvers
MAY_MEAN_MORE = frozenset(_IMPLICIT)
"""How plain scalars begin that may be numbers, truth values and the like; all others are texts."""


class ManifestError(InputError):
    """A manifest cannot be read or placed. The message starts with ``file:line:``."""


class Extent(NamedTuple):
    """Where something stands in a text, in characters."""

    start: int
    end: int


class CollectionNode:
    """A mapping or a list: its extent by the parser's marks, and whether it is written in flow style (``{}``, ``[]``)."""

    __slots__ = ("end_mark", "flow_style", "start_mark")
    value: Any

    def __init__(self, start: Any) -> None:
        self.start_mark: Mark = start.start_mark
        self.end_mark: Mark = start.end_mark
        self.flow_style: bool = start.flow_style


class MappingNode(CollectionNode):
    """``value`` are its own pairs of nodes, ``keys`` all of them by name, merged ones included, ``data`` the plain values."""

    __slots__ = ("data", "keys", "value")

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.value = []
        self.keys: dict[str, tuple[ScalarNode, Node]] = {}
        self.data: dict[str, Any] = {}


class SequenceNode(CollectionNode):
    """``value`` are the nodes of its items, ``data`` their plain values."""

    __slots__ = ("data", "value")

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.value = []
        self.data: list[Any] = []


Node: TypeAlias = ScalarNode | MappingNode | SequenceNode


def compose(
    text: str, file: str, above: int, seen: Callable[[str], str] | None = None
) -> Iterator[tuple[Node, dict[int, int]]]:
    """The root of every document of a text, with the identities of what more than one place in it uses: the line of the second.

    ``seen`` says how the text of a scalar is to be read. Raises :class:`ManifestError`, and what the parser raises.
    """
    parser = events(text)
    composer = _Composer(parser.get_event, file, above, seen)
    try:
        while (event := parser.get_event()).__class__ is not yaml.StreamEndEvent:
            if event.__class__ is yaml.DocumentStartEvent:
                yield composer.document()
    finally:
        parser.dispose()


def events(text: str) -> Any:
    """A parser, whose ``get_event`` gives the events of a text one after another; ``dispose`` it when done."""
    return _PARSER(text)


class _Composer:
    """The documents of one text.

    ``_size`` counts the values so far, those behind an alias each time it is met, and ``_unfolded`` only the latter.
    """

    def __init__(self, get: Callable[[], Any], file: str, above: int, seen: Callable[[str], str] | None) -> None:
        self._get = get
        self._file = file
        self._above = above
        self._seen = seen
        self._anchors: dict[str, tuple[Node, Any, int]] = {}
        self._shared: dict[int, int] = {}
        self._depth = self._size = self._unfolded = 0

    def document(self) -> tuple[Node, dict[int, int]]:
        self._anchors, self._shared = {}, {}
        self._depth = self._size = self._unfolded = 0
        root, _ = self._node(self._get())
        return root, self._shared

    def _node(self, event: Any) -> tuple[Node, Any]:
        """The node and the value that begin with an event."""
        if event.__class__ is _SCALAR:
            if self._seen is not None:
                event.value = self._seen(event.value)
            value = value_of(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = (event, value, 1)
            return event, value
        if event.__class__ is yaml.AliasEvent:
            return self._alias(event)
        before, self._depth = self._size, self._depth + 1
        if self._depth > _MAX_DEPTH:
            raise self._at(event, f"nested deeper than {_MAX_DEPTH} levels")
        node = self._mapping(event) if event.__class__ is yaml.MappingStartEvent else self._sequence(event)
        self._depth -= 1
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, node.data, self._size - before + 1)
        return node, node.data

    def _mapping(self, start: Any) -> MappingNode:
        node = MappingNode(start)
        own, pairs, data, get, seen = node.keys, node.value, node.data, self._get, self._seen
        merged: list[Node] = []
        while (key := get()).__class__ is _SCALAR:
            if seen is not None:
                key.value = seen(key.value)
            name, child = key.value, get()
            if child.__class__ is _SCALAR and child.anchor is None and child.tag is None and seen is None:
                value = child.value
                if value[:1] in MAY_MEAN_MORE:  # few do, and a call for each of the others would be a third of the time
                    value = value_of(child)
            else:
                child, value = self._node(child)
            pair = (key, child)
            pairs.append(pair)
            if name == "<<" and key.implicit[0]:
                merged.append(child)
                continue
            if name in own:
                raise self._at(key, f"the key {name!r} stands here and on line {self._line(own[name][0])}")
            own[name] = pair
            data[name] = value
        if key.__class__ is not _MAPPING_END:
            raise self._at(key, "a key must be a text; a template marker such as {{...}} needs quotes")
        node.end_mark = key.end_mark
        self._size += len(pairs)
        if merged:
            _merge(node, merged)
        return node

    def _sequence(self, start: Any) -> SequenceNode:
        node = SequenceNode(start)
        nodes, data, get = node.value, node.data, self._get
        while (event := get()).__class__ is not _SEQUENCE_END:
            child, value = self._node(event)
            nodes.append(child)
            data.append(value)
        node.end_mark = event.end_mark
        self._size += len(nodes)
        return node

    def _alias(self, event: Any) -> tuple[Node, Any]:
        if event.anchor not in self._anchors:
            raise self._at(event, f"the alias *{event.anchor} has no anchor above it")
        node, value, size = self._anchors[event.anchor]
        self._size += size - 1
        self._unfolded += size
        if self._unfolded > _MAX_UNFOLDED:
            raise self._at(event, f"the aliases unfold to more than {_MAX_UNFOLDED:,} values")
        self._shared.setdefault(id(node), self._line(event))
        return node, value

    def _at(self, event: Any, text: str) -> ManifestError:
        return ManifestError(f"{self._file}:{self._line(event)}: {text}")

    def _line(self, event: Any) -> int:
        return int(event.start_mark.line) + 1 + self._above


def _merge(node: MappingNode, merged: list[Node]) -> None:
    """Put merged keys behind a mapping's own; of several sources the first wins."""
    for source in merged:
        for part in source.value if isinstance(source, SequenceNode) else [source]:
            if isinstance(part, MappingNode):
                for name, pair in part.keys.items():
                    node.keys.setdefault(name, pair)
                    node.data.setdefault(name, part.data[name])


def value_of(node: ScalarNode) -> Any:
    """The value of a scalar; timestamps and the like are text to Kubernetes."""
    text: str = node.value
    if node.tag is not None:
        return _tagged(node.tag, text)
    if not node.implicit[0] or text[:1] not in MAY_MEAN_MORE:
        return text
    return _plain(text) if len(text) < _REMEMBERED else _plain.__wrapped__(text)


def together(roots: list[Node]) -> SequenceNode:
    """Documents that are one object, as the items of a list."""
    node = SequenceNode(roots[0])
    node.end_mark, node.flow_style = roots[-1].end_mark, False
    node.value, node.data = roots, [root.data for root in roots if isinstance(root, MappingNode)]
    return node


def is_null(node: Node) -> bool:
    """Whether there is nothing but a null."""
    return isinstance(node, ScalarNode) and value_of(node) is None


@lru_cache(maxsize=4096)
def _plain(text: str) -> Any:
    for tag, pattern in _IMPLICIT.get(text[:1], ()):
        if pattern.match(text):
            return _tagged(tag, text)
    return text


def _tagged(tag: str, text: str) -> Any:
    if tag.removeprefix(_TAG) in ("int", "float", "bool", "null"):
        try:
            return _CONSTRUCTOR.yaml_constructors[tag](_CONSTRUCTOR, yaml.ScalarNode(tag, text))
        except ValueError:
            return text
    return text
