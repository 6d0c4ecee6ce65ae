"""Compose YAML text into nodes that know their position and their plain values, in one pass over libyaml's events.

The configuration and the manifests are both read here, so both refuse the same texts. PyYAML's nodes have no values, and its
loader silently takes the last of two equal keys and follows aliases without a bound. Here a text is refused, with its line, if
Kubernetes' readers would refuse or misread it: equal keys in a mapping, a key that is not a string, an alias without an anchor
before it, too deep nesting, and aliases for too many values (an alias bomb).

A scalar's node is the parser's event itself. Values other than a string, number, boolean or null stay strings: Kubernetes reads
a timestamp as a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import yaml

__all__ = [
    "MAX_DEPTH",
    "MAX_UNFOLDED",
    "CollectionNode",
    "ComposeError",
    "Composed",
    "Extent",
    "MappingNode",
    "Node",
    "ScalarNode",
    "SequenceNode",
    "Shared",
    "anchor_of",
    "anchored",
    "compose",
    "data_of",
    "events_of",
    "is_merge",
    "is_null",
    "join",
    "value_of",
]

MAX_DEPTH: Final = 200
"""The deepest nesting of a document."""

MAX_UNFOLDED: Final = 1_000_000
"""The most values that the aliases of a document may stand for. Written-out values do not count."""


class Mark(Protocol):
    """A position in the text, counted from 0: in characters, in lines, and in characters of its line."""

    index: int
    line: int
    column: int


if TYPE_CHECKING:

    class ScalarNode:
        """A scalar: ``value`` is its text, ``style`` is ``|``, ``>``, a quote, or ``None`` for a plain one."""

        start_mark: Mark
        end_mark: Mark
        value: Any  # a text
        style: str | None
        tag: str | None
        anchor: str | None
        implicit: tuple[bool, bool]

else:
    ScalarNode = yaml.ScalarEvent

_SCALAR: Any = yaml.ScalarEvent  # the parser's events carry no useful types
_MAPPING_END: Any = yaml.MappingEndEvent
_SEQUENCE_END: Any = yaml.SequenceEndEvent
_DOCUMENT_START: Any = yaml.DocumentStartEvent
_STREAM_END: Any = yaml.StreamEndEvent
_PARSER: Final[Any] = yaml.cyaml.CParser if yaml.__with_libyaml__ else yaml.SafeLoader  # type: ignore[attr-defined]
_TAG = "tag:yaml.org,2002:"
_CACHED_LENGTH = 64  # characters: longer texts seldom recur
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_IMPLICIT: dict[str, list[tuple[str, Any]]] = yaml.resolver.Resolver.yaml_implicit_resolvers

_MAY_MEAN_MORE = frozenset(_IMPLICIT)
"""First characters of plain scalars that may be numbers, booleans or nulls; all other plain scalars are strings."""


class ComposeError(Exception):
    """A text that the parser accepts is refused. ``line`` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class Extent(NamedTuple):
    """The part of a text from character ``start`` up to, not including, ``end``."""

    start: int
    end: int


class CollectionNode:
    """A mapping or a list: ``start`` is the parser's event, the marks are its extent, ``flow_style`` means ``{}`` or ``[]``."""

    __slots__ = ("end_mark", "flow_style", "start", "start_mark")
    value: Any

    def __init__(self, start: Any) -> None:
        self.start = start
        self.start_mark: Mark = start.start_mark
        self.end_mark: Mark = start.end_mark
        self.flow_style: bool = start.flow_style


class MappingNode(CollectionNode):
    """A mapping: ``value`` has its own pairs of nodes, ``keys`` all pairs by name, merged ones too, ``data`` the plain values."""

    __slots__ = ("data", "keys", "value")

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.value = []
        self.keys: dict[str, tuple[ScalarNode, Node]] = {}
        self.data: dict[str, Any] = {}


class SequenceNode(CollectionNode):
    """A list: ``value`` has the nodes of its items, ``data`` their plain values."""

    __slots__ = ("data", "value")

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.value = []
        self.data: list[Any] = []


Node: TypeAlias = ScalarNode | MappingNode | SequenceNode


