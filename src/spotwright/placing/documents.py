r"""YAML documents with the position of every value, so that an edit changes no other byte.

Paths are tuples of keys and indexes. The composer is :mod:`spotwright.yaml_composer`; pairs of JSON escapes (an emoji as
``\ud83d\udd53``), which it does not know, are hidden from it.

A document may refer to others (a TrainJob to its runtime): the lookup covers the same input, then the files of ``--with``, also
inside a ``List``.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from spotwright.errors import InputError
from spotwright.yaml_composer import (
    ComposeError,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    Shared,
    compose,
    is_null,
    value_of,
)

__all__ = [
    "MISSING",
    "Document",
    "ManifestError",
    "NoPoolFitsError",
    "Path",
    "References",
    "hide",
    "may_be_referred_to",
    "no_garbage_collection",
    "parse",
    "reveal",
    "show",
]


_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_PRIVATE = 0xE100  # a private use area of Unicode, which YAML reads as letters
_HIDE = {code: code + _PRIVATE for code in range(0x20, 0x7F)}
_REVEAL = {hidden: code for code, hidden in _HIDE.items()}
_ESCAPE = chr(_HIDE[ord("\\")])
_HIDDEN = re.compile(f"(?:{_ESCAPE}.{{5}}){{2}}")


def hide(text: str) -> str:
    """Hide every pair of escapes in a JSON text. The length stays the same."""
    return _PAIR.sub(lambda pair: pair[1] + pair[2].translate(_HIDE), text)


def reveal(text: str) -> str:
    """Turn the hidden pairs in a string back into their characters."""
    return _HIDDEN.sub(lambda pair: str(json.loads(f'"{pair[0].translate(_REVEAL)}"')), text)


reveal_pairs = reveal


Path: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value: ``("spec", "template", "spec", "containers", 0)``."""

_CONTROL = re.compile(r"^\s*\{\{", re.MULTILINE)  # a control line of a chart, not YAML: {{- if .Values.gpu }}
_BREAKS = re.compile("[\x85\u2028\u2029]")  # line breaks of YAML 1.1, which its emitters do not keep

MISSING: Any = object()
"""The default of :meth:`Document.get` for a missing value, because ``None`` is a value."""


class ManifestError(InputError):
    """A manifest cannot be read or placed. The message starts with ``file:line:``."""


class NoPoolFitsError(ManifestError):
    """No pool of the configuration admits the pods under their policy; with other pools the object can be placed."""


@dataclass(slots=True)
class Document:
    """One YAML document of a file. ``start`` and ``end`` are its extent in ``text``, in characters.

    ``above`` is the number of lines of the file above ``text``, which may be a part of the file. ``shared`` has the nodes that
    aliases name, by their identity. ``foreign`` has the present values of shared nodes outside the document.
    ``is_json``: it is JSON, so that additions must be JSON too. With aliases it is not JSON.
    """

    file: str
    text: str  # of the whole file
    root: Node
    start: int
    end: int
    index: int  # of the document in the file
    above: int = 0
    shared: dict[int, Shared] = field(default_factory=dict)
    foreign: Mapping[int, Any] = field(default_factory=dict)
    is_json: bool = field(init=False)
    _nodes: dict[Path, Node | None] = field(default_factory=dict)  # looked up so far

    def __post_init__(self) -> None:
        """Note whether it is JSON; additions are then JSON."""
        root = self.root
        if isinstance(root, SequenceNode) and root.value:
            root = root.value[0]  # a pipeline
        is_flow = isinstance(root, MappingNode) and root.flow_style and not self.shared
        self.is_json = is_flow and all(key.style == '"' for key, _ in root.value[:1])

    def node(self, path: Path) -> Node | None:
        """The node at a path, also of a merged key, or ``None``."""
        try:
            return self._nodes[path]
        except KeyError:
            node = self._nodes[path] = self._walk(path)
            return node

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
        """Whether the document is written in flow style (``{}``), as JSON is."""
        return isinstance(self.root, MappingNode) and self.root.flow_style

    def existing(self, paths: Iterable[Path]) -> set[Path]:
        """The paths that have a value, also a null."""
        return {path for path in paths if self.node(path) is not None}

    def key_node(self, path: Path) -> ScalarNode | None:
        """The node of the last key of a path; ``None`` if the mapping itself lacks the key (it may be merged in)."""
        parent = self.node(path[:-1])
        if not isinstance(parent, MappingNode) or not isinstance(path[-1], str):
            return None
        pair = parent.keys.get(path[-1])
        return pair[0] if pair is not None and pair in parent.value else None

    def get(self, path: Path, default: Any = MISSING) -> Any:
        """The value at a path as plain data, not to be changed, by default ``default``."""
        node = self.node(path)
        if node is None:
            return default
        return value_of(node) if isinstance(node, ScalarNode) else node.data

    def line(self, path: Path) -> int:
        """The line of a path in the file, counted from 1; or of its nearest ancestor if it is missing."""
        for length in range(len(path), -1, -1):
            key = self.key_node(path[:length]) if length and isinstance(path[length - 1], str) else None
            node = key or self.node(path[:length])
            if node is not None:
                return self._line(node)
        return 1 + self.above

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path."""
        field_name = self.show(path)
        return ManifestError(f"{self.file}:{self.line(path)}: {f'{field_name}: ' if field_name else ''}{text}")

    def show(self, path: Path) -> str:
        """A path of this document as messages write it."""
        return show(path)

    def reparse(self, text: str) -> Document | None:
        """Parse another version of the file's text and return this document in it; ``None`` if it is gone."""
        documents = parse(text, self.file, self.above)
        return next((document for document in documents if document.index == self.index), None)

    def serialize(self, value: Any) -> str:
        """Serialize a value that replaces this document: in one line where the document is in flow style."""
        if self.is_json:
            return json.dumps(value, ensure_ascii=False)
        flow = self.is_flow
        text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=flow))
        if not _BREAKS.search(text):
            return text
        return str(yaml.safe_dump(value, sort_keys=False, width=10**6, default_flow_style=flow))

    def removable_parts(self, added: Mapping[Path, Any]) -> Mapping[Path, list[Path]]:  # noqa: ARG002 (a pair has parts)
        """For the path of an added value: the paths in it that can be removed one by one; without any it is removed whole."""
        return {}

    def _line(self, node: Node) -> int:
        return int(node.start_mark.line) + 1 + self.above


