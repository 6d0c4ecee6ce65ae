"""Output artifacts of a task as the page shows them: their metadata, and the content of their files on this machine.

Only the beginning of a file is read, and only if it is inside the run's state folder after following links; for a run on a
cluster, files are not read. Remote addresses are never opened. Files are untrusted: HTML and images are passed on as bytes, for
a frame and an element that do not run them.
"""

from __future__ import annotations

import csv
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from spotwright.engine.state import TaskState
from spotwright.errors import InputError, UnknownRun
from spotwright.records.reader import RunReader
from spotwright.records.stored_plan import RunFiles
from spotwright.views.run_rows import artifact_type, confusion_matrix, roc_curve
from spotwright.views.text import readable, value_text

__all__ = ["Raw", "artifact_raw", "task_artifacts"]

_MOST_RAW = 5_000_000  # bytes of HTML or an image
_HEAD = 262_144  # bytes of a text or a table that are read
_MOST_JSON = 2_000_000  # bytes of a JSON file that is one value
_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL = 100, 50, 200
_MOST_CLASSES, _MOST_POINTS, _MOST_VALUES, _LONGEST_VALUE = 100, 500, 500, 2000
_MOST_FILES = 200


class Raw(NamedTuple):
    """The bytes of HTML or of an image, and their media type. They are always shown in a sandbox."""

    media: str
    data: bytes


def task_artifacts(reader: RunReader, task: str) -> list[dict[str, Any]]:
    """The output artifacts of a task, by its path.

    Each has ``name`` (of several in a list: ``NAME.0`` and so on), ``type`` (``system.Model``), ``uri``, ``metadata``, ``kind``,
    ``why`` (what is not shown and why, or empty), and by ``kind``:

    - ``metrics``: ``metrics``, pairs of a name and a value;
    - ``confusion``: ``metrics``, ``matrix`` (``names``, ``rows``; or null) and ``curve`` (points of threshold, false positive
      rate, true positive rate; or null), ``points``: how many the curve has;
    - ``html``, ``image``: ``media``, ``bytes``; :func:`artifact_raw` has the content;
    - ``markdown``, ``text``: ``text``, ``bytes``, ``cut`` (it is the beginning);
    - ``table``: ``header``, ``rows`` (texts), ``bytes``, ``cut`` (there are more rows or columns);
    - ``file``: ``bytes``; or ``files`` (pairs of a name and its bytes, null for a folder) and ``cut``;
    - ``none``: no content.

    Raises :class:`UnknownRun` for a task that the run does not have.
    """
    return [_described(reader, name, artifact) for name, artifact in _outputs(reader, task)]


def artifact_raw(reader: RunReader, task: str, name: str) -> Raw:
    """The content of an artifact of kind ``html`` or ``image``.

    Raises :class:`UnknownRun` for a missing task or name, :class:`InputError` with why it is not shown.
    """
    artifact = dict(_outputs(reader, task)).get(name)
    if artifact is None:
        raise UnknownRun(f"task {task} of run {reader.folder.name} has no output artifact {name!r}")
    try:
        file = _opened(reader, str(artifact.get("uri", "")))
    except _NotShown as error:
        raise InputError(f"artifact {name} of task {task} is not shown: {error}") from error
    with file:
        media = _media(artifact_type(artifact), file.head(64))
        if media is None:
            raise InputError(f"artifact {name} of task {task} is neither HTML nor an image")
        if file.size > _MOST_RAW:
            raise InputError(f"artifact {name} of task {task} is not shown: {_too_large(file.size)}")
        return Raw(media, file.head(_MOST_RAW))


