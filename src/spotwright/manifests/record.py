"""The record that ``place`` leaves in an object, its format, and its use by ``unplace``.

One annotation holds a version, the digests of the document's text before and after, and for each edit its position, its length,
the text that it replaced, its path and the digests of its values. A written-out alias is an edit without digests. While the
digest of the text matches, ``unplace`` restores the same bytes. After another tool has reformatted the document, each edit is
looked up by its path: unchanged values are removed, changed ones stay and are reported.

The record is the first edit (:func:`reserve`), so that the object's further annotations follow it. A record that is too large
for an annotation is kept outside the document, and the annotation has its digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from spotwright.kfp.placed_record import VERSION, digest, value_digest
from spotwright.kinds.kind import kind_of
from spotwright.placing.documents import MISSING, Document, Path, parse
from spotwright.placing.patch import Edit, Editor, Splice, is_same, value_at
from spotwright.placing.yaml_writer import Removal, apply, in_brief, inline, is_quoted, remove, splices
from spotwright.yaml_composer import Extent

__all__ = [
    "ANNOTATION",
    "AT",
    "FIXED_AT",
    "MAX_RECORD",
    "TRIAL",
    "Outside",
    "Unplaced",
    "annotations_at",
    "is_placed",
    "placed_text",
    "read_record",
    "reserve",
    "restored",
    "unplaced",
]


ANNOTATION = "spotwright.dev/placed"
"""The annotation of every object that was changed."""

AT: Path = ("metadata", "annotations", ANNOTATION)
"""The path of the record in an object; in an item of a list it begins at the item."""

TRIAL: Path = ("spec", "trialTemplate", "trialSpec")
"""The path of the template for each trial of an Experiment."""


def annotations_at(data: Any) -> Path:
    """The path of added annotations: in an object's metadata, for a Katib Experiment in its trialSpec's.

    Katib copies the labels and annotations of an Experiment to its Suggestion, and from there to the Deployment and the pods of
    the suggestion service, which must not have our fields (katib v0.19.0, ``experiment/suggestion/suggestion.go`` and
    ``suggestion/composer/composer.go`` of ``pkg/controller.v1beta1``).
    """
    record = kind_of(str(value_at(data, ("apiVersion",), "")), str(value_at(data, ("kind",))))
    return (*TRIAL, *AT[:-1]) if record.makes_trials and isinstance(value_at(data, TRIAL), dict) else AT[:-1]


FIXED_AT: Path = ("metadata", "annotations", "spotwright.dev/fixed")
"""The path of the record of ``lint --fix``, which ``place`` leaves alone and ``unplace`` undoes."""

MAX_RECORD = 32 * 1024
"""The largest record, in bytes, that is kept in an annotation."""

Outside: TypeAlias = MutableMapping[str, str]
"""The records that are too large for an annotation, as JSON, by the digest that the annotation holds."""


def is_placed(document: Document, at: Path = AT) -> bool:
    """Whether the object has a record."""
    return document.get(at) is not MISSING


def read_record(document: Document, at: Path, annotation: Any, outside: Outside | None) -> dict[str, Any]:
    """The record in an annotation. Raises :class:`ManifestError` for another value, or a record that ``outside`` lacks."""
    no_record = "is not a record of spotwright, so the object cannot be unplaced; remove the annotation"
    try:
        stored = json.loads(annotation)
        if "record" in stored:
            stored = json.loads(_from_outside(document, at, stored["record"], outside))
        is_newer = stored["v"] > VERSION
        record = {"inside": [], "parts": [], **stored}
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise document.problem(at, no_record) from error
    if is_newer:
        raise document.problem(at, f"placed by a newer version of spotwright (record {stored['v']}): upgrade")
    if not all(_fits(record.get(key), shape) for key, shape in _SHAPES.items()):
        raise document.problem(at, no_record)
    return record


_PATH = [str | int]
_SHAPES: Mapping[str, Any] = {
    "before": str,
    "after": str,
    "cut": (int, int, str),
    "made": (str, _PATH),
    "beside": dict,
    "edits": [(str, _PATH, int, int, str, [str])],
    "inside": [(_PATH, str, [(int, int, str)])],
    "parts": [(_PATH, str)],
}
"""The fields of a record: a tuple is a list of fixed length, a list one of any length; a path is not empty."""


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(_fits, value, shape))
    if isinstance(shape, list):
        return (
            isinstance(value, list)
            and (shape is not _PATH or value != [])
            and all(_fits(one, shape[0]) for one in value)
        )
    return isinstance(value, shape)


def _from_outside(document: Document, at: Path, key: str, outside: Outside | None) -> str:
    """The record with a digest from ``outside``; it is checked against the digest."""
    record = None if outside is None else outside.get(key)
    if record is None or digest(record) != key:
        text = f"its record ({key}) is in a separate file: name the file that place wrote, with --record FILE"
        raise document.problem(at, f"{text} (records= in Python)")
    return record


def restored(text: str, whole: Extent, annotation: Extent, record: Mapping[str, Any]) -> str | None:
    """The file's text with the original bytes of one object; ``None`` if the object has changed since it was placed.

    ``whole`` is the extent of the object in ``text``, ``annotation`` its record's.
    """
    before, behind, old = record["cut"]
    start, end = annotation.start - before, annotation.end + behind
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


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_UNREADABLE = "cannot be placed: the edited text would not have the expected values"
_TOKEN = "@"  # noqa: S105 (a placeholder until the record is known)


def reserve(editor: Editor, at: Path = AT) -> None:
    """Add a placeholder for the record, before any other edit."""
    editor.add(at, _TOKEN)


def placed_text(editor: Editor, at: Path = AT, limit: int | None = MAX_RECORD, outside: Outside | None = None) -> str:
    """The file's text with the edits of one object, and their record in place of :func:`reserve`'s placeholder.

    ``limit`` is the largest record in bytes, ``None`` for no limit; a larger one is put into ``outside``. Raises
    :class:`ManifestError` if the text would not have the expected values or ``unplace`` would not restore the same bytes, and if
    the record is too large without ``outside``.
    """
    document, pairs = editor.document, splices(editor.document, editor.final_edits())
    record_edit = editor.edits[0]
    holder, record_change = _holder(pairs, record_edit)
    parts = document.removable_parts({edit.path: edit.value for edit in editor.edits if edit.kind in ("add", "append")})
    filled = document.existing(edit.path for edit in editor.edits if edit.kind == "add")  # only a null may be there
    entries, after = _entries(document, [pair for pair in pairs if pair[0] is not holder], parts, filled)
    token, lead = inline(document, _TOKEN), f"{inline(document, at[-1])}: "
    prefix = record_change.text.index(lead + token) + len(lead)
    annotations = value_at(editor.data, at[:-1])
    original = document.get(at[:-1])
    record = {
        "v": VERSION,
        "before": digest(document.text[document.start : document.end]),
        "after": digest(after),
        "cut": [prefix, len(record_change.text) - prefix - len(token), record_change.old],
        "made": [_kind(record_edit, filled), list(record_edit.path)],
        "beside": {key: value_digest(value) for key, value in _new_keys(annotations, original) if key != at[-1]},
        "edits": entries,
    }
    nested = [_inverse(edit) for edit in editor.edits if edit.kind == "embed"]
    if nested:
        record["inside"] = nested
    if parts:
        record["parts"] = [
            [list(path), value_digest(value_at(editor.data, path))] for paths in parts.values() for path in paths
        ]
    written = _JSON.encode(record)
    if limit is not None and len(written.encode()) > limit:
        written = _put_outside(document, at, written, record, outside)
    scalar = inline(document, written)
    before, behind = record_change.text[:prefix], record_change.text[prefix + len(token) :]
    whole = record_change._replace(text=f"{before}{scalar}{behind}")
    text = apply(document.text, [whole if edit is holder else change for edit, change in pairs])
    if not is_quoted(scalar, written):
        raise document.problem((), _UNREADABLE)
    _check(editor, pairs, text, record, at, len(scalar) - len(token))
    return text


def _holder(pairs: Sequence[tuple[Edit, Splice]], record_edit: Edit) -> tuple[Edit, Splice]:
    """The change that adds the record: its own edit, or the alias around it that is written out."""
    path = record_edit.path
    written = (pair for pair in pairs if pair[0].kind == "write" and path[: len(pair[0].path)] == pair[0].path)
    return next(written, None) or next(pair for pair in pairs if pair[0] is record_edit)


def _put_outside(document: Document, at: Path, written: str, record: Mapping[str, Any], outside: Outside | None) -> str:
    """Put a record into ``outside`` and return the annotation's value."""
    if outside is None:
        text = (
            f"the record of the changes has {len(written.encode())} bytes, and an annotation may have {MAX_RECORD}: name a file "
            "for it with --record FILE (records= in Python); unplace needs that file too"
        )
        raise document.problem(at[:-2], text)
    key = digest(written)
    outside[key] = written
    short = {"v": VERSION, "before": record["before"], "after": record["after"], "record": key}
    return json.dumps(short, separators=(",", ":"))


