"""Parameters of suites that show one fact many times: a sample for ``make test``, most of them for ``make test-long``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

__all__ = ["every", "only", "shared"]


def every(step: int, values: Iterable[Any]) -> list[ParameterSet]:
    """The values as parameters; all but every ``step``-th are marked ``long``."""
    return [_parameter(value, sampled=index % step == 0) for index, value in enumerate(values)]


def only(sample: Container[Any], values: Iterable[Any]) -> list[ParameterSet]:
    """The values as parameters; all that are not in ``sample`` are marked ``long``."""
    return [_parameter(value, sampled=value in sample) for value in values]


def shared(step: int, sample: Container[Any], values: Iterable[Any]) -> list[ParameterSet]:
    """The values as parameters, for tests of minutes: outside ``sample`` every ``step``-th is ``long`` and the rest ``many``."""
    rest = [value for value in values if value not in sample]
    marks = {value: pytest.mark.long if index % step == 0 else pytest.mark.many for index, value in enumerate(rest)}
    return [pytest.param(value, marks=marks.get(value, ())) for value in values]


def _parameter(value: Any, *, sampled: bool) -> ParameterSet:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=() if sampled else pytest.mark.long)
