"""Whole files placed, taken apart and explained: text in, text out, every object by its kind.

Objects are placed one after another in the text that the one before left, so that every edit is made at marks that are true.
A file comes out whole or not at all: whatever is wrong with one object, nothing of the file is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from spotwright.config import Config
from spotwright.manifests.added import Additions, in_front, is_added, is_as_added, is_untouched, without_record
from spotwright.manifests.choices import Choices
from spotwright.manifests.context import Context, Finding, Level, Options, RoleReport, name_of
from spotwright.manifests.documents import MISSING, Document, Path, no_garbage_collection, parse
from spotwright.manifests.edits import Editor
from spotwright.manifests.kinds import Place, find_kind
from spotwright.manifests.kinds.unknown import place_at
from spotwright.manifests.pairs import AT, KIND, Pair, units
from spotwright.manifests.record import ANNOTATION, MAX_RECORD, Outside, is_placed, placed_text, reserve, unplaced
from spotwright.manifests.references import References
from spotwright.manifests.removal import Removal, remove
from spotwright.manifests.shapes import METADATA, check

__all__ = ["Placement", "References", "place_text", "unplace_text"]

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_PIPELINE = "pipelineInfo"  # stands in every compiled pipeline
_MARKER_LINE = re.compile(r"\A---\r?\n")
_BOM = "\ufeff"
_MARKS = (ANNOTATION, "spotwright:", '"spotwright"')  # one of them stands in every document with a record


@dataclass(slots=True)
class Placement:
    """What became of a file: its text, what a person should know, and the roles that were placed."""

    text: str
    findings: list[Finding] = field(default_factory=list)
    roles: list[RoleReport] = field(default_factory=list)


@no_garbage_collection()
def place_text(
    text: str,
    file: str,
    config: Config,
    references: References | None = None,
    options: Options | None = None,
    outside: Outside | None = None,
) -> Placement:
    """Place every object of a file that has a known kind. Raises :class:`ManifestError`; then nothing is to be written.

    An object that was placed before is taken apart first, so that placing twice is placing once. ``outside`` has the records
    that are too large for an annotation, and gets those that are; without it such an object is refused.
    """
    found = unplace_text(text, file, outside)
    result = Placement(found.text, found.findings)
    bom, body = (_BOM, result.text[1:]) if result.text.startswith(_BOM) else ("", result.text)
    pieces = [(piece, list(units(parse(piece, file, above)))) for above, piece in _pieces(body)]
    documents = [unit for _, found_units in pieces for unit in found_units]
    given = references or References()
    known = References([*documents, *given.documents], given.inputs | {file})
    options = options or Options()
    may_add = options.may_add and not file.endswith(".json") and not _DIRECTIVE.search(body)
    work = _Work(config, Choices(config.pools), known, options, outside, Additions(), may_add)

    def place_one(unit: Document, base: Path) -> str:
        return _place_object(unit, base, result, work)

    parts = []
    for piece, found_units in pieces:
        changed = _change(piece, found_units, place_one)
        parts.append(in_front(changed, work.additions.take()))
    result.text = bom + "".join(parts)
    return result


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """A file cut at the markers between its documents, each piece with how many lines stand above it.

    So an edit costs what its document costs, however long the file is. A compiled pipeline is two documents that belong together
    and stay so. A directive belongs to the document behind it: such a file stays whole.
    """
    if _DIRECTIVE.search(text):
        yield 0, text
        return
    starts = [0, *(found.start() for found in _MARKER.finditer(text) if found.start()), len(text)]
    pieces = [text[start:end] for start, end in pairwise(starts)]
    above = 0
    while pieces:
        length = _length(pieces)
        piece = "".join(pieces[:length])
        del pieces[:length]
        yield above, piece
        above += piece.count("\n")


def _length(pieces: Sequence[str]) -> int:
    """How many pieces from the first one on belong together: platforms are the next document that has anything in it."""
    if _PIPELINE in pieces[0]:
        for number, piece in enumerate(pieces[1:], 2):
            if "platforms" in piece:
                return number
            if any(line and not line.startswith(("#", "---")) for line in map(str.strip, piece.splitlines())):
                break
    return 1


def _change(
    piece: str, found: Sequence[Document], change: Callable[[Document, Path], str], *, last_first: bool = False
) -> str:
    """Change the objects of a piece one after another, each in the text that the one before left."""
    if len(found) > 1:
        return _each(piece, found, change, last_first=last_first)
    for unit in found:
        bases = list(_objects(unit))
        now = unit
        for number, base in enumerate(reversed(bases) if last_first else bases):
            now = now if number == 0 else _only(piece, unit.file, unit.above)
            piece = change(now, base)
    return piece


def _each(
    text: str, found: Sequence[Document], change: Callable[[Document, Path], str], *, last_first: bool = False
) -> str:
    """Change the documents of a text that cannot be cut, each in its own part of it."""
    parts, position, line = [], 0, 0
    for unit in found:
        start = unit.start
        line_start = text.rfind("\n", 0, start) + 1
        if not text[line_start:start].strip():
            start = line_start  # the first key's indentation belongs to the document
        part = text[start : unit.end]
        line += text.count("\n", position, start)
        own = list(units(parse(part, unit.file, unit.above + line)))
        parts += [text[position:start], _change(part, own, change, last_first=last_first)]
        line += part.count("\n")
        position = unit.end
    return "".join([*parts, text[position:]])


def _only(chunk: str, file: str, first_line: int) -> Document:
    """The one unit of a piece of the text."""
    return next(units(parse(chunk, file, first_line)))


@dataclass(frozen=True, slots=True)
class _Work:
    config: Config
    choices: Choices
    references: References
    options: Options
    outside: Outside | None
    additions: Additions
    may_add: bool


def _place_object(document: Document, base: Path, result: Placement, work: _Work) -> str:
    api_version, kind = _kind_of(document, base)
    place = find_kind(api_version, kind) or _by_path(document, base, work.options)
    if place is None:
        _pass_through(document, base, result, api_version, kind)
        return document.text
    editor = Editor(document)
    at = _record_of(document, base)
    if at[0] == len(editor.data):
        editor.append()  # the platform document that is missing
    reserve(editor, at)
    reserved = editor.changes
    references = work.references
    ctx = Context(
        editor,
        work.config,
        work.choices,
        references.find,
        work.options,
        base,
        findings=result.findings,
        roles=result.roles,
        find_all=references.find_all,
        is_input=references.is_input,
        add=work.additions.add if work.may_add else None,
    )
    check(ctx, ctx.at("metadata"), METADATA)
    place(ctx)
    if editor.changes == reserved:
        return document.text  # nothing to add, so nothing to record
    return placed_text(editor, at, None if isinstance(document, Pair) else MAX_RECORD, work.outside)


def _by_path(document: Document, base: Path, options: Options) -> Place | None:
    """How an object of a kind that is not known is placed where the user says its pods are; ``None`` where it has none there."""
    paths = [path for path in options.pod_paths if document.get((*base, *path, "containers")) is not MISSING]
    if not paths:
        return None

    def place(ctx: Context) -> None:
        for path in paths:
            place_at(ctx, path)

    return place


def _kind_of(document: Document, base: Path) -> tuple[str, str]:
    if isinstance(document, Pair):
        return KIND
    return str(document.get((*base, "apiVersion"), "")), str(document.get((*base, "kind"), ""))


def _record_of(document: Document, base: Path) -> Path:
    """Where the record of an object stands."""
    return AT if isinstance(document, Pair) else (*base, "metadata", "annotations", ANNOTATION)


def _pass_through(document: Document, base: Path, result: Placement, api_version: str, kind: str) -> None:
    if not kind:
        return
    name = name_of(document.get((*base, "metadata"), {}))
    text = f"{kind} {name} ({api_version}): no kind that is placed; it passes through untouched"
    result.findings.append(Finding(Level.NOTE, document.file, document.line((*base, "kind")), (*base, "kind"), text))


def _objects(document: Document) -> Iterator[Path]:
    """Where the objects of a document stand: itself, or the items of a ``List``."""
    if isinstance(document, Pair):
        yield ()
        return
    kind = document.get(("kind",), None)
    items = document.get(("items",), MISSING) if isinstance(kind, str) and kind.endswith("List") else MISSING
    if isinstance(items, Sequence):
        for index in range(len(items)):
            yield ("items", index)
    elif isinstance(document.get((), None), Mapping):
        yield ()


@no_garbage_collection()
def unplace_text(text: str, file: str, outside: Outside | None = None) -> Placement:
    """Take out of a file what was placed; the same bytes where nobody touched it since, else an equal document, and said.

    ``outside`` has the records that were too large for an annotation. Raises :class:`ManifestError` where one is missing.
    """
    result = Placement(text)
    bom, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    if not _may_be_placed(body):
        return result

    def unplace_one(unit: Document, base: Path) -> str:
        return _unplace_object(unit, base, result, outside)

    parts: list[str] = []
    behind_added = False
    for above, piece in _pieces(body):
        text = piece
        if _may_be_placed(piece):
            found = list(units(parse(piece, file, above)))
            if len(found) == 1 and _goes(found[0], (), result):
                behind_added |= not parts and not piece.startswith("---")
                continue
            text = _change(piece, found, unplace_one, last_first=True)
        parts.append(_MARKER_LINE.sub("", text, count=1) if behind_added else text)
        behind_added = False
    result.text = bom + "".join(parts)
    return result


def _goes(document: Document, base: Path, result: Placement) -> bool:
    """Whether an object is one that was added, and goes as a whole."""
    if not is_as_added(document, base):
        return False
    if base or not is_untouched(document):
        _say_anew(document, _record_of(document, base), result)
    return True


def _may_be_placed(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


def _unplace_object(document: Document, base: Path, result: Placement, outside: Outside | None) -> str:
    at = _record_of(document, base)
    if not is_placed(document, at):
        return document.text
    if is_added(document, base):
        return _without_added(document, base, result)
    done = unplaced(document, at, outside)
    line = document.line(at)
    result.findings += [Finding(Level.WARNING, document.file, line, at, left) for left in done.left]
    if not done.exact:
        _say_anew(document, at, result)
    return done.text


def _say_anew(document: Document, at: Path, result: Placement) -> None:
    text = "was written anew by another tool since it was placed: equal now, but not the same bytes"
    result.findings.append(Finding(Level.NOTE, document.file, document.line(at), at, text))


def _without_added(document: Document, base: Path, result: Placement) -> str:
    """The text without an object that was added, which is not alone in it; one that somebody changed since stays, as theirs."""
    if _goes(document, base, result):
        return remove(document, [Removal(base[:-1], (int(base[-1]),))]) if base else ""
    kind, name = document.get((*base, "kind"), ""), name_of(document.get((*base, "metadata"), {}))
    text = f"{kind} {name} was changed since it was added, and is left"
    result.findings.append(Finding(Level.WARNING, document.file, document.line(base), base, text))
    return without_record(document, base)
