"""Place YAML that is a text inside YAML: a trial template in a ConfigMap, a manifest in a step of a workflow.

The text is placed as a document of its own, by its own kinds. Its additions become an edit of the object around it, which has
the record. In a literal block (``|``) only the new lines are written; a text of another style is replaced as a whole, and the
record keeps its old form.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotwright.manifests.kinds import find_kind
from spotwright.manifests.kinds.templated_yaml import parse_marked
from spotwright.manifests.rules.context import Level, PlaceContext, name_of
from spotwright.manifests.yamltext.documents import Document, Path, show
from spotwright.manifests.yamltext.edits import Edit, Editor, Splice, is_same
from spotwright.manifests.yamltext.splice import apply, in_brief, splices
from spotwright.yaml_composer import ScalarNode

__all__ = ["place"]


def place(ctx: PlaceContext, path: Path, owner: str = "") -> None:
    """Place the objects in the text at ``path`` of the document (absolute: ``ctx.at(...)``), as parts of ``owner``.

    ``owner`` is the policy path of an object without a name, by default that of the context. Raises :class:`ManifestError` if
    the text is no YAML, or an object in it cannot be placed.
    """
    document = ctx.editor.document
    text = document.get(path, None)
    if not isinstance(text, str):
        raise ctx.problem(path, "expected a text that is YAML")
    file, above = _location(document, path)
    editors = [Editor(inner) for inner in parse_marked(text, file, above)]
    for editor in editors:
        _place_object(ctx, editor, owner)
    edited = [(editor, splices(editor.document, editor.final_edits())) for editor in editors]
    changes = [change for _, pairs in edited for _, change in pairs]
    if not changes:
        return
    _check(text, edited)
    ctx.editor.embed(path, apply(text, changes), changes)


def _location(document: Document, path: Path) -> tuple[str, int]:
    """How messages name the lines of a text: as lines of the file in a literal block, else as lines of the text."""
    node = document.node(path)
    line = document.line(path)
    if isinstance(node, ScalarNode) and node.style == "|":
        return document.file, document.above + int(node.start_mark.line) + 1
    return f"{document.file}:{line}: {show(path)}", 0


def _place_object(ctx: PlaceContext, editor: Editor, owner: str) -> None:
    inner = ctx.embedded(editor, owner)
    api_version, kind = str(inner.get("apiVersion", default="")), str(inner.get("kind", default=""))
    place_object = find_kind(api_version, kind)
    if place_object is not None:
        place_object(inner)
    elif kind:
        name = name_of(inner.get("metadata")) or inner.owner
        text = f"{kind} {name} ({api_version}): this kind is not placed; it stays unchanged"
        inner.add_finding(Level.NOTE, ("kind",), text)


def _check(text: str, edited: Sequence[tuple[Editor, Sequence[tuple[Edit, Splice]]]]) -> None:
    """Check that the edited text has the expected values. That unplace restores the bytes is checked for the outer object."""
    brief = apply(text, [in_brief(change) for _, pairs in edited for _, change in pairs])
    current = {document.index: document for document in parse_marked(brief, edited[0][0].document.file)}
    for editor, pairs in edited:
        document = current.get(editor.document.index)
        expected = editor.result([edit for edit, change in pairs if change.short])
        if document is None or not is_same(document.get(()), expected):
            raise editor.problem((), "cannot be placed: the edited text would not have the expected values")