def _new_keys(annotations: Any, original: Any) -> Iterator[tuple[str, Any]]:
    old = original if isinstance(original, dict) else {}
    return ((key, value) for key, value in annotations.items() if key not in old)


def _entries(
    document: Document,
    pairs: Sequence[tuple[Edit, Splice]],
    parts: Mapping[Path, Sequence[Path]],
    filled: AbstractSet[Path],
) -> tuple[list[Any], str]:
    """The record's entries, with positions in the edited text without the record, and that text."""
    entries = []
    delta = -document.start
    lengths = {edit.path: len(edit.value) for edit, _ in pairs if edit.kind == "extend"}
    for edit, change in pairs:
        extent = [change.at + delta, len(change.text)]
        digests = [] if edit.path in parts else _value_digests(edit)
        if edit.kind == "replace" and not change.old:  # made with another edit, which keeps the old text
            digests.append(inline(document, document.get(edit.path)))
        entries.append([_kind(edit, filled), _in_result(edit.path, lengths), *extent, change.old, digests])
        delta += len(change.text) - len(change.old)
    text = apply(document.text, [change for _, change in pairs])
    return entries, text[document.start : document.end + delta + document.start]


def _in_result(path: Path, lengths: Mapping[Path, int]) -> list[str | int]:
    """A path in the placed document, where new items of a list precede the old ones."""
    if not lengths:
        return list(path)
    steps = enumerate(path)
    return [step + lengths.get(path[:depth], 0) if isinstance(step, int) else step for depth, step in steps]


