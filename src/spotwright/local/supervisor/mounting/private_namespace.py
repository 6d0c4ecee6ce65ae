"""Build the mount namespace with an attempt's private folders, in a short-lived process; see :mod:`.private_folders`.

Overlayfs refuses layers that lie inside one another (kernel documentation, overlayfs), so upper layers are in a scratch folder
outside of the home folder, or in memory if its file system cannot hold them.

Runs in the fork server's interpreter, so it uses only the standard library.
"""


# ruff: noqa: PTH101, PTH102, PTH111, PTH112, PTH114, PTH116, PTH119, PTH120, PTH208 (as in process_identity.py)

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .. import process_identity  # noqa: TID252 (the package has another name in the fork server)
from . import mounts

__all__ = [
    "VOLATILE_FILE",
    "build_and_wait",
    "forget_visible_paths",
    "is_below",
    "make_namespace",
    "private_folders",
    "remember_visible_paths",
    "warm_up",
]

VOLATILE_FILE = "work/incompat/volatile/dirty"
"""The file in the work folder of a mounted overlay whose upper layer need not survive a crash."""

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (the folders themselves)
_IN_MEMORY = "/dev/shm"  # noqa: S108
_SHARED, _READABLE, _EMPTY = "shared", "readable", "empty"
_MADE_BY_OVERLAYFS = ("work", "work/incompat", "work/incompat/volatile", VOLATILE_FILE)  # in the work folder
_NOT_LAYERED = frozenset(
    {"dev", "proc", "run", "sys", "tmp"}
)  # of the top-level folders: they hold no files of the user
_OF_THE_SYSTEM = frozenset({"bin", "boot", "etc", "lib", "lib32", "lib64", "lost+found", "sbin", "usr", "var"})

_remembered: dict[tuple[Any, ...], dict[str, str]] = {}  # visible paths by settings


class _Roots(NamedTuple):
    """The private folders of this machine, with links resolved. ``home`` is empty if there is no usable one."""

    temporary: tuple[str, ...]
    home: str


def private_folders() -> tuple[str, ...]:
    """The folders whose content is an attempt's own: the temporary folders and the home folder."""
    roots = _roots()
    return (*roots.temporary, *([roots.home] if roots.home else []))


def warm_up() -> None:
    """Look up the folders that every namespace of this process and its forks needs: that takes a fifth of making one."""
    _roots()
    _of_interpreter(tuple(sys.path))


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether an absolute path lies inside one of the folders. A folder does not lie inside itself."""
    return any(path.startswith(f"{folder}/") for folder in folders)


def build_and_wait(wanted: Mapping[str, Any], scratch: str, report: int, release: int, foreign: Sequence[int]) -> None:
    """Make the namespace, report it, and live until the shim has opened it. Never returns."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for descriptor in foreign:
            os.close(descriptor)
        os.write(report, json.dumps(make_namespace(wanted, scratch, [])).encode() + b"\n")
        os.read(release, 1)
    except OSError as error:
        problem = f"attempts share /tmp and the home folder with this machine: {error.strerror}"
        os.write(report, json.dumps({"isolated": False, "problems": [problem]}).encode() + b"\n")
    finally:
        os._exit(0)


def make_namespace(
    wanted: Mapping[str, Any], scratch: str, opened: list[int], *, user_namespace: bool = True
) -> dict[str, Any]:
    """Enter a namespace with private folders. Returns what the shim must know of it. Raises ``OSError``.

    Descriptors that it opens are added to ``opened``. A process cannot come back from a ``user_namespace``.
    """
    roots = _roots()
    visible = _remembered.get(_key(wanted)) or _visible_paths(wanted, roots)
    try:
        has_user_namespace = mounts.unshare(user_namespace=user_namespace)
    except OSError:
        problem = "attempts share /tmp and the home folder with this machine: its users may not make mount namespaces"
        return {"isolated": False, "problems": [problem]}
    sources = dict(_open_sources(visible))
    opened += sources.values()
    stage = _Stage(_open_stage(scratch, roots), opened, has_user_namespace)
    private: dict[str, None] = {}
    not_layered: list[str] = []
    for path, source in sources.items():
        try:
            private |= dict.fromkeys(_make_visible(path, visible[path], source, stage))
        except OSError:
            if path not in (roots.home, *_layered(wanted, roots)):
                raise
            not_layered.append(path)
    if has_user_namespace:
        mounts.drop_capabilities()
    return {
        "isolated": True,
        "has_user_namespace": has_user_namespace,
        "problems": [f"attempts share {' and '.join(not_layered)} with this machine: no overlay is possible"]
        * bool(not_layered),
        "private": list(private),
        "made": stage.made,
    }


