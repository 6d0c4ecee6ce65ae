"""Compare the outputs of two executions of a step: values, files and folders, with numbers within a tolerance.

Each difference names the output and the location inside it. So differences between two *undisturbed* executions (a timestamp,
an unseeded random number) can be ignored as noise, while everything else counts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import re
import runpy
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from spotwright.errors import InputError

__all__ = [
    "UNEXPECTED",
    "CompareFunction",
    "Difference",
    "compare_outputs",
    "load_compare_function",
    "repeated_row",
    "without_noise",
]


CompareFunction = Callable[[str, Any, Any], Any]
"""A user's comparison of one output: name, undisturbed and interrupted; parameter values, ``Path`` for files and folders.

``True``, ``None`` and ``""`` mean equal. ``False`` means different; so does a string, which describes the difference.
"""

UNEXPECTED = "is unexpected"
"""The description of an output, or a part of one, that the undisturbed execution lacks."""

_MAX_PARSED = 50_000_000  # bytes; larger files are compared byte by byte only
_MAX_ROWS = 10_000_000  # bytes of a file that is searched for repeated rows
_BLOCK = 1 << 20
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)
_MAX_SHOWN = 60  # characters of a value in a message
_IGNORED = frozenset({"__pycache__", ".pytest_cache", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two executions. ``inner_path`` leads to it inside the output; empty: the whole output differs."""

    output: str
    inner_path: str
    text: str

    @property
    def location(self) -> str:
        """The output with the path inside it."""
        return f"{self.output}{self.inner_path}"

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


def compare_outputs(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    tolerance: float = 0.0,
    compare: CompareFunction | None = None,
) -> list[Difference]:
    """The differences of outputs by name: plain values, and ``Path`` for files and folders."""
    differences: list[Difference] = []
    for name in sorted({*expected, *actual}):
        if name not in actual or name not in expected:
            differences.append(Difference(name, "", "is missing" if name in expected else UNEXPECTED))
        elif compare is not None:
            differences += _compare_by_user(name, compare, expected[name], actual[name])
        else:
            differences += (Difference(name, *each) for each in _compare(expected[name], actual[name], tolerance))
    return differences


def without_noise(differences: Sequence[Difference], noise: Sequence[Difference]) -> list[Difference]:
    """Drop differences at or inside a location that also differs between undisturbed executions."""
    locations = [(each.output, each.inner_path) for each in noise]
    return [
        d
        for d in differences
        if not any(d.output == output and d.inner_path.startswith(path) for output, path in locations)
    ]


def compared_names(outputs: Mapping[str, Any], noise: Sequence[Difference]) -> list[str]:
    """The comparable outputs: they exist and are not all noise."""
    names = []
    for name, value in outputs.items():
        noisy = tuple(each.inner_path for each in noise if each.output == name)
        if any(not location.startswith(noisy) for location in _locations(value)):
            names.append(name)
    return names


def _locations(value: Any, path: str = "") -> Iterator[str]:
    """The inner paths of the smallest parts of a value that :func:`compare_outputs` distinguishes."""
    if isinstance(value, Path):
        kind = _kind(value)
        if kind == "a folder":
            value = {f"/{each.name}": each for each in value.iterdir() if each.name not in _IGNORED}
        elif kind == "a file":
            yield from _locations_in_file(value, path)
            return
        else:
            return
    elif isinstance(value, Mapping):
        value = {f".{key}": item for key, item in value.items()}
    elif isinstance(value, list):
        value = {f"[{index}]": item for index, item in enumerate(value)}
    if isinstance(value, dict) and value:
        for step, item in value.items():
            yield from _locations(item, f"{path}{step}")
    else:
        yield path


def _locations_in_file(file: Path, path: str) -> Iterator[str]:
    """The locations in a file's JSON value or its lines; other files are one location."""
    try:
        text = file.read_text("utf-8") if file.stat().st_size <= _MAX_PARSED else ""
    except UnicodeDecodeError:
        text = ""
    try:
        yield from _locations(json.loads(text), path)
    except ValueError:
        yield from (f"{path}, line {number}" for number in range(1, len(text.splitlines()) + 1)) if text else (path,)


def load_compare_function(reference: str, folder: Path) -> CompareFunction:
    """Import the function named by ``module:function`` or ``file.py:function``. Raises :class:`InputError` if it is missing."""
    module, colon, name = reference.rpartition(":")
    if not colon:
        raise InputError(f"--compare {reference}: expected module:function or file.py:function")
    try:
        if module.endswith(".py"):
            function = runpy.run_path(str(folder / module))[name]
        else:
            with _importable(folder):
                function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, KeyError, OSError, SyntaxError) as error:
        raise InputError(f"--compare {reference}: {error}") from error
    if not callable(function):
        raise InputError(f"--compare {reference}: {name} is not a function")
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _compare_by_user(name: str, compare: CompareFunction, old: Any, new: Any) -> Iterator[Difference]:
    try:
        answer = compare(name, old, new)
    except Exception as error:
        raise InputError(f"--compare: it failed on the output {name}: {type(error).__name__}: {error}") from error
    if answer is False:
        yield Difference(name, "", "is not the same, says the comparison")
    elif isinstance(answer, str) and answer:
        yield Difference(name, "", answer)


