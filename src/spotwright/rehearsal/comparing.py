"""Whether two executions of a step came to the same: values, files and folders, with numbers within a tolerance.

Each difference names the output and the place inside it, so that what differs between two *undisturbed* executions (a
timestamp, an unseeded random number) can be left out, and everything beside it still counts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from spotwright.errors import InputError

__all__ = ["Comparison", "Difference", "differences", "load_comparison", "without_noise"]

Comparison = Callable[[str, Any, Any], Any]
"""A comparison of the user's: name, undisturbed, interrupted; values of parameters, ``Path`` of files and folders.

``True``, ``None`` and ``""`` mean the same; ``False`` or a text says that (and how) they differ.
"""

_LARGEST = 50_000_000  # bytes of a file that is taken apart; larger ones are compared as bytes
_BLOCK = 1 << 20
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)
_SHOWN = 60
_IGNORED = frozenset({"__pycache__", ".pytest_cache", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two executions differ. ``where`` is the place inside the output; empty: the output as a whole."""

    output: str
    where: str
    text: str

    @property
    def place(self) -> str:
        """The output with the place inside it."""
        return f"{self.output}{self.where}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def differences(
    expected: Mapping[str, Any], actual: Mapping[str, Any], tolerance: float = 0.0, compare: Comparison | None = None
) -> list[Difference]:
    """Compare outputs by name: plain values, and ``Path`` for files and folders."""
    found: list[Difference] = []
    for name in sorted({*expected, *actual}):
        if name not in actual or name not in expected:
            found.append(Difference(name, "", "is not there" if name in expected else "is there, and should not be"))
        elif compare is not None:
            found += _by_user(name, compare, expected[name], actual[name])
        else:
            found += (Difference(name, *each) for each in _compare(expected[name], actual[name], tolerance))
    return found


def without_noise(found: Sequence[Difference], noise: Sequence[Difference]) -> list[Difference]:
    """Leave out what differs undisturbed too: the same place, or one inside it."""
    known = [(each.output, each.where) for each in noise]
    return [d for d in found if not any(d.output == output and d.where.startswith(where) for output, where in known)]


def load_comparison(text: str, folder: Path) -> Comparison:
    """A function by ``module:function`` or ``file.py:function``. Raises :class:`InputError` where there is none."""
    name, colon, function = text.rpartition(":")
    if not colon:
        raise InputError(f"--compare {text}: expected module:function or file.py:function")
    try:
        if name.endswith(".py"):
            found = runpy.run_path(str(folder / name))[function]
        else:
            with _importable(folder):
                found = getattr(importlib.import_module(name), function)
    except (ImportError, AttributeError, KeyError, OSError, SyntaxError) as error:
        raise InputError(f"--compare {text}: {error}") from error
    if not callable(found):
        raise InputError(f"--compare {text}: {function} is no function")
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _by_user(name: str, compare: Comparison, old: Any, new: Any) -> Iterator[Difference]:
    try:
        said = compare(name, old, new)
    except Exception as error:
        raise InputError(f"--compare: it failed on the output {name}: {type(error).__name__}: {error}") from error
    if said is False:
        yield Difference(name, "", "is not the same, says the comparison")
    elif isinstance(said, str) and said:
        yield Difference(name, "", said)


def _compare(a: Any, b: Any, tolerance: float, where: str = "") -> Iterator[tuple[str, str]]:
    """The differences of two values, with the place of each."""
    if isinstance(a, Path) and isinstance(b, Path):
        yield from _paths(a, b, tolerance, where)
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*map(str, a), *map(str, b)}):
            yield from _item(f"{where}.{key}", a, b, key, tolerance)
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield where, f"has {len(b)} items instead of {len(a)}"
            return
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _compare(left, right, tolerance, f"{where}[{index}]")
    elif not _same(a, b, tolerance):
        yield where, f"{_short(b)} instead of {_short(a)}"


def _item(
    where: str, a: Mapping[Any, Any], b: Mapping[Any, Any], key: str, tolerance: float
) -> Iterator[tuple[str, str]]:
    if key not in b or key not in a:
        yield where, "is not there" if key in a else "is there, and should not be"
    else:
        yield from _compare(a[key], b[key], tolerance, where)


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if _is_number(a) and _is_number(b):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    return type(a) is type(b) and a == b


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Files


