"""An edited text is written only where it reads as the edits mean it, and where unplace gives the same bytes back.

The tests put wrong splices in the place of right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.manifests import record
from spotwright.manifests.record import AT, placed_text, reserve, unplaced
from spotwright.placing.documents import ManifestError, parse
from spotwright.placing.patch import Edit, Editor, Splice, clone, is_same
from spotwright.placing.yaml_writer import block, splices

Pairs = list[tuple[Edit, Splice]]

OTHER_VALUES = "cannot be placed: the edited text would not have the expected values"
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
SMALL = "a: &x 1\nb: *x\nc: !!str 2\nd: true\nmetadata: {}\n"
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(min_size=1, max_size=4), _VALUES, min_size=1, max_size=3)


def an_editor(text: str) -> Editor:
    """An editor of a text that is one document, with the placeholder of the record."""
    [document] = parse(text, "it.yaml")
    editor = Editor(document)
    reserve(editor)
    return editor


def edited() -> Editor:
    """A document with a record, new keys, longer lists and another text in it."""
    editor = an_editor(TEXT)
    editor.add(("metadata", "labels", "new"), "label")
    editor.add(("spec", "added"), 1)
    editor.extend(("spec", "list"), [{"three": 3}])
    editor.extend(("spec", "empty"), ["no longer"])
    editor.replace(("spec", "text"), "other\nwords\n")
    return editor


def placed(editor: Editor, change: Callable[[Pairs], Pairs]) -> str:
    """The text with the edits, where the splices are changed before they are applied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "splices", lambda document, edits: change(splices(document, edits)))
        return placed_text(editor)


def means(editor: Editor, text: str) -> bool:
    """Whether a placed text has the values that the edits mean, whatever the record is."""
    [document] = parse(text, "it.yaml")
    data = clone(document.get(()))
    data["metadata"]["annotations"][AT[-1]] = editor.get(AT)
    return is_same(data, editor.result())


def comes_back(editor: Editor, text: str) -> bool:
    """Whether unplace gives the bytes of before."""
    [document] = parse(text, "it.yaml")
    undone = unplaced(document)
    return undone.exact and undone.text == editor.document.text


def test_edits_of_every_kind_read_as_they_are_meant() -> None:
    editor = edited()
    text = placed_text(editor)

    assert means(editor, text)
    assert comes_back(editor, text)


@given(start=st.integers(0, len(TEXT)), number=st.integers(0, 5))
def test_an_edit_that_stands_elsewhere_passes_only_where_it_means_the_same(start: int, number: int) -> None:
    def moved(pairs: Pairs) -> Pairs:
        pairs[number] = (pairs[number][0], pairs[number][1]._replace(at=start))
        return sorted(pairs, key=lambda pair: pair[1].at)

    editor = edited()
    try:
        text = placed(editor, moved)
    except ManifestError:
        return
    assert means(editor, text)
    assert comes_back(editor, text)


@given(
    number=st.integers(0, 2),
    at=st.integers(0, 40),
    taken=st.integers(0, 3),
    put=st.text("ab: -{}[]&*\"'|\n#0,", max_size=3),
)
def test_an_edit_that_is_written_otherwise_passes_only_where_it_means_the_same(
    number: int, at: int, taken: int, put: str
) -> None:
    def misspelled(pairs: Pairs) -> Pairs:
        of_one_line = [pair for pair in pairs if not pair[1].short and pair[0].path[:2] != AT[:2]]
        edit, splice = of_one_line[number]
        text = splice.text[:at] + put + splice.text[at + taken :]
        return [(edit, splice._replace(text=text)) if pair[0] is edit else pair for pair in pairs]

    editor = edited()
    try:
        text = placed(editor, misspelled)
    except ManifestError:
        return
    assert means(editor, text)
    assert comes_back(editor, text)


@pytest.mark.parametrize(
    "path",
    [("metadata", "labels", "new"), ("spec", "added"), ("spec", "list"), ("spec", "empty"), ("spec", "text")],
    ids=str,
)
def test_an_edit_that_is_not_written_is_missed(path: tuple[str, ...]) -> None:
    editor = edited()

    with pytest.raises(ManifestError, match=OTHER_VALUES):
        placed(editor, lambda pairs: [pair for pair in pairs if pair[0].path != path])


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("d: true", "d: 'true'", OTHER_VALUES),
        ("d: true", "d: 1", OTHER_VALUES),
        ("a: &x 1", "a: &x 1.0", OTHER_VALUES),
        ("c: !!str 2", "c: !!int 2", OTHER_VALUES),
        ("d: true", "d: true\ne: 2", OTHER_VALUES),
        ("d: true\n", "", OTHER_VALUES),
        ("d: true", "d: true\n---\ne: 2", OTHER_VALUES),
        ("a: &x 1", "a: &y 1", "the alias [*]x names no anchor"),
        ("d: true", "d: [true", "not valid YAML"),
        ("d: true", "d: true\na: 1", "the key 'a' stands here and on line 1"),
    ],
)
def test_every_difference_counts(right: str, wrong: str, message: str) -> None:
    def also(text: str) -> Callable[[Pairs], Pairs]:
        same = Edit("replace", ("a",), 1)
        return lambda pairs: [(same, Splice(SMALL.index(right), text, right)), *pairs]

    editor = an_editor(SMALL)
    assert means(editor, placed(editor, also(right)))

    with pytest.raises(ManifestError, match=message):
        placed(editor, also(wrong))


def test_an_edit_that_could_not_be_undone_is_refused() -> None:
    def forgetful(pairs: Pairs) -> Pairs:
        return [(edit, splice._replace(old=splice.old.replace("words", "WORDS"))) for edit, splice in pairs]

    with pytest.raises(ManifestError, match="unplace would not restore the same bytes"):
        placed(edited(), forgetful)


@given(before=_OBJECTS, value=_VALUES)
def test_any_document_reads_as_edited(before: dict[str, Any], value: Any) -> None:
    spec = {"list": [1], "text": "a", "empty": [0], **before}
    editor = an_editor("\n".join([*block({"metadata": {"name": "it"}, "spec": spec}, 0), ""]))
    editor.add(("spec", "a new key"), value)
    text = placed_text(editor)

    assert means(editor, text)
    assert comes_back(editor, text)


def test_a_number_that_is_no_number_equals_itself() -> None:
    text = placed_text(an_editor("a: !!float .nan\nmetadata: {}\n"))

    assert text.startswith("a: !!float .nan\nmetadata: {annotations:")


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), (1, "1"), (None, False), ({}, []), ({"a": 1}, {"b": 1}), ([1], [])]
)  # fmt: skip
def test_data_of_another_type_is_not_the_same(one: Any, other: Any) -> None:
    assert is_same({"a": [one]}, {"a": [one]})
    assert not is_same({"a": [one]}, {"a": [other]})
    assert not is_same({"a": [other]}, {"a": [one]})