def parse(text: str, file: str, above: int = 0, reveal: Callable[[str], str] | None = None) -> list[Document]:
    """The documents of a text, empty ones left out. Raises :class:`ManifestError` with the line where it is not YAML.

    ``above`` is the number of lines of the file above ``text``. ``reveal`` maps the text of a scalar to what it stands for, if
    parts of ``text`` are hidden from the parser.
    """
    text = text.removeprefix("\ufeff")
    documents: list[Document] = []
    with no_garbage_collection():
        try:
            for index, composed in enumerate(compose(text, reveal, above=above)):
                root = composed.root
                start, end = root.start_mark.index, root.end_mark.index
                if not is_null(root):
                    documents.append(Document(file, text, root, start, end, index, above, composed.shared))
        except ComposeError as error:
            raise ManifestError(f"{file}:{error.line}: {error}") from error
        except yaml.MarkedYAMLError as error:
            if reveal is None and (hidden := hide(text)) != text and text.lstrip()[:1] in ("{", "["):
                return _with_text(text, parse(hidden, file, above, reveal_pairs))
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


def _with_text(text: str, documents: list[Document]) -> list[Document]:
    """Give documents that were parsed from a text with hidden parts the original text."""
    for document in documents:
        document.text = text
    return documents


def _hint(text: str, line: int) -> str:
    """The likely fix for a syntax error; empty if none is known."""
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return "; indent with spaces, not tabs"
    if _CONTROL.search("\n".join(lines[max(0, line - 3) : line])):
        return "; this is a template: render it first (helm template CHART | spotwright place -)"
    if "{{" in here:
        return "; a template marker such as {{...}} needs quotes"
    return ""


def show(path: Path) -> str:
    """A path as messages write it: ``spec.template.spec.containers[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Suspend the garbage collector: parsing makes many nodes and no garbage, and the collector would visit them repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_REFERRED_KINDS = re.compile(
    r"kind[\"']?\s*:\s*(?:[&!]\S*\s+)*[\"']?"  # perhaps with an anchor
    r"(?:ConfigMap|Experiment|LimitRange|Namespace|Pipeline|PodDefault|PriorityClass|RuntimeClass|Task|ResourceFlavor"
    r"|\w*Queue|\w*Template|\w*Runtime|\w*List)\b"
)


def may_be_referred_to(text: str) -> bool:
    """Whether a text may hold objects of a kind that other documents refer to."""
    return _REFERRED_KINDS.search(text) is not None


@dataclass(slots=True)
class References:
    """The documents that can be referred to; of equal names the first counts. ``inputs`` are the files that the command places.

    ``beyond`` has further documents, which many files share and which are indexed once for all of them.
    """

    documents: list[Document] = field(default_factory=list)
    inputs: frozenset[str] = frozenset()
    beyond: References | None = None
    _by_kind: dict[str, list[Document]] = field(default_factory=dict)
    _by_name: dict[tuple[str, str], list[tuple[str | None, Document]]] = field(default_factory=dict)  # with namespaces
    _is_indexed: bool = False

    def find(self, kind: str, name: str, namespace: str | None = None) -> Document | None:
        """The first object of a kind and name in a namespace, else one without a namespace, which matches every one."""
        self._index()
        same = self._by_name.get((kind, name), ())
        for fitting in ((namespace,), (None,)):
            for own, document in same:
                if namespace is None or own in fitting:
                    return document
        return None if self.beyond is None else self.beyond.find(kind, name, namespace)

    def find_all(self, kind: str) -> list[Document]:
        """Every object of a kind."""
        self._index()
        own = self._by_kind.get(kind, [])
        return own if self.beyond is None else [*own, *self.beyond.find_all(kind)]

    def _index(self) -> None:
        """Index the documents at the first call."""
        if self._is_indexed:
            return
        self._is_indexed = True
        for single in (single for document in self.documents for single in _single_objects(document)):
            kind, metadata = str(single.get(("kind",), "")), single.get(("metadata",), None)
            self._by_kind.setdefault(kind, []).append(single)
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if isinstance(name, str):
                self._by_name.setdefault((kind, name), []).append((metadata.get("namespace"), single))

    def is_input(self, document: Document) -> bool:
        """Whether the same command places the object too."""
        return document.file in self.inputs


def _single_objects(document: Document) -> Iterator[Document]:
    """The document, or each item of a ``List`` as a document whose paths begin at the item."""
    items = document.node(("items",)) if str(document.get(("kind",), "")).endswith("List") else None
    if not isinstance(items, SequenceNode):
        yield document
        return
    for node in items.value:
        start, end = node.start_mark.index, node.end_mark.index
        yield Document(document.file, document.text, node, start, end, document.index, document.above, document.shared)
