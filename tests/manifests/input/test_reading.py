"""The self-check accepts only a text that reads as the edits mean it, and knows the positions in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.manifests.yamltext.documents import Document, ManifestError, parse
from spotwright.manifests.yamltext.edits import Edit, Editor, Splice
from spotwright.manifests.yamltext.self_check import reads_as_edited
from spotwright.manifests.yamltext.splice import apply, block, in_brief, splices

RECORD = ("metadata", "record")
TEXT = """\
# a comment
kind: &kind Job
metadata: {name: "train", labels: {}}
spec:
  list:
  - one  # the first
  - {two: 2, nothing: }
  text: |
    words
  again: *kind
  empty: []
"""
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(min_size=1, max_size=4), _VALUES, min_size=1, max_size=3)


def edited(text: str, value: Any = 1) -> tuple[Editor, list[tuple[Edit, Splice]], str]:
    """A document with a record, a new key, a longer list and another text in it; the text is the short one."""
    [document] = parse(text, "it.yaml")
    editor = Editor(document)
    editor.add(RECORD, "@")
    editor.add(("metadata", "labels", "new"), "label")
    editor.add(("spec", "added"), value)
    editor.extend(("spec", "list"), [{"three": value}])
    editor.extend(("spec", "empty"), ["no longer"])
    editor.replace(("spec", "text"), "other\nwords\n")
    pairs = splices(document, editor.final_edits())
    short = [change if edit is editor.edits[0] else in_brief(change) for edit, change in pairs]
    return editor, pairs, apply(text, short)


def means(document: Document, editor: Editor, pairs: list[tuple[Edit, Splice]], text: str) -> bool:
    """Whether a text has the values that the edits mean, so that the check may accept it."""
    try:
        again = document.reparse(text)
    except ManifestError:
        return False
    shortened = [edit for edit, change in pairs if change.short and edit is not editor.edits[0]]
    return again is not None and again.get(()) == editor.result(shortened)


def test_edits_of_every_kind_are_read_where_they_were_written() -> None:
    editor, pairs, text = edited(TEXT)
    extents = reads_as_edited(editor, text, pairs, RECORD)

    assert extents is not None
    whole, record = extents
    assert text[record.start : record.end] == '"@"'
    assert text[whole.start :].startswith("kind: &kind Job")
    assert means(editor.document, editor, pairs, text)


@given(at=st.integers(0, 10**6), taken=st.integers(0, 3), put=st.text("ab: -{}[]&*\"'|\n#0", max_size=3))
def test_a_text_that_was_changed_anywhere_else_passes_only_where_it_means_the_same(
    at: int, taken: int, put: str
) -> None:
    editor, pairs, text = edited(TEXT)
    at %= len(text) + 1
    wrong = text[:at] + put + text[at + taken :]

    if reads_as_edited(editor, wrong, pairs, RECORD) is not None:
        assert means(editor.document, editor, pairs, wrong)


@given(start=st.integers(0, 10**6), number=st.integers(0, 4))
def test_an_edit_that_stands_elsewhere_passes_only_where_it_means_the_same(start: int, number: int) -> None:
    editor, pairs, _ = edited(TEXT)
    moved = [
        (edit, change._replace(at=start % len(TEXT)) if index == number else change)
        for index, (edit, change) in enumerate(pairs)
    ]
    moved.sort(key=lambda pair: pair[1].at)
    wrong = apply(TEXT, [change if edit is editor.edits[0] else in_brief(change) for edit, change in moved])

    if reads_as_edited(editor, wrong, moved, RECORD) is not None:
        assert means(editor.document, editor, moved, wrong)


@pytest.mark.parametrize("number", range(6))
def test_an_edit_that_was_not_written_is_missed(number: int) -> None:
    editor, pairs, _ = edited(TEXT)
    del pairs[number]
    text = apply(TEXT, [change if edit is editor.edits[0] else in_brief(change) for edit, change in pairs])

    assert reads_as_edited(editor, text, pairs, RECORD) is None


@given(before=_OBJECTS, value=_VALUES)
def test_any_document_reads_as_edited(before: dict[str, Any], value: Any) -> None:
    text = "\n".join(
        [*block({"metadata": {"name": "it"}, "spec": {"list": [1], "text": "a", "empty": [0], **before}}, 0), ""]
    )
    [document] = parse(text, "it.yaml")
    editor = Editor(document)
    editor.add(RECORD, "@")
    editor.add(("spec", "a new key"), value)
    pairs = splices(document, editor.final_edits())
    short = apply(text, [change if edit is editor.edits[0] else in_brief(change) for edit, change in pairs])

    assert reads_as_edited(editor, short, pairs, RECORD) is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\nmetadata: {}\n", "a: '1'\nmetadata: {record: '@'}\n"),
        ("a: &x 1\nb: *x\nmetadata: {}\n", "a: &y 1\nb: *x\nmetadata: {record: '@'}\n"),
        ("a: !!str 1\nmetadata: {}\n", "a: !!int 1\nmetadata: {record: '@'}\n"),
        ("a: 1\nmetadata: {}\n", "a: 1\nmetadata: {record: '@', more: 1}\n"),
        ("a: 1\nmetadata: {}\n", "a: 1\nmetadata: {record: &r '@'}\n"),
        ("a: 1\nmetadata: {}\n", "a: 1\nmetadata: {}\n"),
        ("a: 1\nmetadata: {}\n", "a: 1\nmetadata: {record: '@'}\nb: 2\n"),
        ("a: 1\nmetadata: {}\n", "metadata: {record: '@'}\na: 1\n"),
        ("a: 1\nmetadata: {}\n", "a: [1\nmetadata: {record: '@'}\n"),
        ("a: 1\nmetadata: {}\n", ""),
    ],
)  # fmt: skip
def test_every_difference_counts(before: str, after: str) -> None:
    [document] = parse(before, "it.yaml")
    editor = Editor(document)
    editor.add(RECORD, "@")
    pairs = splices(document, editor.final_edits())

    assert reads_as_edited(editor, apply(before, [change for _, change in pairs]), pairs, RECORD) is not None
    assert reads_as_edited(editor, after, pairs, RECORD) is None
