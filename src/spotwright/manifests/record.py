"""The record that ``place`` leaves in an object, and the way back.

One annotation holds a version, the digests of the document's text before and after, and for each edit where it stands in the
text and what it put there. While the digest matches, the way back is exact: the same bytes. After another tool has written
the document anew, every edit is looked for by its path: what is still as it was placed is taken out, what somebody changed is
left and named.

The record itself is the first edit (:func:`reserve`), so that further annotations of the same object stand beside it. One that
is too large for an annotation is kept outside of the document, and its digest stands there instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from spotwright.manifests.documents import MISSING, Document, Path, parse
from spotwright.manifests.edits import Edit, Editor, Splice, value_at
from spotwright.manifests.nodes import Extent
from spotwright.manifests.reading import read_as
from spotwright.manifests.remembered import remembered
from spotwright.manifests.removal import Removal, remove
from spotwright.manifests.splice import apply, in_brief, inline, splices
from spotwright.model.placed import VERSION, digest, value_digest

__all__ = ["ANNOTATION", "AT", "MAX_RECORD", "Outside", "Unplaced", "is_placed", "placed_text", "reserve", "unplaced"]

ANNOTATION = "spotwright.dev/placed"
"""The annotation of every object that was changed."""

AT: Path = ("metadata", "annotations", ANNOTATION)
"""Where the record stands in an object of its own; an item of a list has it below the item."""

MAX_RECORD = 32 * 1024
"""The most bytes a record may have as an annotation."""

Outside: TypeAlias = MutableMapping[str, str]
"""The records that are too large for an annotation, each as JSON by the digest that stands in the annotation instead."""

_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_digest = remembered(value_digest)
_CHANGED = "was changed since it was placed, and is left"
_GONE = "is not there any more"

_TOKEN = "@"  # noqa: S105 (it stands in the record's place until the record is known)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The text of the file without what was placed in one object.

    ``exact``: the bytes of before; ``left`` names what was left because somebody changed it since, each with its path.
    """

    text: str
    exact: bool
    left: tuple[tuple[Path, str], ...] = ()


def is_placed(document: Document, at: Path = AT) -> bool:
    """Whether the object carries a record."""
    return document.get(at) is not MISSING


def reserve(editor: Editor, at: Path = AT) -> None:
    """Make room for the record, before any other edit."""
    editor.add(at, _TOKEN)


def placed_text(editor: Editor, at: Path = AT, most: int | None = MAX_RECORD, outside: Outside | None = None) -> str:
    """The file's text with the edits of one object in it, and their record, which :func:`reserve` has made room for.

    ``most`` is how many bytes the record may have, ``None`` where nothing limits it; a larger one is put into ``outside``.
    Raises :class:`ManifestError` where the way back would not give the same bytes, or the record is too large and there is
    no ``outside``.
    """
    document, pairs = editor.document, splices(editor.document, editor.edits)
    record_edit = editor.edits[0]
    rest = [(edit, change) for edit, change in pairs if edit is not record_edit]
    [record_change] = [change for edit, change in pairs if edit is record_edit]
    entries, after = _entries(document, rest)
    token = inline(document, _TOKEN)
    prefix = record_change.text.index(token)
    annotations = value_at(editor.data, at[:-1])
    original = document.get(at[:-1])
    record = {
        "v": VERSION,
        "before": digest(document.text[document.start : document.end]),
        "after": digest(after),
        "cut": [prefix, len(record_change.text) - prefix - len(token), record_change.old],
        "made": [_kind(document, record_edit), list(record_edit.path)],
        "beside": {key: value_digest(value) for key, value in _new_keys(annotations, original) if key != at[-1]},
        "edits": entries,
    }
    inside = [_inverse(edit) for edit in editor.edits if edit.kind == "embed"]
    if inside:
        record["inside"] = inside
    parts = [
        [list(path), value_digest(value_at(editor.data, path))]
        for edit in editor.edits
        for path in _parts(document, edit)
    ]
    if parts:
        record["parts"] = parts
    written = _JSON.encode(record)
    if most is not None and len(written.encode()) > most:
        written = _put_outside(document, at, written, record, outside)
    whole = Splice(record_change.at, record_change.text.replace(token, inline(document, written), 1), record_change.old)
    text = apply(document.text, [whole if edit is record_edit else change for edit, change in pairs])
    annotations[at[-1]] = written  # also in the value of the edit that made the mapping, which is the same object
    if record_edit.path == at:
        record_edit.value = written
    _check(editor, [(edit, whole if edit is record_edit else change) for edit, change in pairs], text, at, outside)
    return text


