"""YAML text as documents that know where every value stands, so that an edit touches nothing but its own place.

Paths are tuples of keys and indexes. The parser is in :mod:`spotwright.manifests.nodes`.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from spotwright.manifests.nodes import (
    ManifestError,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    compose,
    is_null,
    value_of,
)
from spotwright.manifests.surrogates import hide, reveal

__all__ = ["MISSING", "Document", "Path", "no_garbage_collection", "parse", "show"]

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: ``("spec", "template", "spec", "containers", 0)``."""

_CONTROL = re.compile(r"^\s*\{\{", re.MULTILINE)  # a line of a template that is no YAML: {{- if .Values.gpu }}
_BREAKS = re.compile("[\x85\u2028\u2029]")  # line breaks of YAML 1.1, which do not come back as they are

MISSING: Any = object()
"""What :meth:`Document.get` gives where there is nothing, because ``None`` is a value."""


@dataclass(slots=True)
class Document:
    """One YAML document of a file. ``start`` and ``end`` are its extent in the file's text, in characters.

    ``above`` is how many lines of the file stand above ``text``: it may be a part of the file that is YAML of its own.
    """

    file: str
    text: str  # of the whole file
    root: Node
    start: int
    end: int
    index: int  # of the document in the file
    above: int = 0
    shared: dict[int, int] = field(
        default_factory=dict
    )  # what more than one place uses, by identity: the line of the second
    _found: dict[Path, Node | None] = field(default_factory=dict)  # what was looked for

    def node(self, path: Path) -> Node | None:
        """The node at a path; ``None`` where there is none. Merge keys are looked through."""
        try:
            return self._found[path]
        except KeyError:
            found = self._found[path] = self._walk(path)
            return found

    def _walk(self, path: Path) -> Node | None:
        if not path:
            return self.root
        node, step = self.node(path[:-1]), path[-1]
        if isinstance(node, MappingNode):
            pair = node.keys.get(step) if isinstance(step, str) else None
            return pair[1] if pair else None
        if isinstance(node, SequenceNode) and isinstance(step, int):
            items = node.value
            return items[step] if -len(items) <= step < len(items) else None
        return None

    @property
    def is_flow(self) -> bool:
        """Whether it is written in flow style (``{}``), as JSON is."""
        return isinstance(self.root, MappingNode) and self.root.flow_style

    @property
    def is_json(self) -> bool:
        """Whether it is JSON, and must stay so."""
        root = self.root
        if isinstance(root, SequenceNode) and root.value:
            root = root.value[0]  # a pipeline
        if not isinstance(root, MappingNode) or not root.flow_style:
            return False
        return all(key.style == '"' for key, _ in root.value[:1])

    def key_node(self, path: Path) -> ScalarNode | None:
        """The node of the key itself at a path that ends with one; ``None`` where it comes from a merge or is not there."""
        parent = self.node(path[:-1])
        if not isinstance(parent, MappingNode) or not isinstance(path[-1], str):
            return None
        pair = parent.keys.get(path[-1])
        return pair[0] if pair is not None and pair in parent.value else None

    def get(self, path: Path, default: Any = MISSING) -> Any:
        """The value at a path as plain data; ``default`` where there is none. Never change what is returned."""
        node = self.node(path)
        if node is None:
            return default
        return value_of(node) if isinstance(node, ScalarNode) else node.data

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

    def separately(self, value: Any, path: Path) -> tuple[list[Any], Path]:
        """The values of the documents that a value of this one is, and where a path leads among them."""
        return [value], (0, *path)

    def written(self, value: Any) -> str:
        """What could stand in this document's place, written anew from its data: in one line where it stands within others."""
        if self.is_json:
            return json.dumps(value, ensure_ascii=False)
        flow = self.is_flow
        text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=flow))
        if not _BREAKS.search(text):
            return text
        return str(yaml.safe_dump(value, sort_keys=False, width=10**6, default_flow_style=flow))

    def parts(self, path: Path, value: Any) -> list[Path]:  # noqa: ARG002 (a pair of documents has parts)
        """Paths in a value that is added at ``path`` which can be taken out one by one; none where it stands or falls as one."""
        return []

    def aliased(self, path: Path) -> tuple[int, int] | None:
        """The lines of anchor and alias where a value on the way to ``path`` is shared with another place; else ``None``."""
        if not self.shared:
            return None
        nodes = (self.node(path[:length]) for length in range(len(path) + 1))
        shared = (node for node in nodes if node is not None and id(node) in self.shared)
        return next(((self._line(node), self.shared[id(node)]) for node in shared), None)

    def _line(self, node: Node) -> int:
        return int(node.start_mark.line) + 1 + self.above


def parse(text: str, file: str, above: int = 0, seen: Callable[[str], str] | None = None) -> list[Document]:
    """The documents of a file, empty ones left out. Raises :class:`ManifestError` with the line where it is not YAML.

    ``above``: how many lines of the file stand above ``text``, where it is only a part of the file. ``seen`` says how the text
    of a scalar is to be read, where ``text`` is not what it stands for.
    """
    text = text.removeprefix("\ufeff")
    documents: list[Document] = []
    with no_garbage_collection():
        try:
            for index, (root, shared) in enumerate(compose(text, file, above, seen)):
                start, end = root.start_mark.index, root.end_mark.index
                if not is_null(root):
                    documents.append(Document(file, text, root, start, end, index, above, shared))
        except yaml.MarkedYAMLError as error:
            if seen is None and (hidden := hide(text)) != text and text.lstrip()[:1] in ("{", "["):
                return _again(text, parse(hidden, file, above, reveal))
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise ManifestError(
                f"{file}:{line + above}: not valid YAML: {error.problem or error.context}{_hint(text, line)}"
            ) from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            code = ord(error.character) if isinstance(error.character, str) else error.character
            raise ManifestError(
                f"{file}:{line + above}: not valid YAML: the character U+{code:04X} is not allowed; remove it"
            ) from error
    return documents


def _again(text: str, documents: list[Document]) -> list[Document]:
    """Documents that were read from a text in which something was hidden, with the text as it is."""
    for document in documents:
        document.text = text
    return documents


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return "; indent with spaces, not tabs"
    if _CONTROL.search("\n".join(lines[max(0, line - 3) : line])):
        return "; this is a template: render it first (helm template)"
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
