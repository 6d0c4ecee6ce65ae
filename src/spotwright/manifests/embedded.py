"""YAML that stands as a text inside YAML: a trial template in a ConfigMap, a manifest in a step of a workflow.

The text is placed as a document of its own, by its own kinds, and what was put into it becomes an edit of the object around
it, which carries the record. In a literal block (``|``) only the lines that are new are written; a text of another style is
written anew as a whole, and its old form is kept in the record.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotwright.manifests.context import Context, Level, name_of
from spotwright.manifests.documents import Document, Path, show
from spotwright.manifests.edits import Edit, Editor, Splice
from spotwright.manifests.kinds import find_kind
from spotwright.manifests.markers import parse_marked
from spotwright.manifests.nodes import ScalarNode
from spotwright.manifests.splice import apply, in_brief, splices

__all__ = ["place"]


def place(ctx: Context, path: Path, owner: str = "") -> None:
    """Place the objects in the text at ``path`` of the document (absolute: ``ctx.at(...)``), as parts of ``owner``.

    ``owner`` is the policy path of an object that has no name of its own, by default that of the context. Raises
    :class:`ManifestError` where the text is no YAML, or where an object in it cannot be placed.
    """
    document = ctx.editor.document
    text = document.get(path, None)
    if not isinstance(text, str):
        raise ctx.problem(path, "expected a text that is YAML")
    file, above = _whereabouts(document, path)
    editors = [Editor(inner) for inner in parse_marked(text, file, above)]
    for editor in editors:
        _place_object(ctx, editor, owner)
    made = [(editor, splices(editor.document, editor.edits)) for editor in editors]
    changes = [change for _, pairs in made for _, change in pairs]
    if not changes:
        return
    _check(text, made)
    ctx.editor.embed(path, apply(text, changes), changes)


def _whereabouts(document: Document, path: Path) -> tuple[str, int]:
    """How the lines of a text are called: those of a literal block are lines of the file, others are counted in the text."""
    node = document.node(path)
    line = document.line(path)
    if isinstance(node, ScalarNode) and node.style == "|":
        return document.file, document.above + int(node.start_mark.line) + 1
    return f"{document.file}:{line}: {show(path)}", 0


def _place_object(ctx: Context, editor: Editor, owner: str) -> None:
    inner = ctx.embedded(editor, owner)
    api_version, kind = str(inner.get("apiVersion", default="")), str(inner.get("kind", default=""))
    found = find_kind(api_version, kind)
    if found is not None:
        found(inner)
    elif kind:
        name = name_of(inner.get("metadata")) or inner.owner
        text = f"{kind} {name} ({api_version}): no kind that is placed; it passes through untouched"
        inner.say(Level.NOTE, ("kind",), text)


def _check(text: str, made: Sequence[tuple[Editor, Sequence[tuple[Edit, Splice]]]]) -> None:
    """What is written must read as meant; that the way back gives the same bytes is seen with the object around it."""
    brief = apply(text, [in_brief(change) for _, pairs in made for _, change in pairs])
    again = {found.index: found for found in parse_marked(brief, made[0][0].document.file)}
    for editor, pairs in made:
        found = again.get(editor.document.index)
        if found is None or found.get(()) != editor.result([edit for edit, change in pairs if change.short]):
            raise editor.problem((), "cannot be placed: the result would not read as it should")