class Shared(NamedTuple):
    """A node with an anchor, and the parser's events of the aliases that name it, in the order of the text."""

    node: Node
    aliases: list[Any]


class Composed(NamedTuple):
    """One document. ``line`` is the line of its ``---``, or its first.

    ``shared`` has the nodes that aliases name, by their identity.
    """

    line: int
    root: Node
    shared: dict[int, Shared]


def compose(
    text: str,
    reveal: Callable[[str], str] | None = None,
    *,
    above: int = 0,
    lenient: bool = False,
    max_unfolded: int = MAX_UNFOLDED,
) -> Iterator[Composed]:
    """Compose every document of a text, empty ones included.

    ``reveal`` maps the text of a scalar to its meaning. ``above`` is the number of the file's lines above the text: all
    lines but marks are the file's. ``lenient`` leaves equal keys and non-string keys to the caller, among the pairs of a
    mapping's ``value``; in ``keys`` and ``data`` the first of equal keys counts.

    Raises :class:`ComposeError`, and the parser's own errors (:class:`yaml.YAMLError`).
    """
    parser = _PARSER(text)
    try:
        while (start := _next_document(parser.get_event)) is not None:
            composer = _Composer(parser.get_event, reveal, above, lenient=lenient, max_unfolded=max_unfolded)
            root = composer.root()
            yield Composed(start.start_mark.line + 1 + above, root, composer.shared)
    finally:
        parser.dispose()


def _next_document(get: Callable[[], Any]) -> Any:
    """The event that starts the next document; ``None`` at the end of the text."""
    while (event := get()).__class__ is not _DOCUMENT_START:
        if event.__class__ is _STREAM_END:
            return None
    return event