def _compare(a: Any, b: Any, tolerance: float, path: str = "") -> Iterator[tuple[str, str]]:
    """The differences of two values: the path of each inside the output, and a description."""
    if isinstance(a, Path) and isinstance(b, Path):
        yield from _paths(a, b, tolerance, path)
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*map(str, a), *map(str, b)}):
            yield from _item(f"{path}.{key}", a, b, key, tolerance)
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield path, f"has {len(b)} items instead of {len(a)}"
            return
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _compare(left, right, tolerance, f"{path}[{index}]")
    elif not _same(a, b, tolerance):
        yield path, f"{_short(b)} instead of {_short(a)}"


def _item(
    path: str, a: Mapping[Any, Any], b: Mapping[Any, Any], key: str, tolerance: float
) -> Iterator[tuple[str, str]]:
    if key not in b or key not in a:
        yield path, "is missing" if key in a else UNEXPECTED
    else:
        yield from _compare(a[key], b[key], tolerance, path)


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if _is_number(a) and _is_number(b):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    return type(a) is type(b) and a == b


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# -- files


def _paths(a: Path, b: Path, tolerance: float, path: str) -> Iterator[tuple[str, str]]:
    kinds = [_kind(side) for side in (a, b)]
    if kinds[0] != kinds[1]:
        yield path, f"is {kinds[1]} instead of {kinds[0]}"
    elif kinds[0] == "a folder":
        left, right = ({each.name: each for each in side.iterdir() if each.name not in _IGNORED} for side in (a, b))
        for name in sorted({*left, *right}):
            yield from _item(f"{path}/{name}", left, right, name, tolerance)
    elif kinds[0] == "a file" and not _same_bytes(a, b):
        yield from _files(a, b, tolerance, path)


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


def _files(a: Path, b: Path, tolerance: float, path: str) -> Iterator[tuple[str, str]]:
    """Compare two files whose bytes differ: by their content, if the format is known."""
    sizes = (a.stat().st_size, b.stat().st_size)
    whole = (path, f"{sizes[1]} bytes instead of {sizes[0]}" if sizes[0] != sizes[1] else "other bytes")
    if max(sizes) > _MAX_PARSED:
        yield whole
        return
    left, right = a.read_bytes(), b.read_bytes()
    if left[:6] == b"\x93NUMPY" or left[:4] == b"PK\x03\x04":
        yield from _arrays(a, b, tolerance, path, whole)
        return
    try:
        texts = left.decode(), right.decode()
    except UnicodeDecodeError:
        yield whole
        return
    try:
        values = json.loads(texts[0]), json.loads(texts[1])
    except ValueError:
        yield from _lines(*texts, tolerance, path)
    else:
        yield from _compare(*values, tolerance, path)


def _lines(a: str, b: str, tolerance: float, path: str) -> Iterator[tuple[str, str]]:
    """Text, such as CSV: line by line, numbers within the tolerance."""
    left, right = a.splitlines(), b.splitlines()
    if len(left) != len(right):
        yield path, f"{len(right)} lines instead of {len(left)}"
        return
    for number, (old, new) in enumerate(zip(left, right, strict=True), start=1):
        if old != new and not _same_line(old, new, tolerance):
            yield f"{path}, line {number}", f"{_short(new)} instead of {_short(old)}"


def _same_line(a: str, b: str, tolerance: float) -> bool:
    if not tolerance or _NUMBER.split(a) != _NUMBER.split(b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(_same(float(left), float(right), tolerance) for left, right in pairs)


_UNREADABLE = (ValueError, OSError, KeyError, EOFError, BadZipFile, zlib.error, NotImplementedError, RuntimeError)
"""Errors of NumPy and zipfile for a file with objects, and for a damaged, encrypted or unknown archive."""


def _arrays(a: Path, b: Path, tolerance: float, path: str, whole: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """NumPy files, if NumPy is installed, and the members of other archives; anything else is compared as bytes."""
    try:
        import numpy as np

        with a.open("rb") as left, b.open("rb") as right:
            pairs = _pairs(*(np.load(file, allow_pickle=False) for file in (left, right)))
    except (ImportError, *_UNREADABLE):
        pairs = None
    if pairs is None:
        yield whole
        return
    for name, old, new in pairs:
        inner = f"{path}.{name}" if name else path
        if isinstance(old, bytes) or isinstance(new, bytes):  # of another archive, such as a file of torch.save
            if old != new:
                yield inner, "other bytes"
        elif old.shape != new.shape or old.dtype != new.dtype:
            yield inner, f"is {new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        elif not np.array_equal(old, new) and not _close(np, old, new, tolerance):
            yield inner, f"{int((old != new).sum())} of {old.size} numbers differ"


def _pairs(left: Any, right: Any) -> list[tuple[str, Any, Any]] | None:
    if hasattr(left, "files") and hasattr(right, "files"):
        names = sorted(left.files)
        return [(name, left[name], right[name]) for name in names] if names == sorted(right.files) else None
    return None if hasattr(left, "files") or hasattr(right, "files") else [("", left, right)]


def _close(np: Any, a: Any, b: Any, tolerance: float) -> bool:
    return bool(a.dtype.kind in "fc" and np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def repeated_row(undisturbed: Path, interrupted: Path) -> str:
    """The first row that occurs more often than undisturbed, in a text file that has only such rows added."""
    try:
        old, new = (_rows(path) for path in (undisturbed, interrupted))
    except (OSError, UnicodeDecodeError):
        return ""
    added = new - old
    return (
        next((row for row in added if row.strip()), "")
        if added and added.keys() <= old.keys() and not old - new
        else ""
    )


def _rows(path: Path) -> Counter[str]:
    if path.stat().st_size > _MAX_ROWS:
        return Counter()
    return Counter(path.read_text("utf-8").splitlines())
