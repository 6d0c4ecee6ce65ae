"""Read the files of ``lint``: a file that cannot be read is one message, and the others are still linted."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from spotwright.cli.manifest_folders import find_manifests
from spotwright.model.quantities import format_bytes

__all__ = ["MAX_BYTES", "name_of", "read_all"]

MAX_BYTES = 64 * 2**20
"""The largest file: a list of all pods of a large cluster has half of it."""

_STDIN = Path("-")


def name_of(path: Path) -> str:
    """A file as messages name it."""
    return "standard input" if path == _STDIN else str(path)


def read_all(files: Iterable[Path], unread: list[str], *, recursive: bool) -> Iterator[tuple[Path, str]]:
    """Each file with its text, and with ``recursive`` the files of each folder.

    What cannot be read adds one message to ``unread``, with the place and the fix.
    """
    for path in _files_of(files, unread, recursive=recursive):
        try:
            text = _decoded(path, _bytes_of(path))
        except _Unreadable as error:
            unread.append(str(error))
        else:
            yield path, text


def _files_of(files: Iterable[Path], unread: list[str], *, recursive: bool) -> Iterator[Path]:
    for path in files:
        if not path.is_dir():
            yield path
        elif not recursive:
            unread.append(f"{path}: this is a folder: -R takes all its manifests and Python files")
        else:
            yield from _in_folder(path, unread)


def _in_folder(folder: Path, unread: list[str]) -> Iterator[Path]:
    """The manifests in a folder, as ``place -R`` takes them, then its Python files; hidden folders are left out."""
    try:
        found = find_manifests(folder, lambda path: _decoded(path, _bytes_of(path)))
    except _Unreadable as error:
        unread.append(str(error))
    else:
        yield from (path for path, _ in found.texts)
    for path in sorted(folder.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


class _Unreadable(Exception):
    """A file cannot be read; the text is for the user."""


def _bytes_of(path: Path) -> bytes:
    try:
        if path == _STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _Unreadable(f"{name_of(path)}: larger than {format_bytes(MAX_BYTES)}: split it")
    return data


def _decoded(path: Path, data: bytes) -> str:
    if b"\0" in data[:8192] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Unreadable(f"{name_of(path)}: a binary file: name manifests or Python files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        text = "not UTF-8 text: save it as UTF-8 (in PowerShell, > writes UTF-16)"
        raise _Unreadable(f"{name_of(path)}:{line}: {text}") from error
