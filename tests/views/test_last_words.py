"""The last line of a log, with what it means where KFP runs the code."""

from __future__ import annotations

import pytest

from spotwright.views.text import last_words


@pytest.mark.parametrize(
    "line", ["NameError: name 'np' is not defined", "NameError: name 'np' is not defined. Did you mean: 'n'?"]
)
def test_a_name_that_a_component_does_not_have_is_explained(line: str) -> None:
    assert (
        last_words(line)
        == f"{line} (KFP runs the function of a component alone: import and define what it uses inside it)"
    )


def test_other_last_lines_are_as_they_are() -> None:
    assert last_words("KeyError: 'url'") == "KeyError: 'url'"
    assert last_words("x" * 300, 20) == "x" * 17 + "..."
