"""Mend findings where it is safe: with the edits and the record of ``place``, so that ``unplace`` gives the same bytes back.

The record stands in an annotation of its own, because ``place`` begins with removing what it placed before and must leave what
lint mended. Objects that were placed are left alone: mend the file that they were placed from. Python files have no record; only
names of arguments are changed there.
"""

from __future__ import annotations

from collections.abc import Iterable

from spotwright.lint.linting import LintedFile, lint_text, repairs_in
from spotwright.lint.rule import Finding, Mend, Rename
from spotwright.lint.settings import Settings
from spotwright.manifests.files import unfix_text
from spotwright.manifests.record import FIXED_AT, MAX_RECORD, placed_text, reserve
from spotwright.placing.document_pair import objects_of
from spotwright.placing.documents import MISSING, Document, ManifestError, parse
from spotwright.placing.patch import Editor
from spotwright.placing.yaml_writer import edit_objects, split

__all__ = ["fixed_text", "relinted"]

_BOM = "\ufeff"


def fixed_text(text: str, linted: LintedFile, settings: Settings) -> str:
    """The text of a linted file after every safe mend; the same text if there is none. To mend twice is to mend once.

    A mend that the text does not allow (a value that an alias shares) is left out, and its finding stays. Raises
    :class:`InputError` as :func:`~spotwright.lint.linting.lint_text` does.
    """
    wanted = {(finding.rule, finding.line) for finding in linted.findings if finding.can_fix}
    if not wanted:
        return text
    if linted.file.endswith(".py"):
        return _renamed(text, [one.rename for one in linted.repairs if one.rename is not None])
    original = unfix_text(text, linted.file).text
    if original != text:  # one record holds all mends of an object, so they are made anew
        text, before = original, lint_text(original, linted.file, settings)
        wanted = {(finding.rule, finding.line) for finding in before.findings if finding.can_fix}
    bom, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    parts = []
    for above, part in split(body):
        objects = list(objects_of(parse(part, linted.file, above)))
        parts.append(edit_objects(part, objects, lambda document: _mended(document, settings, wanted)) or "")
    return bom + "".join(parts)


def _mended(document: Document, settings: Settings, wanted: set[tuple[str, int]]) -> str:
    """The whole text around a document after its mends."""
    repairs = [one for one in repairs_in(document, settings) if (one.finding.rule, one.finding.line) in wanted]
    mends = [mend for repair in repairs for mend in repair.mends if _is_own(document, mend)]
    if not mends or document.get(FIXED_AT) is not MISSING:
        return document.text
    editor = Editor(document)
    try:
        reserve(editor, FIXED_AT)
        _apply(editor, mends)
        return placed_text(editor, FIXED_AT, MAX_RECORD)
    except ManifestError:
        return document.text  # the findings stay, so nothing is lost in silence


def _is_own(document: Document, mend: Mend) -> bool:
    """Whether a value that is replaced stands in its own mapping, and is not merged into it from an anchor."""
    is_key = mend.kind == "replace" and isinstance(mend.path[-1], str)
    return not is_key or document.key_node(mend.path) is not None


def _apply(editor: Editor, mends: Iterable[Mend]) -> None:
    for mend in mends:
        if mend.kind == "add":
            editor.add(mend.path, mend.value)
        elif mend.kind == "extend":
            editor.extend(mend.path, mend.value)
        else:
            editor.replace(mend.path, mend.value)


def _renamed(text: str, renames: Iterable[Rename]) -> str:
    """The text of a Python file with other names of arguments; the last one is changed first, so that no column moves."""
    lines = text.splitlines(keepends=True)
    for rename in sorted(renames, key=lambda one: (one.line, one.column), reverse=True):
        line = lines[rename.line - 1]
        start = len(line.encode()[: rename.column].decode(errors="ignore"))  # the parser counts bytes
        if line.startswith(rename.old, start):
            lines[rename.line - 1] = line[:start] + rename.new + line[start + len(rename.old) :]
    return "".join(lines)


def relinted(text: str, before: LintedFile, settings: Settings) -> tuple[LintedFile, list[Finding]]:
    """The fixed text linted again, and the findings that are gone."""
    after = lint_text(text, before.file, settings)
    left = {(finding.rule, finding.field, finding.text) for finding in after.findings}
    return after, [one for one in before.findings if (one.rule, one.field, one.text) not in left]
