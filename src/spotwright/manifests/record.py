"""The record that ``place`` leaves in an object, and the way back.

One annotation holds a version, the digests of the document's text before and after, and for each edit where it stands in the
text and what it put there. While the digest matches, the way back is exact: the same bytes. After another tool has written
the document anew, every edit is looked for by its path: what is still as it was placed is taken out, what somebody changed is
left and named.

The record itself is the first edit (:func:`reserve`), so that further annotations of the same object stand beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.documents import MISSING, Document, Path, parse, show
from spotwright.manifests.edits import Edit, Editor, value_at
from spotwright.manifests.removal import Removal, remove
from spotwright.manifests.splice import Splice, apply, flow, splices

__all__ = ["ANNOTATION", "AT", "MAX_RECORD", "Unplaced", "is_placed", "placed_text", "reserve", "unplaced"]

ANNOTATION = "spotwright.dev/placed"
"""The annotation of every object that was changed."""

AT: Path = ("metadata", "annotations", ANNOTATION)
"""Where the record stands in an object of its own; an item of a list has it below the item."""

MAX_RECORD = 32 * 1024
"""The most bytes a record may have as an annotation."""

VERSION = 1

_TOKEN = "@"  # noqa: S105 (it stands in the record's place until the record is known)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The text of the file without what was placed in one object.

    ``exact``: the bytes of before; ``left`` names what was left because somebody changed it since.
    """

    text: str
    exact: bool
    left: tuple[str, ...] = ()


def is_placed(document: Document, at: Path = AT) -> bool:
    """Whether the object carries a record."""
    return document.get(at) is not MISSING


def reserve(editor: Editor, at: Path = AT) -> None:
    """Make room for the record, before any other edit."""
    editor.add(at, _TOKEN)


def placed_text(editor: Editor, at: Path = AT) -> str:
    """The file's text with the edits of one object in it, and their record, which :func:`reserve` has made room for.

    Raises :class:`ManifestError` where the way back would not give the same bytes, or the record is too large.
    """
    document, pairs = editor.document, splices(editor.document, editor.edits)
    record_edit = editor.edits[0]
    rest = [(edit, change) for edit, change in pairs if edit is not record_edit]
    [record_change] = [change for edit, change in pairs if edit is record_edit]
    entries, after = _entries(document, rest)
    token = flow(_TOKEN)
    prefix = record_change.text.index(token)
    annotations = value_at(editor.data, at[:-1])
    original = document.get(at[:-1])
    record = {
        "v": VERSION,
        "before": _digest(document.text[document.start : document.end]),
        "after": _digest(after),
        "cut": [prefix, len(record_change.text) - prefix - len(token), record_change.old],
        "made": [_kind(document, record_edit), list(record_edit.path)],
        "beside": {key: _value_digest(value) for key, value in _new_keys(annotations, original) if key != at[-1]},
        "edits": entries,
    }
    inside = [_inverse(edit) for edit in editor.edits if edit.kind == "embed"]
    if inside:
        record["inside"] = inside
    written = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    if len(written.encode()) > MAX_RECORD:
        raise document.problem(
            at[:-2], f"the record of {len(rest)} edits is larger than {MAX_RECORD} bytes: split the object"
        )
    whole = Splice(record_change.at, record_change.text.replace(token, flow(written), 1), record_change.old)
    text = apply(document.text, [whole if edit is record_edit else change for edit, change in pairs])
    annotations[at[-1]] = written  # also in the value of the edit that made the mapping, which is the same object
    if record_edit.path == at:
        record_edit.value = written
    _check(editor, text, at)
    return text


def _new_keys(annotations: Any, original: Any) -> Iterator[tuple[str, Any]]:
    known = original if isinstance(original, dict) else {}
    return ((key, value) for key, value in annotations.items() if key not in known)


def unplaced(document: Document, at: Path = AT) -> Unplaced:
    """Take out what was placed in one object. The text is that of the whole file."""
    record = _read(document, at)
    exact = _exactly(document, record, at)
    if exact is not None:
        return Unplaced(exact, exact=True)
    removals, left = [], []
    entries = [entry for entry in record["edits"] if entry[0] != "embed"]  # those are inverted as a whole
    for kind, path, _, _, old, digests in entries:
        found = _removal(document, kind, tuple(path), old, digests)
        if isinstance(found, str):
            left.append(f"{document.file}:{document.line(tuple(path))}: {show(tuple(path))}: {found}")
        else:
            removals.append(found)
    for path, digest, changes in record["inside"]:
        text = document.get(tuple(path), None)
        if isinstance(text, str) and _digest(text) == digest:
            inner = tuple(Splice(at, old, text[at : at + length]) for at, length, old in changes)
            removals.append(Removal(tuple(path), (), apply(text, inner), inner))
        else:
            found = "was changed since it was placed, and is left"
            left.append(f"{document.file}:{document.line(tuple(path))}: {show(tuple(path))}: {found}")
    removals += _record_removals(document, record, at)
    return Unplaced(remove(document, removals), exact=False, left=tuple(left))


