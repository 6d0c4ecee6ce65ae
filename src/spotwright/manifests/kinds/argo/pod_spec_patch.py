"""Write ``podSpecPatch``, a text with a patch of the pod spec in JSON or YAML, for fields that Argo does not have.

The user's own patch stays, with new fields above its first one. Argo reads a patch that starts with ``{`` as JSON, so new fields
in it are JSON too. Argo resolves ``{{retries}}`` only in a template's patch (argo-workflows#13123), so fields that change from
attempt to attempt are written there.

Retries may need another node affinity: attempts that must be on on-demand get the condition, and earlier attempts the same
condition on a label that no node has, with ``NotIn``, which every node meets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from spotwright.manifests.kinds.templated_yaml import parse_marked
from spotwright.manifests.rules.affinity import conditions_from_attempt
from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.pod_spec import REQUIRED_TERMS
from spotwright.manifests.rules.schema import POD, check_value
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import Splice, clone, value_at
from spotwright.manifests.yamltext.splice import apply, block

__all__ = ["add_to_patch", "from_attempt", "read_patch"]


def read_patch(ctx: PlaceContext, path: Path) -> dict[str, Any]:
    """The patch at ``path`` as data, empty if there is none. Raises :class:`ManifestError` if it is no mapping."""
    document = _parsed(ctx, path)
    if document is None:
        return {}
    patch: dict[str, Any] = document.get(())
    check_value(ctx, path, patch, POD)
    return patch


def _parsed(ctx: PlaceContext, path: Path) -> Document | None:
    text = ctx.editor.get(path)
    if not isinstance(text, str) or not text.strip():
        return None
    documents = _patches(text, f"{ctx.editor.document.file}:{ctx.editor.document.line(path)}: podSpecPatch")
    if len(documents) != 1 or not isinstance(documents[0].get(()), Mapping):
        raise ctx.problem(path, "expected a patch of a pod spec in JSON or YAML")
    return documents[0]


@lru_cache(maxsize=64)
def _patches(text: str, file: str) -> Sequence[Document]:
    """The documents of a patch; cached, because a patch is read for every field that it could override."""
    return parse_marked(text, file)


def add_to_patch(ctx: PlaceContext, path: Path, fields: Mapping[str, Any], default: Path | None = None) -> None:
    """Add fields to the patch at ``path``, which has none of them yet.

    If there is no patch, the one at ``default`` applies. The new patch hides it, so it gets the default's fields too.
    """
    own = _parsed(ctx, path)
    document = own or (_parsed(ctx, default) if default is not None else None)
    if document is None:
        _write(ctx, path, "\n".join(block(dict(fields), 0)) + "\n")
        return
    changes = [_above(document, fields)]
    changed = apply(document.text, changes)
    if [current.get(()) for current in parse_marked(changed, document.file)] != [{**fields, **document.get(())}]:
        raise ctx.problem(path, f"{', '.join(fields)} cannot be added here; write the patch as YAML, one field a line")
    if own is None:
        _write(ctx, path, changed)
    else:
        ctx.editor.embed(path, changed, changes)


def _write(ctx: PlaceContext, path: Path, text: str) -> None:
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
    """The affinity of a patch that adds ``conditions`` to ``affinity`` from an attempt on, counted from 0.

    A patch replaces all terms of the affinity, so it contains the existing ones too.
    """
    terms = clone(value_at({"affinity": affinity}, REQUIRED_TERMS)) or [{}]

    def choose(early: str, late: str) -> str:
        return f"{{{{=asInt(retries) < {attempt} ? '{early}' : '{late}'}}}}"

    later = conditions_from_attempt(conditions, choose)
    for term in terms:
        term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *later]
    value: Any = terms
    for step in reversed(REQUIRED_TERMS[1:]):
        value = {step: value}
    return dict(value)