def _put_outside(document: Document, at: Path, written: str, record: Mapping[str, Any], outside: Outside | None) -> str:
    """What stands in the annotation of an object whose record is kept elsewhere."""
    if outside is None:
        text = (
            f"the record of what is placed has {len(written.encode())} bytes, and an annotation may have {MAX_RECORD}: name a "
            "file for it with --record FILE (records= in Python), which unplace will ask for"
        )
        raise document.problem(at[:-2], text)
    known = digest(written)
    outside[known] = written
    short = {"v": VERSION, "before": record["before"], "after": record["after"], "record": known}
    return json.dumps(short, separators=(",", ":"))


def _new_keys(annotations: Any, original: Any) -> Iterator[tuple[str, Any]]:
    known = original if isinstance(original, dict) else {}
    return ((key, value) for key, value in annotations.items() if key not in known)


def unplaced(document: Document, at: Path = AT, outside: Outside | None = None) -> Unplaced:
    """Take out what was placed in one object. The text is that of the whole file.

    Raises :class:`ManifestError` where its record is kept outside and is not in ``outside``.
    """
    record = _read(document, at, document.get(at), outside)
    node = document.node(at)
    stands = None if node is None else Extent(node.start_mark.index, node.end_mark.index)
    exact = stands and _exactly(document.text, Extent(document.start, document.end), stands, record)
    if exact is not None:
        return Unplaced(exact, exact=True)
    record = _moved(record, at)
    removals, left = [], []

    def leave(path: Path, why: str) -> None:
        left.append((path, f"{document.spoken(path)}: {why}"))

    entries = [entry for entry in record["edits"] if entry[5]]  # the others are inverted as a whole, or part by part
    for kind, path, _, _, old, digests in entries:
        found = _removal(document, kind, tuple(path), old, digests)
        if isinstance(found, str):
            leave(tuple(path), found)
        else:
            removals.append(found)
    for path, known, changes in record["inside"]:
        text = document.get(tuple(path), None)
        if isinstance(text, str) and digest(text) == known:
            inner = tuple(Splice(at, old, text[at : at + length]) for at, length, old in changes)
            removals.append(Removal(tuple(path), (), apply(text, inner), inner))
        else:
            leave(tuple(path), _CHANGED)
    own, gone = _record_removals(document, record, at)
    for path, known in record["parts"]:
        present = document.get(tuple(path))
        if value_digest(present) == known:
            gone.add(tuple(path))
        else:
            leave(tuple(path), _GONE if present is MISSING else _CHANGED)
    removals += own
    for top in _wide(record):
        removals += [Removal(path, ()) for path in _emptied(document.get(top, None), top, gone)]
    return Unplaced(remove(document, removals), exact=False, left=tuple(left))


def _entries(document: Document, pairs: Sequence[tuple[Edit, Splice]]) -> tuple[list[Any], str]:
    """The record's entries, each with its place in the document's text without the record, and that text."""
    entries = []
    delta = -document.start
    lengths = {edit.path: len(edit.value) for edit, _ in pairs if edit.kind == "extend"}
    for edit, change in pairs:
        place = [change.at + delta, len(change.text)]
        digests = [] if _parts(document, edit) else _value_digests(edit)
        entries.append([_kind(document, edit), _in_result(edit.path, lengths), *place, change.old, digests])
        delta += len(change.text) - len(change.old)
    text = apply(document.text, [change for _, change in pairs])
    return entries, text[document.start : document.end + delta + document.start]