def _entries(document: Document, pairs: Sequence[tuple[Edit, Splice]]) -> tuple[list[Any], str]:
    """The record's entries, each with its place in the document's text without the record, and that text."""
    entries = []
    delta = -document.start
    for edit, change in pairs:
        place = [change.at + delta, len(change.text)]
        entries.append([_kind(document, edit), list(edit.path), *place, change.old, _value_digests(edit)])
        delta += len(change.text) - len(change.old)
    text = apply(document.text, [change for _, change in pairs])
    return entries, text[document.start : document.end + delta + document.start]


def _inverse(edit: Edit) -> list[Any]:
    """How a text that is YAML itself becomes what it was: its path, its digest, and each change undone."""
    changes, delta = [], 0
    for change in edit.inner:
        changes.append([change.at + delta, len(change.text), change.old])
        delta += len(change.text) - len(change.old)
    return [list(edit.path), _digest(edit.value), changes]


def _kind(document: Document, edit: Edit) -> str:
    """``fill`` for a key that was null, ``fill-above`` for one in a mapping that was null: nulls have to come back."""
    if edit.kind == "add" and document.get(edit.path) is None:
        return "fill"
    if edit.kind == "add" and document.get(edit.path[:-1]) is None:
        return "fill-above"
    return edit.kind


def _check(editor: Editor, text: str, at: Path) -> None:
    """What was written must read as meant, and come out again to the last byte."""
    document = editor.document
    again = next((found for found in parse(text, document.file) if found.index == document.index), None)
    if again is None or again.get(()) != editor.result():
        raise document.problem((), "cannot be placed: the result would not read as it should")
    back = unplaced(again, at)
    if not back.exact or back.text != document.text:
        raise document.problem((), "cannot be placed: the way back would not give the same bytes")


def _read(document: Document, at: Path) -> dict[str, Any]:
    try:
        record = json.loads(document.get(at))
        newer = record["v"] > VERSION
        read = {key: record[key] for key in ("before", "after", "cut", "made", "beside", "edits")}
        read["inside"] = record.get("inside", [])
    except (TypeError, ValueError, KeyError) as error:
        raise document.problem(at, "is not a record of spotwright; nothing can be taken out") from error
    if newer:
        raise document.problem(at, f"placed by a newer version of spotwright (record {record['v']}): upgrade")
    return read


def _exactly(document: Document, record: dict[str, Any], at: Path) -> str | None:
    """The text of before, where nobody has touched the document since."""
    node = document.node(at)
    if node is None:
        return None
    before, behind, old = record["cut"]
    start, end = node.start_mark.index - before, node.end_mark.index + behind
    cut = Splice(start, old, document.text[start:end])
    text = apply(document.text, [cut])
    begin, stop = document.start, document.end - (len(cut.old) - len(old))
    placed = text[begin:stop]
    if _digest(placed) != record["after"]:
        return None
    parts, position = [], 0
    for _, _, offset, length, replaced, _ in record["edits"]:
        parts += [placed[position:offset], replaced]
        position = offset + length
    original = "".join([*parts, placed[position:]])
    return text[:begin] + original + text[stop:] if _digest(original) == record["before"] else None


def _removal(document: Document, kind: str, path: Path, old: str, digests: list[str]) -> Removal | str:
    """How an edit is taken out of a document that was written anew; a sentence where it must be left."""
    present = document.get(path)
    if present is MISSING:
        return "is not there any more"
    if kind == "extend":
        items = present if isinstance(present, list) else []
        found = [index for index, item in enumerate(items) if _value_digest(item) in digests]
        return (
            Removal(path, tuple(found))
            if len(found) == len(digests)
            else "was changed since it was placed, and is left"
        )
    if _value_digest(present) != digests[0]:
        return "was changed since it was placed, and is left"
    if kind == "replace":
        return Removal(path, (), replacement=_parsed(old, document.file))
    if kind == "fill":
        return Removal(path, (), replacement=None)
    if kind == "fill-above" and len(document.get(path[:-1])) == 1:
        return Removal(path[:-1], (), replacement=None)
    return Removal(path, ())


def _record_removals(document: Document, record: dict[str, Any], at: Path) -> list[Removal]:
    """Take out the record and what was put beside it; the mapping as well where it was made for them alone."""
    annotations = document.get(at[:-1])
    ours = {key for key, digest in record["beside"].items() if _value_digest(annotations.get(key)) == digest} | {at[-1]}
    kind, made = record["made"][0], tuple(record["made"][1])
    if made == at and kind == "add":
        return [Removal((*at[:-1], key), ()) for key in sorted(ours)]
    if annotations.keys() - ours:
        return [Removal((*at[:-1], key), ()) for key in sorted(ours)]
    if kind == "add":
        return [Removal(made, ())]
    return [Removal(made if kind == "fill" else made[:-1], (), replacement=None)]


def _parsed(token: str, file: str) -> Any:
    found = parse(f"x: {token}\n", file)
    return found[0].get(("x",)) if found else None


def _value_digests(edit: Edit) -> list[str]:
    if edit.kind == "embed":
        return []
    if edit.kind == "extend":
        return [_value_digest(item) for item in edit.value]
    return [_value_digest(edit.value)]


def _value_digest(value: Any) -> str:
    return _digest(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))[:8]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