def _outputs(reader: RunReader, task: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in _task(reader, task).artifacts.items():
        several = isinstance(value, list)
        for index, artifact in enumerate(value if several else [value]):
            if isinstance(artifact, Mapping):
                yield (f"{name}.{index}" if several else name), readable(artifact)


def _task(reader: RunReader, path: str) -> TaskState:
    state = reader.state
    task = state.tasks.get(path) or state.retired.get(path)
    if task is None:
        raise UnknownRun(f"run {reader.folder.name} has no task {path!r}")
    return task


def _described(reader: RunReader, name: str, artifact: Mapping[str, Any]) -> dict[str, Any]:
    schema, metadata = artifact.get("type"), artifact.get("metadata")
    title = str(schema.get("schemaTitle", "")) if isinstance(schema, Mapping) else ""
    uri, said = str(artifact.get("uri", "")), dict(metadata) if isinstance(metadata, Mapping) else {}
    whole = {"name": name, "type": title, "uri": uri, "metadata": {}, "kind": "none", "why": ""}
    kind = artifact_type(artifact)
    if kind in ("Metrics", "ClassificationMetrics"):
        return whole | _metrics(said)
    whole["metadata"] = dict(_values(said))
    try:
        return whole | _content(reader, kind, uri)
    except _NotShown as error:
        return whole | {"why": str(error)}


def _metrics(said: dict[str, Any]) -> dict[str, Any]:
    """The metrics. A matrix or a curve in another form than kfp 2's stays among the values."""
    matrix, curve = _read(said, "confusionMatrix", confusion_matrix), _read(said, "confidenceMetrics", roc_curve)
    why = ""
    if matrix is not None and len(matrix[0]) > _MOST_CLASSES:
        why = f"the confusion matrix has {len(matrix[0]):,} classes, more than {_MOST_CLASSES}"
        matrix = None
    metrics = [[name, value] for name, value in _values(said)]
    if matrix is None and curve is None:
        return {"kind": "metrics", "metrics": metrics, "why": why}
    return {
        "kind": "confusion",
        "metrics": metrics,
        "matrix": None if matrix is None else {"names": matrix[0], "rows": [list(map(_finite, row)) for row in matrix[1]]},
        "curve": None if curve is None else [list(map(_finite, point)) for point in _evenly(curve)],
        "points": 0 if curve is None else len(curve),
        "why": why,
    }  # fmt: skip


_T = TypeVar("_T")


def _read(said: dict[str, Any], key: str, read: Callable[[Any], _T]) -> _T | None:
    try:
        value = read(said[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    del said[key]
    return value


def _evenly(points: Sequence[tuple[float, float, float]]) -> Sequence[tuple[float, float, float]]:
    last = len(points) - 1
    if last < _MOST_POINTS:
        return points
    return [points[index * last // (_MOST_POINTS - 1)] for index in range(_MOST_POINTS)]


def _finite(number: float) -> float | None:
    """The number, or ``None`` for infinity, which JSON lacks and scikit-learn's curves begin with."""
    return number if math.isfinite(number) else None


def _values(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names with numbers, and everything else as text of bounded length."""
    for name, value in islice(said.items(), _MOST_VALUES):
        is_number = isinstance(value, int | float) and abs(value) < 1e300
        yield str(name), value if is_number else _cut(value_text(value), _LONGEST_VALUE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


# Files


class _NotShown(Exception):
    """Why the content of an artifact is not shown, as part of a sentence."""


class _File:
    """A regular file that is open for reading."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        self.size, self.is_regular = status.st_size, stat.S_ISREG(status.st_mode)

    def head(self, most: int) -> bytes:
        """At most ``most`` bytes from its beginning."""
        self._file.seek(0)
        return self._file.read(most)

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _path(reader: RunReader, uri: str) -> Path:
    """The path of a file in the state folder of a run on this machine. Raises :class:`_NotShown`."""
    text = uri.removeprefix("file://")
    if not text:
        raise _NotShown("it has no recorded location")
    if not text.startswith("/"):
        raise _NotShown("it is stored remotely, and the page does not open addresses")
    if not isinstance(reader.source, RunFiles):
        raise _NotShown("the run is read from a cluster, whose files are not on this machine")
    try:
        path, root = Path(text).resolve(strict=True), reader.folder.path.resolve().parent.parent
    except FileNotFoundError:
        raise _NotShown("it no longer exists") from None
    except (OSError, ValueError, RuntimeError) as error:  # a circle of links is a RuntimeError before Python 3.13
        raise _NotShown(f"it cannot be read ({getattr(error, 'strerror', None) or 'invalid path'})") from error
    if not path.is_relative_to(root):
        raise _NotShown("it is outside the state folder, which the page does not open")
    return path


def _opened(reader: RunReader, uri: str) -> _File:
    path = _path(reader, uri)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _NotShown("it is not a file")
        file = _File(_descriptor(path))
    except OSError as error:
        raise _NotShown(f"it cannot be read ({error.strerror})") from error
    if not file.is_regular:
        file.close()
        raise _NotShown("it is not a file")
    return file


def _descriptor(path: Path) -> int:
    """Open a path without links, folder by folder: a link added since then is refused."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags)
    with ExitStack() as stack:
        folder = None
        for part in (path.anchor, *path.parts[1:-1]):
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            stack.callback(os.close, folder)
        return os.open(path.name, flags, dir_fd=folder)


def _content(reader: RunReader, kind: str, uri: str) -> dict[str, Any]:
    path = _path(reader, uri)
    if path.is_dir():
        return _folder(path)
    with _opened(reader, uri) as file:
        head = file.head(_HEAD)
        media = _media(kind, head)
        if media is not None:
            why = _too_large(file.size) if file.size > _MOST_RAW else ""
            if why:
                return {"kind": "file", "bytes": file.size, "why": why}
            return {"kind": "html" if media == "text/html" else "image", "media": media, "bytes": file.size}
        text = _text(head, is_cut=file.size > len(head))
        if text is None:
            return {"kind": "file", "bytes": file.size}
        cut = file.size > len(head)
        if kind == "Markdown":
            return {"kind": "markdown", "text": text, "bytes": file.size, "cut": cut}
        whole = file.head(_MOST_JSON) if cut and file.size <= _MOST_JSON and text.lstrip()[:1] in ("{", "[") else head
        found = (
            _json_table(whole if len(whole) == file.size else b"")
            or _json_lines(text, is_cut=cut)
            or _csv_table(text, is_cut=cut)
        )
        if found is not None:
            return found | {"bytes": file.size}
        return {"kind": "text", "text": text, "bytes": file.size, "cut": cut}


def _folder(path: Path) -> dict[str, Any]:
    """The names in a folder with their sizes; links are not followed."""
    try:
        with os.scandir(path) as entries:
            some = sorted(islice(entries, _MOST_FILES * 10), key=lambda entry: entry.name)
        files = [
            [each.name, None if each.is_dir() else each.stat(follow_symlinks=False).st_size]
            for each in some[:_MOST_FILES]
        ]
    except OSError as error:
        raise _NotShown(f"it cannot be read ({error.strerror})") from error
    return {"kind": "file", "files": files, "cut": len(some) > _MOST_FILES}


def _too_large(size: int) -> str:
    return f"it has {size:,} bytes, and the limit is {_MOST_RAW:,}"


_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def _media(kind: str, head: bytes) -> str | None:
    """The media type of HTML, by the type of the artifact, or of an image, by its first bytes; ``None`` for anything else."""
    if kind == "HTML":
        return "text/html"
    for magic, media in _IMAGES:
        if head.startswith(magic):
            return media
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "image/svg+xml" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<svg") else None


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """The text of a file; ``None`` if it is not text."""
    if b"\x00" in data:
        return None
    for missing in range(4 if is_cut else 1):  # the last character may be cut
        try:
            return data[: len(data) - missing].decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
    return None


def _json_table(data: bytes) -> dict[str, Any] | None:
    """A table of a JSON value: of a list of objects, a list of lists, or an object of names and values."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(data)
        if isinstance(value, Mapping):
            return _table(["", ""], [[key, each] for key, each in value.items()])
        return _of_records(value) if isinstance(value, list) else None
    except (ValueError, RecursionError):
        return None


def _json_lines(text: str, *, is_cut: bool) -> dict[str, Any] | None:
    """A table of lines that are JSON objects."""
    lines = text.split("\n")
    if is_cut:
        lines.pop()
    records = []
    for line in islice(filter(str.strip, lines), _MOST_ROWS + 1):
        if not line.lstrip().startswith("{"):
            return None
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            return None
    found = _of_records(records)
    return None if found is None else found | {"cut": found["cut"] or is_cut}


def _of_records(records: Sequence[Any]) -> dict[str, Any] | None:
    shown = records[: _MOST_ROWS + 1]
    if shown and all(isinstance(each, Mapping) for each in shown):
        header = list(dict.fromkeys(key for each in shown for key in each))
        return _table(header, [[each.get(key, "") for key in header[: _MOST_COLUMNS + 1]] for each in shown])
    if shown and all(isinstance(each, list) for each in shown):
        return _table([""] * max(map(len, shown)), shown)
    return None


def _csv_table(text: str, *, is_cut: bool) -> dict[str, Any] | None:
    """A table of a text whose first lines have equal numbers of fields, separated by commas, tabs or semicolons."""
    whole = text[: text.rfind("\n") + 1] if is_cut else text
    for delimiter in (",", "\t", ";"):
        try:
            rows = list(
                islice(csv.reader(StringIO(whole, newline=""), delimiter=delimiter, strict=True), _MOST_ROWS + 2)
            )
        except csv.Error:
            continue
        rows = [row for row in rows if row]
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            found = _table(rows[0], rows[1:])
            return found | {"cut": found["cut"] or (is_cut and len(rows) <= _MOST_ROWS)}
    return None


def _table(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A table of bounded size, its cells as text."""
    cut = len(rows) > _MOST_ROWS or len(header) > _MOST_COLUMNS

    def cells(row: Sequence[Any]) -> list[str]:
        return [_cut(value_text(cell), _LONGEST_CELL) for cell in row[:_MOST_COLUMNS]]

    return {"kind": "table", "header": cells(header), "rows": [cells(row) for row in rows[:_MOST_ROWS]], "cut": cut}