def _open_sources(paths: Sequence[str] | Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for path in paths:
        with contextlib.suppress(PermissionError, FileNotFoundError):  # a mount of another user
            yield path, os.open(path, os.O_PATH)


class _Stage:
    """The folder with the content of private folders and the upper layers of overlays."""

    def __init__(self, descriptor: int, opened: list[int], has_user_namespace: bool) -> None:
        self.made: list[str] = []  # what the folder holds as long as no attempt has written a file
        opened.append(descriptor)
        self._path = f"/proc/self/fd/{descriptor}"
        self._descriptor, self._opened = descriptor, opened
        self._memory = -1
        self._on_disk: dict[str, str] = {}  # private folders whose content is in a folder of the stage
        self._options = ",volatile" + (",userxattr" if has_user_namespace else "")
        self._number = 0

    def make_private(self, folder: str) -> str:
        """Replace a temporary folder by an empty one. Returns its path below the builder's ``/proc`` folder."""
        if folder == _IN_MEMORY:
            mounts.mount_file_system("tmpfs", folder, "mode=1777")
        else:
            own = self._make_folder(self._path)
            os.chmod(own, 0o1777)  # noqa: S103 (as /tmp is)
            mounts.bind(own, folder)
            self._on_disk[folder] = self.made[-1]
        return f"root{folder}"

    def lay_over(self, source: int, target: str) -> str:
        """Mount an overlay on a folder: reads see ``source``, writes stay here. Returns the path of the upper layer."""
        try:
            return self._overlay(self._descriptor, source, target)
        except OSError:  # the file system of the stage cannot be an upper layer, or lies inside the folder
            if self._memory < 0:
                self._memory = self._open_memory()
                self._opened.append(self._memory)
            return self._overlay(self._memory, source, target)

    def make_mount_point(self, path: str, *, is_folder: bool) -> Iterator[str]:
        """Make a folder or file to mount on. Yields the private folders that are made for it, as :meth:`make_private` does."""
        above = os.path.dirname(path)
        missing = []
        while not os.path.isdir(above):
            missing.append(above)
            above = os.path.dirname(above)
        for folder in reversed(missing):
            self._make_in_private_folder(folder)
            yield f"root{folder}"
        if is_folder:
            with contextlib.suppress(FileExistsError):
                self._make_in_private_folder(path)
        elif not os.path.lexists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))

    def _make_in_private_folder(self, path: str) -> None:
        os.mkdir(path)
        for folder, own in self._on_disk.items():
            if path.startswith(f"{folder}/"):
                self.made.append(own + path.removeprefix(folder))

    def _overlay(self, stage: int, source: int, target: str) -> str:
        own = f"/proc/self/fd/{stage}"
        upper, work = self._make_folder(own), self._make_folder(own)
        mode = stat.S_IMODE(os.stat(f"/proc/self/fd/{source}").st_mode)
        os.chmod(upper, mode)
        options = f"lowerdir=/proc/self/fd/{source},upperdir={upper},workdir={work}{self._options}"
        mounts.mount_file_system("overlay", target, options)
        if stage == self._descriptor:
            self.made += [f"{self._number}/{name}" for name in _MADE_BY_OVERLAYFS]
        return f"fd/{stage}/{os.path.basename(upper)}"

    def _make_folder(self, where: str) -> str:
        self._number += 1
        path = f"{where}/{self._number}"
        os.mkdir(path)
        if where == self._path:
            self.made.append(f"{self._number}")
        return path

    def _open_memory(self) -> int:
        folder = self._make_folder(self._path)
        mounts.mount_file_system("tmpfs", folder)
        return os.open(folder, os.O_PATH)


def _open_stage(scratch: str, roots: _Roots) -> int:
    """A descriptor of the scratch folder; without one, of a folder in memory that a private folder will cover."""
    if not scratch:
        scratch = roots.temporary[0]
        mounts.mount_file_system("tmpfs", scratch)
    return os.open(scratch, os.O_PATH)


