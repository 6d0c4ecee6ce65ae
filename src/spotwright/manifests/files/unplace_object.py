"""Remove everything that was placed in one object: to the same bytes, or value by value after a reformatting.

The record that says what was placed is described in :mod:`spotwright.manifests.files.record`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from spotwright.kfp.placed_record import digest, value_digest
from spotwright.manifests.files.record import AT, Outside, read_record, restored
from spotwright.manifests.yamltext.documents import MISSING, Document, Path, parse
from spotwright.manifests.yamltext.edits import Splice
from spotwright.manifests.yamltext.removal import Removal, remove
from spotwright.manifests.yamltext.splice import apply
from spotwright.yaml_composer import Extent

__all__ = ["Unplaced", "unplaced"]

_CHANGED = "was changed since it was placed, so it stays"
_MISSING = "is missing: it was removed since it was placed"


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The text of the file after one object was unplaced.

    ``exact``: the object has its original bytes. ``left`` are the values that stay because they were changed since, each with
    its path and the reason.
    """

    text: str
    exact: bool
    left: tuple[tuple[Path, str], ...] = ()


def unplaced(document: Document, at: Path = AT, outside: Outside | None = None) -> Unplaced:
    """Remove everything that was placed in one object.

    Raises :class:`ManifestError` if its record is kept outside and ``outside`` has it not.
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

    entries = [entry for entry in record["edits"] if entry[5]]  # the others are undone as a whole, or part by part
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
    """The highest paths below which nothing remains without the ``removed`` ones."""
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
    """The record with paths that begin at the object, which a tool may have put into a list or taken out of one."""
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
        return Removal(path, (), replacement=_parsed(old, document.file))
    if kind == "fill":
        return Removal(path, (), replacement=None)
    return Removal(path, ())


def _record_removals(document: Document, record: dict[str, Any], at: Path) -> tuple[list[Removal], set[Path]]:
    """How to remove the record and the annotations added with it, and the mapping around them if it was added for them.

    If their document was added too, their paths are returned instead: the document goes if nothing else is left in it.
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
        return [Removal(made, ())], set()
    return [Removal(made, (), replacement=None)], set()


def _parsed(scalar: str, file: str) -> Any:
    """The value of a scalar as it was written in the file."""
    documents = parse(f"x: {scalar}\n", file)
    return documents[0].get(("x",)) if documents else None
