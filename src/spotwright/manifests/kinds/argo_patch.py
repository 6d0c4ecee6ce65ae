"""What Argo has no field for: ``podSpecPatch``, a text that is a patch of the pod spec in JSON or YAML.

The user's own patch stays as it is, with new fields above its first one. A patch that starts with ``{`` is JSON to Argo, so
there the new fields are JSON as well. ``{{retries}}`` is known in a template's patch only (argo-workflows#13123), so what
changes from attempt to attempt is written there.

Every retry may need another node affinity: attempts that must be on on-demand get the condition, and earlier ones get the same
condition on a label that no node has, which ``NotIn`` makes true everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Splice, clone, value_at
from spotwright.manifests.markers import parse_marked
from spotwright.manifests.podspec import REQUIRED_TERMS
from spotwright.manifests.shapes import POD, check_value
from spotwright.manifests.splice import apply, block

__all__ = ["add_to_patch", "from_attempt", "read_patch"]

_NO_LABEL = "spotwright.dev/any-node"
"""A label that no node has: ``NotIn`` on it is true of every node."""


def read_patch(ctx: Context, path: Path) -> dict[str, Any]:
    """The patch at ``path`` as data; empty where there is none. Raises :class:`ManifestError` where it is no mapping."""
    document = _parsed(ctx, path)
    if document is None:
        return {}
    patch: dict[str, Any] = document.get(())
    check_value(ctx, path, patch, POD)
    return patch


def _parsed(ctx: Context, path: Path) -> Document | None:
    text = ctx.editor.get(path)
    if not isinstance(text, str) or not text.strip():
        return None
    found = _patches(text, f"{ctx.editor.document.file}:{ctx.editor.document.line(path)}: podSpecPatch")
    if len(found) != 1 or not isinstance(found[0].get(()), Mapping):
        raise ctx.problem(path, "expected a patch of a pod spec in JSON or YAML")
    return found[0]


@lru_cache(maxsize=64)
def _patches(text: str, file: str) -> Sequence[Document]:
    """What is in a patch; it is asked for again with every field that it could hide."""
    return parse_marked(text, file)


def add_to_patch(ctx: Context, path: Path, fields: Mapping[str, Any], default: Path | None = None) -> None:
    """Put fields into the patch at ``path``, which has none of them yet.

    Where there is no patch, the one at ``default`` counts, and would be hidden: so it is written with them.
    """
    own = _parsed(ctx, path)
    document = own or (_parsed(ctx, default) if default is not None else None)
    if document is None:
        _write(ctx, path, "\n".join(block(dict(fields), 0)) + "\n")
        return
    changes = [_above(document, fields)]
    changed = apply(document.text, changes)
    if [found.get(()) for found in parse_marked(changed, document.file)] != [{**fields, **document.get(())}]:
        raise ctx.problem(path, f"cannot take {', '.join(fields)}; write the patch as YAML, one field a line")
    if own is None:
        _write(ctx, path, changed)
    else:
        ctx.editor.embed(path, changed, changes)


def _write(ctx: Context, path: Path, text: str) -> None:
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, text)
    else:
        ctx.editor.replace(path, text)


def _above(document: Document, fields: Mapping[str, Any]) -> Splice:
    text, root = document.text, document.root
    if text.lstrip().startswith("{"):
        comma = ", " if document.get(()) else ""
        return Splice(text.index("{") + 1, json.dumps(fields)[1:-1] + comma)
    column = root.start_mark.column
    lines = block(dict(fields), column)
    return Splice(root.start_mark.index, "\n".join(lines).lstrip(" ") + "\n" + " " * column)


def from_attempt(attempt: int, affinity: Any, conditions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The affinity of a patch that asks for ``conditions`` from an attempt on, counted from zero, beside ``affinity``.

    A patch replaces the terms of the affinity as a whole, so those that are there stand in it too.
    """
    terms = clone(value_at({"affinity": affinity}, REQUIRED_TERMS)) or [{}]
    later = [_later(attempt, condition) for condition in conditions]
    for term in terms:
        term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *later]
    value: Any = terms
    for step in reversed(REQUIRED_TERMS[1:]):
        value = {step: value}
    return dict(value)


def _later(attempt: int, condition: Mapping[str, Any]) -> dict[str, Any]:
    def until(early: str, late: str) -> str:
        return f"{{{{=asInt(retries) < {attempt} ? '{early}' : '{late}'}}}}"

    operator = str(condition["operator"])
    return {
        "key": until(_NO_LABEL, str(condition["key"])),
        "operator": operator if operator == "NotIn" else until("NotIn", operator),
        "values": list(condition["values"]),
    }
