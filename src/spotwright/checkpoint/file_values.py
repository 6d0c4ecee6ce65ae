"""Files and folders as values of a state: for libraries that write only to a path, and for logs and samples.

They are stored with their content. Loading does not write; :meth:`~File.restore` writes the content to a path of the program's
choice. A name in a checkpoint never decides where a file is written: names are relative and stay below the target, where they
are opened component by component without following links. The target is built beside its path and moved there when whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from spotwright.checkpoint.errors import BrokenCheckpoint, UnstorableState
from spotwright.checkpoint.state_file import Blob
from spotwright.links_below import is_plain, leads_to

__all__ = ["Directory", "File", "decode_directory", "decode_file", "encode_directory", "encode_file"]


Add = Callable[[Blob], int]
Refuse = Callable[[str], UnstorableState]
Content = Callable[[int], Iterable[bytes]]
"""Returns the bytes of a blob of a loaded value's checkpoint."""

_PIECE = 1 << 20
_DEEPEST = 200  # levels of a folder: all are open while a file in the last one is written
_NO_OTHER = os.O_NOFOLLOW | os.O_NONBLOCK  # open only files, without blocking


class File:
    """A file with its content. ``File("model.bin")`` in a state is read when the state is saved.

    A loaded file has :meth:`read_bytes` and :meth:`restore`, until newer checkpoints replace its checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._content: Callable[[], Iterable[bytes]] | None = None
        self._executable = False

    def read_bytes(self) -> bytes:
        """Return the saved content."""
        return b"".join(self._loaded())

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Write the content to ``path`` in one step; an existing file is replaced."""
        target = os.path.abspath(os.fspath(path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        beside = _temporary_path(target)
        try:
            _write(beside, self._loaded(), executable=self._executable)
            os.replace(beside, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise

    def _loaded(self) -> Iterable[bytes]:
        return self._content() if self._content is not None else map(bytes, _read(self.path, UnstorableState))

    def __repr__(self) -> str:
        return f"File({self.path!r})"


class Directory:
    """A folder with all files below it. ``Directory("tokenizer")`` in a state is read when the state is saved.

    Symbolic links to targets in the folder are kept, others are refused. A loaded folder has :meth:`restore`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._loaded: list[dict[str, Any]] | None = None
        self._content: Content | None = None

    def restore(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the folder to ``path``. Raises :class:`FileExistsError` for a non-empty folder, unless ``replace``."""
        if self._loaded is None or self._content is None:
            raise ValueError(f"{self!r} was not loaded from a checkpoint")
        target = os.path.abspath(os.fspath(path))
        if os.path.isdir(target) and os.listdir(target) and not replace:
            raise FileExistsError(f"{target} is not empty; restore(..., replace=True) replaces it")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        beside = _temporary_path(target)
        try:
            os.mkdir(beside)
            with _opened(beside) as top:
                for entry in self._loaded:
                    _restore(top, entry, self._content)
            _swap(beside, target)
        except BaseException:
            _remove(beside)
            raise

    def __repr__(self) -> str:
        return f"Directory({self.path!r})"


def encode_file(file: File, add: Add, refuse: Refuse) -> dict[str, Any]:
    """Return the tree node of a file."""
    if file._content is not None:  # a loaded file is saved again unchanged
        content = file._content
        return {"name": file.path, "x": file._executable, "b": add(lambda: map(memoryview, content()))}
    status = _status(file.path, refuse)
    if not stat.S_ISREG(status.st_mode):
        raise refuse(f"{file.path} is not a file")
    executable = bool(status.st_mode & stat.S_IXUSR)
    return {"name": os.path.basename(file.path), "x": executable, "b": add(lambda: _read(file.path, refuse))}


def decode_file(node: dict[str, Any], content: Content) -> File:
    """Return the file of a tree node."""
    file = File(_named(node))
    file._content = lambda: content(node["b"])
    file._executable = node["x"]
    return file


def encode_directory(directory: Directory, add: Add, refuse: Refuse) -> dict[str, Any]:
    """Return the tree node of a folder."""
    if directory._loaded is not None and directory._content is not None:
        entries = [_encode_loaded(entry, directory._content, add) for entry in directory._loaded]
        return {"name": directory.path, "entries": entries}
    if not stat.S_ISDIR(_status(directory.path, refuse).st_mode):
        raise refuse(f"{directory.path} is not a folder")
    entries = list(_walk(directory.path, add, refuse))
    return {"name": os.path.basename(os.path.abspath(directory.path)), "entries": entries}


def decode_directory(node: dict[str, Any], content: Content) -> Directory:
    """Return the folder of a tree node. Raises :class:`BrokenCheckpoint` for a name that leaves the folder."""
    directory, entries = Directory(_named(node)), list(node["entries"])
    kinds: dict[str, str] = {}
    for entry in entries:
        path = entry["path"]
        if not is_plain(path):
            raise _leaves(path)
        parent = path.rpartition("/")[0]
        if parent and kinds.get(parent) != "folder":
            raise BrokenCheckpoint(
                f"a folder in the checkpoint holds a name whose parent is not a folder: {_shown(path)}"
            )
        if path in kinds:
            raise BrokenCheckpoint(f"a folder in the checkpoint holds a name twice: {_shown(path)}")
        if path.count("/") > _DEEPEST:
            raise BrokenCheckpoint(
                f"a folder in the checkpoint is nested deeper than {_DEEPEST} levels: {_shown(path)}"
            )
        kinds[path] = "file" if "b" in entry else "link" if "link" in entry else "folder"
        if kinds[path] == "file" and not isinstance(entry.get("x"), bool):
            raise BrokenCheckpoint(f"a file in the checkpoint does not say whether it is executable: {_shown(path)}")
    for path, _ in _leaving(entries):
        raise _leaves(path)
    directory._loaded, directory._content = entries, content
    return directory


def _named(node: dict[str, Any]) -> str:
    """The name of a stored file or folder, for messages only."""
    name = node["name"]
    if not isinstance(name, str):
        raise BrokenCheckpoint(f"a name in the checkpoint is not text: {_shown(name)}")
    return name


def _leaves(path: Any) -> BrokenCheckpoint:
    return BrokenCheckpoint(f"a folder in the checkpoint holds a name that leaves it: {_shown(path)}")


def _shown(value: Any) -> str:
    return repr(value)[:200]


def _leaving(entries: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The links that lead out of their folder or to the folder itself, directly or through others, each with its target."""
    links = {tuple(entry["path"].split("/")): entry["link"] for entry in entries if "link" in entry}
    texts = {place: link for place, link in links.items() if isinstance(link, str)}
    for place, link in links.items():
        if not isinstance(link, str) or not link or not leads_to("/".join((*place[:-1], link)), texts):
            yield "/".join(place), link


def _status(path: str, refuse: Refuse) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise refuse(f"{path} cannot be read ({error.strerror})") from error


def _read(path: str, refuse: Refuse, *, follows: bool = True) -> Iterator[memoryview]:
    """The content of a file. Unless ``follows``, a file that was replaced by a link or a pipe is refused."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if follows else _NO_OTHER)), "rb", buffering=0) as file:
            if not (follows or stat.S_ISREG(os.fstat(file.fileno()).st_mode)):
                raise refuse(f"{path} is no longer a file")
            while piece := file.read(_PIECE):
                yield memoryview(piece)
    except OSError as error:
        raise refuse(f"{path} cannot be read ({error.strerror})") from error


def _walk(folder: str, add: Add, refuse: Refuse) -> list[dict[str, Any]]:
    """The entries of a folder, each folder before its content."""
    entries = list(_below(folder, "", add, refuse))
    for path, link in _leaving(entries):
        raise refuse(f"{folder}/{path} points out of the folder, to {link}; store what it points to instead")
    return entries


def _below(folder: str, below: str, add: Add, refuse: Refuse) -> Iterator[dict[str, Any]]:
    if below.count("/") > _DEEPEST:
        raise refuse(f"{folder} is nested deeper than {_DEEPEST} levels")
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise refuse(f"{folder} cannot be read ({error.strerror})") from error
    for entry in entries:
        path = f"{below}{entry.name}"
        if entry.is_symlink():
            yield {"path": path, "link": os.readlink(entry.path)}
        elif entry.is_dir(follow_symlinks=False):
            yield {"path": path}
            yield from _below(entry.path, f"{path}/", add, refuse)
        elif entry.is_file(follow_symlinks=False):
            executable = bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR)
            yield {"path": path, "x": executable, "b": add(_reader(entry.path, refuse))}
        else:
            raise refuse(f"{entry.path} is neither a file nor a folder")


def _reader(path: str, refuse: Refuse) -> Blob:
    return lambda: _read(path, refuse, follows=False)


def _encode_loaded(entry: dict[str, Any], content: Content, add: Add) -> dict[str, Any]:
    if "b" not in entry:
        return entry
    index = entry["b"]
    return {**entry, "b": add(lambda: map(memoryview, content(index)))}


@contextmanager
def _opened(path: str, folder: int | None = None) -> Iterator[int]:
    """An open folder, by its path or its name in another one; a link is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _restore(top: int, entry: dict[str, Any], content: Content) -> None:
    """Write an entry below an open folder. A link put there meanwhile is refused, not followed."""
    *parents, name = entry["path"].split("/")
    with ExitStack() as stack:
        folder = top
        for parent in parents:
            folder = stack.enter_context(_opened(parent, folder))
        if "b" in entry:
            _write(name, content(entry["b"]), executable=entry["x"], folder=folder)
        elif "link" in entry:
            os.symlink(entry["link"], name, dir_fd=folder)
        else:
            os.mkdir(name, dir_fd=folder)


def _write(path: str, content: Iterable[bytes], *, executable: bool, folder: int | None = None) -> None:
    """Write a new file; an existing file or link is refused."""
    mode = 0o777 if executable else 0o666
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.writelines(content)


def _temporary_path(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}.{os.urandom(4).hex()}")


def _swap(beside: str, target: str) -> None:
    """Move a folder to its path; an existing one is moved away first and removed at the end."""
    if not os.path.lexists(target):
        os.rename(beside, target)
        return
    aside = _temporary_path(target)
    os.rename(target, aside)
    os.rename(beside, target)
    _remove(aside)


def _remove(path: str) -> None:
    import shutil

    if os.path.islink(path) or not os.path.isdir(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)