def _in_result(path: Path, lengths: Mapping[Path, int]) -> list[str | int]:
    """A path as it is in the placed document, where the new items of a list stand before the old ones."""
    steps = enumerate(path)
    return [step + lengths.get(path[:place], 0) if isinstance(step, int) else step for place, step in steps]


def _parts(document: Document, edit: Edit) -> list[Path]:
    return document.parts(edit.path, edit.value) if edit.kind in ("add", "append") else []


def _wide(record: Mapping[str, Any]) -> list[Path]:
    """Where the parts stand: in what was added with them, one by one to be taken out."""
    made = [tuple(record["made"][1])] if record["made"][0] == "append" else []
    return made + [tuple(path) for kind, path, _, _, _, digests in record["edits"] if kind == "add" and not digests]


def _emptied(value: Any, path: Path, gone: AbstractSet[Path]) -> Iterator[Path]:
    """The highest paths below which nothing is left when all that is in ``gone`` goes."""
    if _is_emptied(value, path, gone):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _emptied(item, (*path, key), gone)


def _is_emptied(value: Any, path: Path, gone: AbstractSet[Path]) -> bool:
    if path in gone:
        return True
    return isinstance(value, dict) and all(_is_emptied(item, (*path, key), gone) for key, item in value.items())


def _inverse(edit: Edit) -> list[Any]:
    """How a text that is YAML itself becomes what it was: its path, its digest, and each change undone."""
    changes, delta = [], 0
    for change in edit.inner:
        changes.append([change.at + delta, len(change.text), change.old])
        delta += len(change.text) - len(change.old)
    return [list(edit.path), digest(edit.value), changes]


def _kind(document: Document, edit: Edit) -> str:
    """``fill`` for a key that was null, because nulls have to come back."""
    if edit.kind == "add" and document.get(edit.path) is None:
        return "fill"
    return edit.kind


def _check(editor: Editor, pairs: Sequence[tuple[Edit, Splice]], text: str, at: Path, outside: Outside | None) -> None:
    """What was written must read as meant, and come out again to the last byte.

    How a value is written does not depend on the document (see the tests of :func:`~spotwright.manifests.splice.block`), where it
    stands does: so the document is read with a number in the place of every value that has lines of its own.
    """
    document, record = editor.document, editor.edits[0]
    brief = [change if edit is record else in_brief(change) for edit, change in pairs]
    expected = editor.result([edit for edit, change in pairs if change.short and edit is not record])
    whole, found = _extents(document, apply(document.text, brief), expected, at)
    longer = [len(change.text) - len(short.text) for (_, change), short in zip(pairs, brief, strict=True)]
    before = sum(longer[: next(index for index, (edit, _) in enumerate(pairs) if edit is record)])
    stood = Extent(found.start + before, found.end + before)
    told = _read(document, at, value_at(expected, at), outside)
    if _exactly(text, Extent(whole.start, whole.end + sum(longer)), stood, told) != document.text:
        raise document.problem((), "cannot be placed: the way back would not give the same bytes")


def _extents(document: Document, text: str, expected: Any, at: Path) -> tuple[Extent, Extent]:
    """Where the document and the value at ``at`` stand in a text that must read as ``expected``."""
    reading = read_as(text, document.index, *document.separately(expected, at))
    if reading is not None:
        return reading
    again = document.again(text)
    node = again.node(at) if again is not None and again.get(()) == expected else None
    if again is None or node is None:
        raise document.problem((), "cannot be placed: the result would not read as it should")
    return Extent(again.start, again.end), Extent(node.start_mark.index, node.end_mark.index)


def _read(document: Document, at: Path, written: Any, outside: Outside | None) -> dict[str, Any]:
    try:
        record = json.loads(written)
        if "record" in record:
            record = json.loads(_from_outside(document, at, record["record"], outside))
        newer = record["v"] > VERSION
        read = {key: record[key] for key in ("before", "after", "cut", "made", "beside", "edits")}
        read |= {key: record.get(key, []) for key in ("inside", "parts")}
    except (TypeError, ValueError, KeyError) as error:
        text = "is not a record of spotwright, so nothing can be taken out; remove the annotation"
        raise document.problem(at, text) from error
    if newer:
        raise document.problem(at, f"placed by a newer version of spotwright (record {record['v']}): upgrade")
    return read