class _Composer:
    """Composes one document.

    ``_size`` counts the values so far, including an alias's each time; ``_unfolded`` counts only the latter.
    """

    def __init__(
        self,
        get: Callable[[], Any],
        reveal: Callable[[str], str] | None,
        above: int,
        *,
        lenient: bool,
        max_unfolded: int,
    ) -> None:
        self.shared: dict[int, Shared] = {}
        self._get = get
        self._reveal = reveal
        self._above = above
        self._lenient = lenient
        self._max_unfolded = max_unfolded
        self._anchors: dict[str, Any] = {}  # a node with its plain value and size; the event of one that has not ended
        self._depth = self._size = self._unfolded = 0

    def root(self) -> Node:
        """Compose the whole document."""
        return self._node(self._get())[0]

    def _node(self, event: Any) -> tuple[Node, Any]:
        """The node and the plain value that begin with an event."""
        if event.__class__ is _SCALAR:
            if self._reveal is not None:
                event.value = self._reveal(event.value)
            value = value_of(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = (event, value, 1)
            return event, value
        if event.__class__ is yaml.AliasEvent:
            return self._alias(event)
        before, self._depth = self._size, self._depth + 1
        if event.anchor is not None:
            self._anchors[event.anchor] = event  # until the node ends; an inner anchor of the same name wins
        if self._depth > MAX_DEPTH:
            raise self._refusal(event, f"nested deeper than {MAX_DEPTH} levels")
        node = self._mapping(event) if event.__class__ is yaml.MappingStartEvent else self._sequence(event)
        self._depth -= 1
        if event.anchor is not None and self._anchors[event.anchor] is event:
            self._anchors[event.anchor] = (node, node.data, self._size - before + 1)
        return node, node.data

    def _mapping(self, start: Any) -> MappingNode:
        node = MappingNode(start)
        own, pairs, data = node.keys, node.value, node.data
        get, reveal = self._get, self._reveal
        merged: list[Node] = []
        while (key := get()).__class__ is not _MAPPING_END:
            if key.__class__ is not _SCALAR:
                pairs.append(self._strange_pair(key))
                continue
            if reveal is not None or key.anchor is not None:
                self._node(key)  # which names the anchor
            name, child = key.value, get()
            if child.__class__ is _SCALAR and child.anchor is None and child.tag is None and reveal is None:
                value = child.value
                if value[:1] in _MAY_MEAN_MORE:  # few are; calls for all would take a third of the time
                    value = value_of(child)
            else:
                child, value = self._node(child)
            pair = (key, child)
            pairs.append(pair)
            if name == "<<" and is_merge(key):
                merged.append(child)
            elif name not in own:
                own[name] = pair
                data[name] = value
            elif not self._lenient:
                raise self._refusal(key, f"the key {name!r} stands here and on line {self._line(own[name][0])}")
        node.end_mark = key.end_mark
        self._size += len(pairs)
        if merged:
            _merge(node, merged)
        return node

    def _strange_pair(self, key: Any) -> tuple[Node, Node]:
        """The pair whose key is a mapping, a list or an alias, for a caller who reports it."""
        if not self._lenient:
            is_alias = key.__class__ is yaml.AliasEvent
            why = (
                "write the key in place of its alias" if is_alias else "a template marker such as {{...}} needs quotes"
            )
            raise self._refusal(key, f"a key must be a text; {why}")
        name, _ = self._node(key)
        return name, self._node(self._get())[0]

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
        anchor = self._anchors.get(event.anchor)
        if not isinstance(anchor, tuple):
            text = f"the alias *{event.anchor} names no anchor that ended before it; a text that begins with * needs quotes"
            raise self._refusal(event, text)
        node, value, size = anchor
        self._size += size - 1
        self._unfolded += size
        if self._unfolded > self._max_unfolded:
            raise self._refusal(event, f"the aliases unfold to more than {self._max_unfolded:,} values")
        self.shared.setdefault(id(node), Shared(node, [])).aliases.append(event)
        return node, value

    def _refusal(self, event: Any, text: str) -> ComposeError:
        return ComposeError(self._line(event), text)

    def _line(self, event: Any) -> int:
        return int(event.start_mark.line) + 1 + self._above


def _merge(node: MappingNode, merged: list[Node]) -> None:
    """Add merged keys behind a mapping's own; of several sources the first wins."""
    for source in merged:
        for part in source.value if isinstance(source, SequenceNode) else [source]:
            if isinstance(part, MappingNode):
                for name, pair in part.keys.items():
                    node.keys.setdefault(name, pair)
                    node.data.setdefault(name, part.data[name])


def value_of(node: ScalarNode) -> Any:
    """The plain value of a scalar."""
    text: str = node.value
    if node.tag is not None:
        return _tagged(node.tag, text)
    if not node.implicit[0] or text[:1] not in _MAY_MEAN_MORE:
        return text
    return _plain(text) if len(text) < _CACHED_LENGTH else _plain.__wrapped__(text)


def data_of(node: Node) -> Any:
    """The plain value of a node."""
    return value_of(node) if isinstance(node, ScalarNode) else node.data


def anchor_of(node: Node) -> str | None:
    """The name of the anchor of a node; ``None`` if it has none."""
    anchor: str | None = node.anchor if isinstance(node, ScalarNode) else node.start.anchor
    return anchor


def anchored(root: Node) -> Iterator[tuple[str, Node]]:
    """The names and the nodes with an anchor in a document, in the order of the text."""
    return ((name, node) for node in _nodes_of(root) if (name := anchor_of(node)) is not None)


def events_of(root: Node) -> Iterator[Any]:
    """The parser's events that begin the nodes of a document, in the order of the text; a shared node comes once."""
    return (node if isinstance(node, ScalarNode) else node.start for node in _nodes_of(root))


def _nodes_of(root: Node) -> Iterator[Node]:
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, ScalarNode):
            continue
        children = node.value if isinstance(node, SequenceNode) else [one for pair in node.value for one in pair]
        stack += reversed(children)


def join(roots: list[MappingNode]) -> SequenceNode:
    """The roots of one object's documents as the items of a list."""
    node = SequenceNode(roots[0].start)
    node.end_mark, node.flow_style = roots[-1].end_mark, False
    node.value, node.data = roots, [root.data for root in roots]
    return node


def is_merge(key: ScalarNode) -> bool:
    """Whether a key is a merge key; yq gives it a tag (``!!merge <<``)."""
    return key.value == "<<" and (key.implicit[0] or key.tag == f"{_TAG}merge")


def is_null(node: Node) -> bool:
    """Whether the node is a null."""
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
        except (ValueError, LookupError, OverflowError):  # !!int "", !!bool maybe, 1:00:00[and so on].0
            return text
    return text
