"""Read the files of ``lint``: a file that cannot be read is one message, and the others are still linted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from spotwright.cli.manifest_folders import find_manifests
from spotwright.config.document import read_input
from spotwright.errors import InputError

__all__ = ["read_all"]


def read_all(files: Iterable[Path], unread: list[str], *, recursive: bool) -> Iterator[tuple[Path, str]]:
    """Each file with its text, and with ``recursive`` the files of each folder.

    What cannot be read adds one message to ``unread``, with the place and the fix.
    """
    for path in _files_of(files, unread, recursive=recursive):
        try:
            text = read_input(path)
        except InputError as error:
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
        found = find_manifests(folder, read_input)
    except InputError as error:
        unread.append(str(error))
    else:
        yield from (path for path, _ in found.texts)
    for path in sorted(folder.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path