def _paths(a: Path, b: Path, tolerance: float, where: str) -> Iterator[tuple[str, str]]:
    kinds = [_kind(path) for path in (a, b)]
    if kinds[0] != kinds[1]:
        yield where, f"is {kinds[1]} instead of {kinds[0]}"
    elif kinds[0] == "a folder":
        left, right = ({each.name: each for each in path.iterdir() if each.name not in _IGNORED} for path in (a, b))
        for name in sorted({*left, *right}):
            yield from _item(f"{where}/{name}", left, right, name, tolerance)
    elif kinds[0] == "a file" and not _same_bytes(a, b):
        yield from _files(a, b, tolerance, where)


def _kind(path: Path) -> str:
    return (
        "a folder" if path.is_dir() else "a file" if path.is_file() else "nothing" if not path.exists() else "special"
    )


def _same_bytes(a: Path, b: Path) -> bool:
    if a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as left, b.open("rb") as right:
        while block := left.read(_BLOCK):
            if block != right.read(_BLOCK):
                return False
    return True


def _files(a: Path, b: Path, tolerance: float, where: str) -> Iterator[tuple[str, str]]:
    """Two files whose bytes differ: by what they hold, where that can be told."""
    sizes = (a.stat().st_size, b.stat().st_size)
    whole = (where, f"{sizes[1]} bytes instead of {sizes[0]}" if sizes[0] != sizes[1] else "other bytes")
    if max(sizes) > _LARGEST:
        yield whole
        return
    left, right = a.read_bytes(), b.read_bytes()
    if left[:6] == b"\x93NUMPY" or left[:4] == b"PK\x03\x04":
        yield from _arrays(a, b, tolerance, where, whole)
        return
    try:
        texts = left.decode(), right.decode()
    except UnicodeDecodeError:
        yield whole
        return
    try:
        values = json.loads(texts[0]), json.loads(texts[1])
    except ValueError:
        yield from _lines(*texts, tolerance, where)
    else:
        yield from _compare(*values, tolerance, where)


def _lines(a: str, b: str, tolerance: float, where: str) -> Iterator[tuple[str, str]]:
    """Text, such as CSV: line by line, numbers within the tolerance."""
    left, right = a.splitlines(), b.splitlines()
    if len(left) != len(right):
        yield where, f"{len(right)} lines instead of {len(left)}"
        return
    for number, (old, new) in enumerate(zip(left, right, strict=True), start=1):
        if old != new and not _same_line(old, new, tolerance):
            yield f"{where}, line {number}", f"{_short(new)} instead of {_short(old)}"


def _same_line(a: str, b: str, tolerance: float) -> bool:
    if not tolerance or _NUMBER.split(a) != _NUMBER.split(b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(_same(float(left), float(right), tolerance) for left, right in pairs)


def _arrays(a: Path, b: Path, tolerance: float, where: str, whole: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Arrays of NumPy, where it is installed; anything else of that beginning as bytes."""
    try:
        import numpy as np

        with a.open("rb") as left, b.open("rb") as right:
            pairs = _pairs(*(np.load(file, allow_pickle=False) for file in (left, right)))
    except (ImportError, ValueError, OSError, KeyError, BadZipFile):  # not installed, objects in it, or no such archive
        pairs = None
    if pairs is None:
        yield whole
        return
    for name, old, new in pairs:
        place = f"{where}.{name}" if name else where
        if old.shape != new.shape or old.dtype != new.dtype:
            yield place, f"is {new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        elif not np.array_equal(old, new) and not _close(np, old, new, tolerance):
            yield place, f"{int((old != new).sum())} of {old.size} numbers differ"


def _pairs(left: Any, right: Any) -> list[tuple[str, Any, Any]] | None:
    if hasattr(left, "files") and hasattr(right, "files"):
        names = sorted(left.files)
        return [(name, left[name], right[name]) for name in names] if names == sorted(right.files) else None
    return None if hasattr(left, "files") or hasattr(right, "files") else [("", left, right)]


def _close(np: Any, a: Any, b: Any, tolerance: float) -> bool:
    return bool(a.dtype.kind in "fc" and np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
