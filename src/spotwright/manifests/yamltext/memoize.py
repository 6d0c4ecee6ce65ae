"""Cache results for plain data: a thousand manifests get the same few tolerations, labels and variables."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["memoize"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_LIMIT = 4096  # results, and bytes of a key


def memoize(function: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """Cache a function of plain data. The data may be mutable, so its serialized form is the key; the key is never loaded."""
    results: dict[Any, _T] = {}

    @wraps(function)
    def cached(value: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            serialized = marshal.dumps(value, 2)
        except ValueError:  # not plain data
            return function(value, *args, **kwargs)
        key = (serialized, *args)
        try:
            return results[key]
        except KeyError:
            result = function(value, *args, **kwargs)
        if len(serialized) <= _LIMIT:
            if len(results) >= _LIMIT:
                results.clear()
            results[key] = result
        return result

    return cached