def _inverse(edit: Edit) -> list[Any]:
    """How to restore a string of YAML: its path, its digest, and the reverse of each change."""
    changes, delta = [], 0
    for change in edit.inner:
        changes.append([change.at + delta, len(change.text), change.old])
        delta += len(change.text) - len(change.old)
    return [list(edit.path), digest(edit.value), changes]


def _kind(edit: Edit, filled: AbstractSet[Path]) -> str:
    """The kind of an edit in the record: ``fill`` for a null key, because the null has to be restored."""
    return "fill" if edit.kind == "add" and edit.path in filled else edit.kind


def _check(
    editor: Editor,
    pairs: Sequence[tuple[Edit, Splice]],
    text: str,
    record: Mapping[str, Any],
    at: Path,
    longer_record: int,
) -> None:
    """Raise :class:`ManifestError` unless ``text`` reads as the edits mean it, and ``record`` gives the old bytes back.

    How a value is written does not depend on the document (see the tests of
    :func:`~spotwright.placing.yaml_writer.block`), its position does: so the document is read with a number instead of
    every value that has its own lines, and with the placeholder instead of the record, which is ``longer_record`` characters
    longer.
    """
    document, record_edit = editor.document, editor.edits[0]
    brief = [(edit, change if edit is record_edit else in_brief(change)) for edit, change in pairs]
    short_text = apply(document.text, [change for _, change in brief])
    whole, token = _extents(editor, short_text, pairs, at)
    longer = [len(change.text) - len(short.text) for (_, change), (_, short) in zip(pairs, brief, strict=True)]
    before = sum(longer[: next(index for index, (edit, _) in enumerate(pairs) if edit is record_edit)])
    extent = Extent(token.start + before, token.end + before + longer_record)
    if restored(text, Extent(whole.start, whole.end + sum(longer) + longer_record), extent, record) != document.text:
        raise document.problem((), "cannot be placed: unplace would not restore the same bytes")


def _extents(editor: Editor, text: str, pairs: Sequence[tuple[Edit, Splice]], at: Path) -> tuple[Extent, Extent]:
    """The extents of the document and its record in the edited text, which must have the expected values."""
    document = editor.document
    current = document.reparse(text)
    expected = editor.result([edit for edit, change in pairs if change.short and edit is not editor.edits[0]])
    node = current.node(at) if current is not None and is_same(current.get(()), expected) else None
    if current is None or node is None:
        raise document.problem((), _UNREADABLE)
    return Extent(current.start, current.end), Extent(node.start_mark.index, node.end_mark.index)


def _value_digests(edit: Edit) -> list[str]:
    if edit.kind in ("embed", "write"):
        return []
    if edit.kind == "extend":
        return [value_digest(item) for item in edit.value]
    return [value_digest(edit.value)]


