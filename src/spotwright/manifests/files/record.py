"""The record that ``place`` leaves in an object, and how ``unplace`` uses it.

One annotation holds a version, the digests of the document's text before and after, and for each edit its position, its length,
the text that it replaced, its path and the digests of its values. While the digest of the text matches, ``unplace`` restores the
same bytes. After another tool has reformatted the document, each edit is looked up by its path: a value that is still as placed
is removed, a changed one is left and named.

The record is the first edit (:func:`reserve`), so that further annotations of the object stand beside it. A record that is too
large for an annotation is kept outside of the document, and the annotation holds its digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

from spotwright.kfp.placed_record import VERSION, digest
from spotwright.manifests.yamltext.documents import MISSING, Document, Path
from spotwright.yaml_composer import Extent

__all__ = ["ANNOTATION", "AT", "FIXED_AT", "MAX_RECORD", "Outside", "is_placed", "read_record", "restored"]

ANNOTATION = "spotwright.dev/placed"
"""The annotation of every object that was changed."""

AT: Path = ("metadata", "annotations", ANNOTATION)
"""The path of the record in an object; in an item of a list it begins at the item."""

FIXED_AT: Path = ("metadata", "annotations", "spotwright.dev/fixed")
"""The path of the record of what ``lint --fix`` changed, which ``place`` leaves alone and ``unplace`` undoes."""

MAX_RECORD = 32 * 1024
"""The largest record, in bytes, that is kept in an annotation."""

Outside: TypeAlias = MutableMapping[str, str]
"""The records that are too large for an annotation, as JSON, by the digest that the annotation holds."""


def is_placed(document: Document, at: Path = AT) -> bool:
    """Whether the object has a record."""
    return document.get(at) is not MISSING


def read_record(document: Document, at: Path, annotation: Any, outside: Outside | None) -> dict[str, Any]:
    """The record in an annotation. Raises :class:`ManifestError` if it is none, or is kept outside and not in ``outside``."""
    try:
        stored = json.loads(annotation)
        if "record" in stored:
            stored = json.loads(_from_outside(document, at, stored["record"], outside))
        is_newer = stored["v"] > VERSION
        record = {key: stored[key] for key in ("before", "after", "cut", "made", "beside", "edits")}
        record |= {key: stored.get(key, []) for key in ("inside", "parts")}
    except (TypeError, ValueError, KeyError) as error:
        text = "is not a record of spotwright, so nothing can be unplaced; remove the annotation"
        raise document.problem(at, text) from error
    if is_newer:
        raise document.problem(at, f"placed by a newer version of spotwright (record {stored['v']}): upgrade")
    return record


def _from_outside(document: Document, at: Path, key: str, outside: Outside | None) -> str:
    """The record with a digest from ``outside``; it is checked against the digest."""
    record = None if outside is None else outside.get(key)
    if record is None or digest(record) != key:
        text = f"its record ({key}) is in a file of its own: name the file that place wrote, with --record FILE"
        raise document.problem(at, f"{text} (records= in Python)")
    return record


def restored(text: str, whole: Extent, annotation: Extent, record: Mapping[str, Any]) -> str | None:
    """The file's text with the original bytes of one object; ``None`` if the object was changed since it was placed.

    ``whole`` is the extent of the object in ``text``, ``annotation`` that of the record in it.
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