def _make_visible(path: str, kind: str, source: int, stage: _Stage) -> Iterator[str]:
    """Mount one path of the namespace. Yields the private folders and upper layers that this makes."""
    is_folder = os.path.isdir(f"/proc/self/fd/{source}")
    if kind == _EMPTY:
        yield stage.make_private(path)
        return
    yield from stage.make_mount_point(path, is_folder=is_folder)
    if kind == _READABLE and is_folder:
        yield stage.lay_over(source, path)
        return
    mounts.bind(f"/proc/self/fd/{source}", path)
    if kind == _READABLE:
        mounts.make_read_only(path)


def remember_visible_paths(wanted: Mapping[str, Any]) -> None:
    """Decide for all forks of this process what an attempt with these settings sees, until the mounts of the machine change.

    The decision needs dozens of paths looked up, and copies as many pages in a fork.
    """
    paths = [*wanted["shared"], *wanted["readable"]]
    key = _key(wanted)
    if key not in _remembered and not wanted["everything"] and all(map(os.path.exists, paths)):
        _remembered[key] = _visible_paths(wanted, _roots())


def forget_visible_paths() -> None:
    """Look every path up again, because the mounts of the machine have changed."""
    _remembered.clear()


def _key(wanted: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*wanted["shared"], None, *wanted["readable"], wanted["everything"])


def _visible_paths(wanted: Mapping[str, Any], roots: _Roots) -> dict[str, str]:
    """What to mount, outermost first: private folders as *empty* or *readable*, and in them what the attempt must see."""
    layered = _layered(wanted, roots)
    shared = {*map(os.path.realpath, wanted["shared"]), *_mount_points_below(layered)} - {roots.home, *roots.temporary}
    readable = {*map(os.path.realpath, wanted["readable"]), *_of_interpreter(tuple(sys.path)), *layered}
    visible: dict[str, str] = {}
    for path in sorted({*shared, *readable, *roots.temporary}, key=len):
        kind = _EMPTY if path in roots.temporary else _SHARED if path in shared else _READABLE
        above = [visible[other] for other in visible if path.startswith(f"{other}/")]
        is_private = kind == _EMPTY or path in layered
        if (is_private or above) and above[-1:] not in ([_SHARED], [kind]) and os.access(path, os.F_OK):
            visible[path] = kind
    return visible


def _layered(wanted: Mapping[str, Any], roots: _Roots) -> list[str]:
    """The folders that get an overlay: the home folder; all others too if no write may reach the machine."""
    folders = [roots.home] if roots.home else []
    if wanted["everything"]:
        names = (name for name in os.listdir("/") if name not in _NOT_LAYERED and not os.path.islink(f"/{name}"))
        folders += [f"/{name}" for name in names if os.path.isdir(f"/{name}")]
    return folders


@functools.cache
def _of_interpreter(imported_from: tuple[str, ...]) -> frozenset[str]:
    """The folders of the interpreter, its packages and this code, and those on PATH and PYTHONPATH, with links resolved."""
    code = os.path.dirname(os.path.dirname(__file__))
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), code]
    for path in imported_from:
        if path.startswith("/"):
            folders += [path, *_linked_packages(path)]
    for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"):
        folders += [path for path in os.environ.get(name, "").split(":") if path.startswith("/")]
    return frozenset(map(os.path.realpath, folders))


def _linked_packages(folder: str) -> Iterator[str]:
    """Where the packages lie that an environment only links (KFP's runtime and Spotwright)."""
    if os.path.basename(folder) == "linked-packages" and os.path.isdir(folder):
        yield from (os.path.realpath(entry.path) for entry in os.scandir(folder) if entry.is_symlink())


def _mount_points_below(folders: Sequence[str]) -> Iterator[str]:
    """Mount points inside folders: an overlay shows only the file system of the folder itself."""
    if folders:
        for line in process_identity.read("/proc/self/mountinfo").splitlines():
            path = os.fsdecode(line.split(None, 5)[4].replace(b"\\040", b" "))
            if is_below(path, folders):
                yield path


def _roots() -> _Roots:
    return _roots_with(os.path.expanduser("~"))


@functools.cache
def _roots_with(home_folder: str) -> _Roots:
    temporary = tuple(dict.fromkeys(os.path.realpath(folder) for folder in _TEMPORARY if os.path.isdir(folder)))
    outermost = tuple(folder for folder in temporary if not is_below(folder, temporary))
    home = os.path.realpath(home_folder)
    is_usable = os.path.isdir(home) and home != "/" and home not in outermost
    holds_temporary = any(folder.startswith(f"{home}/") for folder in outermost)
    return _Roots(outermost, home if is_usable and not holds_temporary else "")