_CHANGED = "was changed since it was placed, so it stays"
_MISSING = "is missing: it was removed since it was placed"


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The text of the file after one object was unplaced.

    ``exact``: the object has its original bytes. ``left`` are the values that stay because they have changed, each with its
    path and the reason.
    """

    text: str
    exact: bool
    left: tuple[tuple[Path, str], ...] = ()


def unplaced(document: Document, at: Path = AT, outside: Outside | None = None) -> Unplaced:
    """Remove everything that was placed in one object.

    Raises :class:`ManifestError` if its record is kept outside and ``outside`` lacks it.
    """
    record = read_record(document, at, document.get(at), outside)
    node = document.node(at)
    extent = None if node is None else Extent(node.start_mark.index, node.end_mark.index)
    original = extent and restored(document.text, Extent(document.start, document.end), extent, record)
    if original is not None:
        return Unplaced(original, exact=True)
    record = _rebased(record, at)
    removals, left = [], []

    def leave(path: Path, reason: str) -> None:
        left.append((path, f"{document.show(path)}: {reason}"))

    entries = [entry for entry in record["edits"] if entry[5]]  # the others are undone whole, or part by part
    for kind, path, _, _, old, digests in entries:
        removal = _removal(document, kind, tuple(path), old, digests)
        if isinstance(removal, str):
            leave(tuple(path), removal)
        else:
            removals.append(removal)
    for path, expected, changes in record["inside"]:
        text = document.get(tuple(path), None)
        if isinstance(text, str) and digest(text) == expected:
            inner = tuple(Splice(at, old, text[at : at + length]) for at, length, old in changes)
            removals.append(Removal(tuple(path), (), apply(text, inner), inner))
        else:
            leave(tuple(path), _CHANGED)
    own, removed = _record_removals(document, record, at)
    for path, expected in record["parts"]:
        present = document.get(tuple(path))
        if value_digest(present) == expected:
            removed.add(tuple(path))
        else:
            leave(tuple(path), _MISSING if present is MISSING else _CHANGED)
    removals += own
    for top in _wide(record):
        removals += [Removal(path, ()) for path in _emptied(document.get(top, None), top, removed)]
    return Unplaced(remove(document, removals), exact=False, left=tuple(left))


def _wide(record: Mapping[str, Any]) -> list[Path]:
    """The paths of added values that are removed part by part."""
    made = [tuple(record["made"][1])] if record["made"][0] == "append" else []
    return made + [tuple(path) for kind, path, _, _, _, digests in record["edits"] if kind == "add" and not digests]


def _emptied(value: Any, path: Path, removed: AbstractSet[Path]) -> Iterator[Path]:
    """The highest paths that are empty without the ``removed`` ones."""
    if _is_emptied(value, path, removed):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _emptied(item, (*path, key), removed)


def _is_emptied(value: Any, path: Path, removed: AbstractSet[Path]) -> bool:
    if path in removed:
        return True
    return isinstance(value, dict) and all(_is_emptied(item, (*path, key), removed) for key, item in value.items())


def _rebased(record: dict[str, Any], at: Path) -> dict[str, Any]:
    """The record with paths from the object, which a tool may have moved into a list or out of one."""
    made = record["made"][1]
    if "metadata" not in made:
        return record
    old, base = made.index("metadata"), list(at[:-3])
    if made[:old] == base:
        return record
    edits = [[kind, base + path[old:], *rest] for kind, path, *rest in record["edits"]]
    nested = [[base + path[old:], *rest] for path, *rest in record["inside"]]
    return {**record, "made": [record["made"][0], base + made[old:]], "edits": edits, "inside": nested}


def _removal(document: Document, kind: str, path: Path, old: str, digests: list[str]) -> Removal | str:
    """How to remove an edit from a reformatted document; the reason if it must stay."""
    present = document.get(path)
    if present is MISSING:
        return _MISSING
    if kind == "extend":
        items = present if isinstance(present, list) else []
        indexes = tuple(index for index, item in enumerate(items) if value_digest(item) in digests)
        return Removal(path, indexes) if len(indexes) == len(digests) else _CHANGED
    if value_digest(present) != digests[0]:
        return _CHANGED
    if kind == "replace":
        return Removal(path, (), replacement=_parsed(old or digests[-1], document.file))
    if kind == "fill":
        return Removal(path, (), replacement=None)
    return Removal(path, ())


def _record_removals(document: Document, record: dict[str, Any], at: Path) -> tuple[list[Removal], set[Path]]:
    """How to remove the record and the annotations added with it, and the mapping around them if it was added for them.

    If their document was added too, their paths are returned instead: the document goes if it is otherwise empty.
    """
    annotations = document.get(at[:-1])
    beside = record["beside"]
    ours = {key for key in beside if value_digest(annotations.get(key)) == beside[key]} | {at[-1]}
    kind, made = record["made"][0], tuple(record["made"][1])
    if kind == "append":
        return [], {(*at[:-1], key) for key in ours}
    if (made == at and kind == "add") or annotations.keys() - ours:
        return [Removal((*at[:-1], key), ()) for key in sorted(ours)], set()
    if kind == "add":
        top = at[:-1]
        while len(top) > len(made) and len(document.get(top[:-1])) == 1:
            top = top[:-1]  # the metadata were added too and have no other content
        return [Removal(top, ())], set()
    return [Removal(made, (), replacement=None)], set()


def _parsed(scalar: str, file: str) -> Any:
    """The value of a scalar as it was written in the file."""
    documents = parse(f"x: {scalar}\n", file)
    return documents[0].get(("x",)) if documents else None
