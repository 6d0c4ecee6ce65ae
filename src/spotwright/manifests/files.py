"""Whole files placed, taken apart and explained: text in, text out, every object by its kind.

Objects are placed one after another in the text that the one before left, so that every edit is made at marks that are true.
A file comes out whole or not at all: whatever is wrong with one object, nothing of the file is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spotwright.config import Config
from spotwright.manifests.added import Additions, in_front, is_added, is_as_added, is_untouched, without_record
from spotwright.manifests.choices import Choices
from spotwright.manifests.context import Context, Finding, Level, Options, RoleReport, name_of
from spotwright.manifests.cutting import change, directives, pieces
from spotwright.manifests.documents import MISSING, Document, Path, no_garbage_collection, parse
from spotwright.manifests.edits import Editor
from spotwright.manifests.kinds import Place, find_kind
from spotwright.manifests.kinds.unknown import passed_through, place_at, say_version
from spotwright.manifests.pairs import AT as PAIR_AT
from spotwright.manifests.pairs import KIND, Pair, units
from spotwright.manifests.record import ANNOTATION, AT, MAX_RECORD, Outside, is_placed, placed_text, reserve, unplaced
from spotwright.manifests.references import References, may_be_referred_to
from spotwright.manifests.shapes import METADATA, check

__all__ = ["Placement", "place_text", "unplace_text"]

_MARKER_LINE = re.compile(r"\A---\r?\n")
_JSON = re.compile(r'\s*\{\s*"')
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
    cut = list(pieces(body))
    ahead = {above: list(units(parse(piece, file, above))) for above, piece in cut if may_be_referred_to(piece)}
    given = references or References()
    known = References([unit for found_units in ahead.values() for unit in found_units], given.inputs | {file}, given)
    options = options or Options()
    may_add = options.may_add and not _is_json(file, body) and not directives(body)
    work = _Work(config, Choices(config.pools), known, options, outside, Additions(), may_add)

    parts = []
    for above, piece in cut:  # what nobody can refer to is parsed in its turn and forgotten, so that memory stays small
        found_units = ahead[above] if above in ahead else list(units(parse(piece, file, above)))
        changed = change(piece, found_units, lambda unit: _place_object(unit, result, work)) or ""
        parts.append(in_front(changed, work.additions.take()))
    result.text = bom + "".join(parts)
    return result


def _is_json(file: str, body: str) -> bool:
    """Whether a file is read as JSON by others, who would not understand a second document."""
    return file.endswith(".json") or _JSON.match(body) is not None


@dataclass(frozen=True, slots=True)
class _Work:
    config: Config
    choices: Choices
    references: References
    options: Options
    outside: Outside | None
    additions: Additions
    may_add: bool


def _place_object(document: Document, result: Placement, work: _Work) -> str:
    api_version, kind = _kind_of(document)
    place = find_kind(api_version, kind) or _by_path(document, work.options)
    if place is None:
        result.findings += passed_through(document, api_version, kind)
        return document.text
    editor = Editor(document)
    at = _record_of(document)
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
        findings=result.findings,
        roles=result.roles,
        find_all=references.find_all,
        is_input=references.is_input,
        add=work.additions.add if work.may_add else None,
    )
    check(ctx, ctx.at("metadata"), METADATA)
    say_version(ctx, api_version, kind)
    place(ctx)
    if editor.changes == reserved:
        return document.text  # nothing to add, so nothing to record
    return placed_text(editor, at, None if isinstance(document, Pair) else MAX_RECORD, work.outside)


def _by_path(document: Document, options: Options) -> Place | None:
    """How an object of a kind that is not known is placed where the user says its pods are; ``None`` where it has none there."""
    paths = [path for path in options.pod_paths if document.get((*path, "containers")) is not MISSING]
    if not paths:
        return None

    def place(ctx: Context) -> None:
        for path in paths:
            place_at(ctx, path)

    return place


def _kind_of(document: Document) -> tuple[str, str]:
    if isinstance(document, Pair):
        return KIND
    return str(document.get(("apiVersion",), "")), str(document.get(("kind",), ""))


def _record_of(document: Document) -> Path:
    """Where the record of an object stands."""
    return PAIR_AT if isinstance(document, Pair) else AT


@no_garbage_collection()
def unplace_text(text: str, file: str, outside: Outside | None = None) -> Placement:
    """Take out of a file what was placed; the same bytes where nobody touched it since, else an equal document, and said.

    ``outside`` has the records that were too large for an annotation. Raises :class:`ManifestError` where one is missing.
    """
    result = Placement(text)
    bom, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    if not _may_be_placed(body):
        return result

    parts: list[str] = []
    behind_added = False
    for above, piece in pieces(body):
        left: str | None = piece
        if _may_be_placed(piece):
            found = list(units(parse(piece, file, above)))
            left = change(piece, found, lambda unit: _unplace_object(unit, result, outside))
        if left is None:
            behind_added |= not parts and not piece.startswith("---")
            continue
        parts.append(_MARKER_LINE.sub("", left, count=1) if behind_added else left)
        behind_added = False
    result.text = bom + "".join(parts)
    return result


def _may_be_placed(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


def _unplace_object(document: Document, result: Placement, outside: Outside | None) -> str | None:
    at = _record_of(document)
    if not is_placed(document, at):
        return document.text
    if is_added(document):
        return _without_added(document, result)
    done = unplaced(document, at, outside)
    for path, text in done.left:
        result.findings.append(Finding(Level.WARNING, document.file, document.line(path), path, text))
    if not done.exact:
        _say_anew(document, at, result)
    return done.text


def _say_anew(document: Document, at: Path, result: Placement) -> None:
    text = (
        "was changed, or written anew by another tool, since it was placed: what was placed is out again, but the text is not "
        "that of before"
    )
    result.findings.append(Finding(Level.NOTE, document.file, document.line(at), at, text))


def _without_added(document: Document, result: Placement) -> str | None:
    """Nothing of an object that was added; one that somebody changed since stays, as theirs."""
    if is_as_added(document):
        if not is_untouched(document):
            _say_anew(document, AT, result)
        return None
    kind, name = document.get(("kind",), ""), name_of(document.get(("metadata",), {}))
    text = f"{kind} {name} was changed since it was added, and is left"
    result.findings.append(Finding(Level.WARNING, document.file, document.line(()), (), text))
    return without_record(document)