def _from_outside(document: Document, at: Path, known: str, outside: Outside | None) -> str:
    """A record that is kept elsewhere, which must be the very one that was put there."""
    written = None if outside is None else outside.get(known)
    if written is None or digest(written) != known:
        text = f"its record ({known}) is in a file of its own: pass the one that place was given, with --record FILE"
        raise document.problem(at, f"{text} (records= in Python)")
    return written


def _moved(record: dict[str, Any], at: Path) -> dict[str, Any]:
    """The record with paths that begin where the object is now: a tool may have made it an item of a list, or one of its own."""
    made = record["made"][1]
    if "metadata" not in made:
        return record
    old, base = made.index("metadata"), list(at[:-3])
    if made[:old] == base:
        return record
    edits = [[kind, base + path[old:], *rest] for kind, path, *rest in record["edits"]]
    inside = [[base + path[old:], *rest] for path, *rest in record["inside"]]
    return {**record, "made": [record["made"][0], base + made[old:]], "edits": edits, "inside": inside}


def _exactly(text: str, whole: Extent, found: Extent, record: Mapping[str, Any]) -> str | None:
    """The text of before, where nobody has touched the document since. ``found`` is where its record stands."""
    before, behind, old = record["cut"]
    start, end = found.start - before, found.end + behind
    begin, stop = whole.start, whole.end - (end - start - len(old))
    text = f"{text[:start]}{old}{text[end:]}"
    placed = text[begin:stop]
    if digest(placed) != record["after"]:
        return None
    parts, position = [], 0
    for _, _, offset, length, replaced, _ in record["edits"]:
        parts += [placed[position:offset], replaced]
        position = offset + length
    original = "".join([*parts, placed[position:]])
    return text[:begin] + original + text[stop:] if digest(original) == record["before"] else None


def _removal(document: Document, kind: str, path: Path, old: str, digests: list[str]) -> Removal | str:
    """How an edit is taken out of a document that was written anew; a sentence where it must be left."""
    present = document.get(path)
    if present is MISSING:
        return _GONE
    if kind == "extend":
        items = present if isinstance(present, list) else []
        found = [index for index, item in enumerate(items) if value_digest(item) in digests]
        return Removal(path, tuple(found)) if len(found) == len(digests) else _CHANGED
    if value_digest(present) != digests[0]:
        return _CHANGED
    if kind == "replace":
        return Removal(path, (), replacement=_parsed(old, document.file))
    if kind == "fill":
        return Removal(path, (), replacement=None)
    return Removal(path, ())


def _record_removals(document: Document, record: dict[str, Any], at: Path) -> tuple[list[Removal], set[Path]]:
    """Take out the record and what was put beside it; the mapping as well where it was made for them alone.

    Where they came in a document of their own, what goes of it is given as paths, because more may stand beside them.
    """
    annotations = document.get(at[:-1])
    ours = {key for key, known in record["beside"].items() if value_digest(annotations.get(key)) == known} | {at[-1]}
    kind, made = record["made"][0], tuple(record["made"][1])
    if kind == "append":
        return [], {(*at[:-1], key) for key in ours}
    if (made == at and kind == "add") or annotations.keys() - ours:
        return [Removal((*at[:-1], key), ()) for key in sorted(ours)], set()
    if kind == "add":
        return [Removal(made, ())], set()
    return [Removal(made, (), replacement=None)], set()


def _parsed(token: str, file: str) -> Any:
    found = parse(f"x: {token}\n", file)
    return found[0].get(("x",)) if found else None


def _value_digests(edit: Edit) -> list[str]:
    if edit.kind == "embed":
        return []
    if edit.kind == "extend":
        return [_digest(item) for item in edit.value]
    return [_digest(edit.value)]
