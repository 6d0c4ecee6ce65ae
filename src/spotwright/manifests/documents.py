"""YAML text as documents that know where every value stands, so that an edit touches nothing but its own place.

A file is parsed once by libyaml into nodes with marks. Values are built only where somebody asks for them, so a large
document that nobody places costs its parsing and nothing more. Paths are tuples of keys and indexes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import yaml

from spotwright.errors import InputError

__all__ = ["MISSING", "Document", "ManifestError", "Path", "no_garbage_collection", "parse", "show"]

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: ``("spec", "template", "spec", "containers", 0)``."""

MISSING: Any = object()
"""What :meth:`Document.get` gives where there is nothing, because ``None`` is a value."""

_MERGE = "tag:yaml.org,2002:merge"
_TAG = "tag:yaml.org,2002:"
_STRING, _MAPPING, _SEQUENCE = f"{_TAG}str", f"{_TAG}map", f"{_TAG}seq"
_MAX_DEPTH = 200
_REMEMBERED = 64  # characters: longer texts are seldom met twice
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_RESOLVER = yaml.resolver.Resolver()


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """Half of the parser's time goes to what a plain text means: the same texts again and again, so they are remembered."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        """The tag of a node that has none of its own."""
        if kind is yaml.ScalarNode:
            short = value is None or len(value) < _REMEMBERED
            return _tag(value, implicit) if short else str(super().resolve(kind, value, implicit))
        return _MAPPING if kind is yaml.MappingNode else _SEQUENCE

    def descend_resolver(self, *_: Any) -> None:
        """Nothing: no tag depends on where a node stands."""

    ascend_resolver = descend_resolver


class ManifestError(InputError):
    """A manifest cannot be read or placed. The message starts with ``file:line:``."""


@dataclass(slots=True)
class Document:
    """One YAML document of a file. ``start`` and ``end`` are its extent in the file's text, in characters.

    ``above`` is how many lines of the file stand above ``text``: it may be a part of the file that is YAML of its own.
    """

    file: str
    text: str  # of the whole file
    root: yaml.Node
    start: int
    end: int
    index: int  # of the document in the file
    above: int = 0
    _values: dict[int, Any] = field(default_factory=dict)  # of the collections, by identity: the root keeps them alive
    _keys: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict)  # of the mappings, likewise
    _found: dict[Path, yaml.Node | None] = field(default_factory=dict)  # what was looked for
    _counts: dict[int, int] | None = None  # of the places that use each collection

    def node(self, path: Path) -> yaml.Node | None:
        """The node at a path; ``None`` where there is none. Merge keys are looked through."""
        known = self._found.get(path, MISSING)
        if known is MISSING:
            known = self._found[path] = self._walk(path)
        return known  # type: ignore[no-any-return]

    def _walk(self, path: Path) -> yaml.Node | None:
        if not path:
            return self.root
        node, step = self.node(path[:-1]), path[-1]
        if isinstance(node, yaml.MappingNode):
            pair = self._entries(node).get(step) if isinstance(step, str) else None
            return pair[1] if pair else None
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            items = node.value
            return items[step] if -len(items) <= step < len(items) else None
        return None

    def key_node(self, path: Path) -> yaml.Node | None:
        """The node of the key itself at a path that ends with one; ``None`` where it comes from a merge or is not there."""
        parent = self.node(path[:-1])
        if not isinstance(parent, yaml.MappingNode):
            return None
        return next((key for key, _ in parent.value if key.value == path[-1] and key.tag != _MERGE), None)

    def get(self, path: Path, default: Any = MISSING) -> Any:
        """The value at a path as plain data; ``default`` where there is none. Never change what is returned."""
        node = self.node(path)
        return default if node is None else self._value(node, 0)

    def line(self, path: Path) -> int:
        """The line of a path, counted from one; of its nearest ancestor where it is not there."""
        for length in range(len(path), -1, -1):
            key = self.key_node(path[:length]) if length and isinstance(path[length - 1], str) else None
            node = key or self.node(path[:length])
            if node is not None:
                return self._line(node)
        return 1 + self.above

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path."""
        where = self.spoken(path)
        return ManifestError(f"{self.file}:{self.line(path)}: {f'{where}: ' if where else ''}{text}")

    def spoken(self, path: Path) -> str:
        """A path of this document as people write it."""
        return show(path)

    def again(self, text: str) -> Document | None:
        """The same document in another text of its file; ``None`` where there is none."""
        return next((found for found in parse(text, self.file, self.above) if found.index == self.index), None)

    def written(self, value: Any) -> str:
        """What could stand in this document's place, written anew from its data."""
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6))

    def parts(self, path: Path, value: Any) -> list[Path]:  # noqa: ARG002 (a pair of documents has parts)
        """Paths in a value that is added at ``path`` which can be taken out one by one; none where it stands or falls as one."""
        return []

    def aliased(self, path: Path) -> int | None:
        """The line of the anchor where a value on the way to ``path`` is shared with another place; else ``None``."""
        if self._counts is None:
            self._counts = self._uses()
        counts = self._counts
        if not counts:
            return None
        node: yaml.Node | None = self.root
        for length in range(len(path) + 1):
            node = self.node(path[:length])
            if node is not None and not isinstance(node, yaml.ScalarNode) and counts.get(id(node), 0) > 1:
                return self._line(node)
        return None

    def _uses(self) -> dict[int, int]:
        """How many places use each collection; a document without an alias has no shared ones and is not walked."""
        if "*" not in self.text[self.start : self.end]:
            return {}
        counts: dict[int, int] = {}
        stack = [self.root]
        while stack:
            node = stack.pop()
            counts[id(node)] = counts.get(id(node), 0) + 1
            if counts[id(node)] > 1:
                continue
            if isinstance(node, yaml.MappingNode):
                stack += [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                stack += node.value
        return counts

    def _entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The keys of a mapping with their nodes. Refuses a key that stands twice; merged keys stand behind its own."""
        known = self._keys.get(id(node))
        if known is not None:
            return known
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for pair in node.value:
            key = pair[0]
            if key.tag == _MERGE:
                value = pair[1]
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(part, yaml.MappingNode):
                        merged = {**self._entries(part), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self._at(key, "a key must be a text; a template marker such as {{...}} needs quotes")
            if key.value in own:
                raise self._at(key, f"the key {key.value!r} stands here and on line {self._line(own[key.value][0])}")
            own[key.value] = pair
        self._keys[id(node)] = entries = {**merged, **own} if merged else own
        return entries

    def _value(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag == _STRING else _scalar(node.tag, node.value)
        known = self._values.get(id(node), MISSING)
        if known is not MISSING:
            return known
        if depth > _MAX_DEPTH:
            raise self._at(node, f"nested deeper than {_MAX_DEPTH} levels")
        inside = depth + 1
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = {
                key: child.value
                if child.tag == _STRING and child.__class__ is yaml.ScalarNode
                else self._value(child, inside)
                for key, (_, child) in self._entries(node).items()
            }
        else:
            value = [self._value(child, inside) for child in node.value]
        self._values[id(node)] = value
        return value

    def _at(self, node: yaml.Node, text: str) -> ManifestError:
        return ManifestError(f"{self.file}:{self._line(node)}: {text}")

    def _line(self, node: yaml.Node) -> int:
        return int(node.start_mark.line) + 1 + self.above


@lru_cache(maxsize=4096)
def _tag(text: str | None, implicit: tuple[bool, bool]) -> str:
    return str(_RESOLVER.resolve(yaml.ScalarNode, text, implicit))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1024)
def _scalar(tag: str, text: str) -> Any:
    """The value of a plain scalar; timestamps and the like are text to Kubernetes."""
    if tag.removeprefix(_TAG) in ("int", "float", "bool", "null"):
        try:
            return _CONSTRUCTOR.yaml_constructors[tag](_CONSTRUCTOR, yaml.ScalarNode(tag, text))
        except ValueError:
            return text
    return text


def parse(text: str, file: str, above: int = 0) -> list[Document]:
    """The documents of a file, empty ones left out. Raises :class:`ManifestError` with the line where it is not YAML.

    ``above``: how many lines of the file stand above ``text``, where it is only a part of the file.
    """
    text = text.removeprefix("\ufeff")
    documents: list[Document] = []
    with no_garbage_collection():
        loader = _Loader(text)
        try:
            while loader.check_node():
                root = loader.get_node()
                if root is None:
                    break
                start, end = root.start_mark.index, root.end_mark.index
                documents.append(Document(file, text, root, start, end, len(documents), above))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise ManifestError(
                f"{file}:{line + above}: not valid YAML: {error.problem or error.context}{_hint(text, line)}"
            ) from error
        except yaml.YAMLError as error:
            raise ManifestError(f"{file}: not valid YAML: {error}") from error
        except RecursionError as error:
            raise ManifestError(f"{file}: nested too deeply to be a manifest") from error
        finally:
            loader.dispose()
    return [document for document in documents if not _is_empty(document.root)]


def _is_empty(root: yaml.Node) -> bool:
    return isinstance(root, yaml.ScalarNode) and root.tag == f"{_TAG}null"


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return "; indent with spaces, not tabs"
    if "{{" in here:
        return "; a template marker such as {{...}} needs quotes"
    return ""


def show(path: Path) -> str:
    """A path as people write it: ``spec.template.spec.containers[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Parsing makes many nodes and no garbage: the collector would only look at all of them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
