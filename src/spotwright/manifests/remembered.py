"""What was computed of a value, remembered: a thousand manifests get the same few tolerations, labels and variables."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["remembered"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST = 4096  # results, and bytes of a value


def remembered(function: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """``function`` of plain data, which may be mutable, so that it is known again by its bytes. They are never loaded."""
    known: dict[Any, _T] = {}

    @wraps(function)
    def recalled(value: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            written = marshal.dumps(value, 2)
        except ValueError:  # a type of somebody else's
            return function(value, *args, **kwargs)
        key = (written, *args)
        if key not in known:
            if len(written) > _MOST:
                return function(value, *args, **kwargs)
            if len(known) >= _MOST:
                known.clear()
            known[key] = function(value, *args, **kwargs)
        return known[key]

    return recalled
