"""Write the edits of one object with their record, and check the result.

The record is described in :mod:`spotwright.manifests.files.record`. Nothing is written that does not read back as it should, or
that ``unplace`` would not restore to the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.kfp.placed_record import VERSION, digest, value_digest
from spotwright.manifests.files.record import AT, MAX_RECORD, Outside, restored
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import Edit, Editor, Splice, is_same, value_at
from spotwright.manifests.yamltext.splice import apply, in_brief, inline, is_quoted, splices
from spotwright.yaml_composer import Extent

__all__ = ["placed_text", "reserve"]

_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_UNREADABLE = "cannot be placed: the edited text would not have the expected values"
_TOKEN = "@"  # noqa: S105 (a placeholder until the record is known)


def reserve(editor: Editor, at: Path = AT) -> None:
    """Add a placeholder for the record, before any other edit."""
    editor.add(at, _TOKEN)


def placed_text(editor: Editor, at: Path = AT, limit: int | None = MAX_RECORD, outside: Outside | None = None) -> str:
    """The file's text with the edits of one object, and their record in place of what :func:`reserve` added.

    ``limit`` is the largest record in bytes, ``None`` for no limit; a larger one is put into ``outside``. Raises
    :class:`ManifestError` if the text would not have the expected values or ``unplace`` would not restore the same bytes, and if
    the record is too large and there is no ``outside``.
    """
    document, pairs = editor.document, splices(editor.document, editor.final_edits())
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
    nested = [_inverse(edit) for edit in editor.edits if edit.kind == "embed"]
    if nested:
        record["inside"] = nested
    parts = [
        [list(path), value_digest(value_at(editor.data, path))]
        for edit in editor.edits
        for path in _parts(document, edit)
    ]
    if parts:
        record["parts"] = parts
    written = _JSON.encode(record)
    if limit is not None and len(written.encode()) > limit:
        written = _put_outside(document, at, written, record, outside)
    scalar = inline(document, written)
    whole = record_change._replace(text=record_change.text.replace(token, scalar, 1))
    text = apply(document.text, [whole if edit is record_edit else change for edit, change in pairs])
    if not is_quoted(scalar, written):
        raise document.problem((), _UNREADABLE)
    _check(editor, pairs, text, record, at, len(scalar) - len(token))
    return text


def _put_outside(document: Document, at: Path, written: str, record: Mapping[str, Any], outside: Outside | None) -> str:
    """Put a record into ``outside`` and return what the annotation holds instead."""
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


def _entries(document: Document, pairs: Sequence[tuple[Edit, Splice]]) -> tuple[list[Any], str]:
    """The record's entries, with positions in the edited text without the record, and that text."""
    entries = []
    delta = -document.start
    lengths = {edit.path: len(edit.value) for edit, _ in pairs if edit.kind == "extend"}
    for edit, change in pairs:
        extent = [change.at + delta, len(change.text)]
        digests = [] if _parts(document, edit) else _value_digests(edit)
        entries.append([_kind(document, edit), _in_result(edit.path, lengths), *extent, change.old, digests])
        delta += len(change.text) - len(change.old)
    text = apply(document.text, [change for _, change in pairs])
    return entries, text[document.start : document.end + delta + document.start]


def _in_result(path: Path, lengths: Mapping[Path, int]) -> list[str | int]:
    """A path in the placed document, where the new items of a list stand before the old ones."""
    if not lengths:
        return list(path)
    steps = enumerate(path)
    return [step + lengths.get(path[:depth], 0) if isinstance(step, int) else step for depth, step in steps]


def _parts(document: Document, edit: Edit) -> list[Path]:
    return document.removable_parts(edit.path, edit.value) if edit.kind in ("add", "append") else []


def _inverse(edit: Edit) -> list[Any]:
    """How to restore a text that is YAML itself: its path, its digest, and the reverse of each change."""
    changes, delta = [], 0
    for change in edit.inner:
        changes.append([change.at + delta, len(change.text), change.old])
        delta += len(change.text) - len(change.old)
    return [list(edit.path), digest(edit.value), changes]


def _kind(document: Document, edit: Edit) -> str:
    """The kind of an edit in the record: ``fill`` for a key that was null, because the null has to come back."""
    if edit.kind == "add" and document.node(edit.path) is not None:
        return "fill"  # only a null may be there
    return edit.kind


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
    :func:`~spotwright.manifests.yamltext.splice.block`), its position does: so the document is read with a number instead of
    every value that has lines of its own, and with the placeholder instead of the record, which is ``longer_record`` characters
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
    if edit.kind == "embed":
        return []
    if edit.kind == "extend":
        return [value_digest(item) for item in edit.value]
    return [value_digest(edit.value)]
