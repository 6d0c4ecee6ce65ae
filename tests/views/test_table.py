"""Plain tables."""

from __future__ import annotations

from spotwright.views.text import Rows, shorten, table, wrapped


def test_columns_are_aligned_left_right_and_on_the_point() -> None:
    rows = [["a", "1", "0.125"], ["long", "100", "12.5"]]
    assert table(Rows(["Name", "N", "Cost"], rows, "lr.")) == [
        "Name    N    Cost",
        "a       1   0.125",
        "long  100  12.5",
    ]


def test_columns_without_a_value_are_left_out() -> None:
    assert table(Rows(["Name", "Node"], [["a", ""]], "ll")) == ["Name", "a"]


def test_a_table_without_rows_has_no_lines() -> None:
    assert table(Rows(["Name"], [], "l")) == []


def test_a_sentence_is_wrapped_but_its_names_are_not_cut() -> None:
    name = "n" * 120
    assert list(wrapped(f"see {name} now", indent="- ", hang="  ")) == ["- see", f"  {name}", "  now"]


def test_a_long_text_is_cut_on_one_line() -> None:
    assert shorten("one\n two three", 100) == "one two three"
    assert shorten("abcdefghij", 8) == "abcde..."
