"""Give each attempt private temporary folders and a private layer over the home folder, like a pod's container.

A file in ``/tmp`` or ``~/.cache`` does not survive the node of a pod. If it survived an attempt on this machine, a step that
keeps its checkpoint there would seem to resume. So ``/tmp``, ``/var/tmp`` and ``/dev/shm`` are empty when an attempt starts,
and in the home folder an attempt reads the machine's files (credentials, caches) and writes into an overlay that is discarded
with it.

A short-lived process prepares one mount namespace for a shim, whose attempts enter it one after another. While they leave the
private folders unchanged, the namespace is reused: a small task then pays two system calls. After a change it is replaced.

The order lists the machine's paths below these folders that an attempt must see: *shared* paths are the machine's (the run's
files, checkpoints, paths that the user named); *readable* paths show the machine's content, and writes to folders go into an
overlay. The interpreter, its packages and the programs on PATH are readable. In a rehearsal *everything* else of the machine is
readable too, so that only writes to shared paths outlive an attempt.

Runs in the fork server's interpreter, so it uses only the standard library. Source: mount_namespaces(7).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import stat
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import (
    mounts,
    process_identity,
)

__all__ = [
    "VOLATILE_FILE",
    "PrivateFolders",
    "build_and_wait",
    "drop_temporary_variables",
    "forget_visible_paths",
    "is_below",
    "make_namespace",
    "private_folders",
    "remember_visible_paths",
    "remove_abandoned",
    "warm_up_folders",
    "warm_up_namespaces",
    "why_incomplete",
]


# ruff: noqa: PTH101, PTH102, PTH111, PTH112, PTH114, PTH116, PTH119, PTH120, PTH208 (as in process_identity.py)


VOLATILE_FILE = "work/incompat/volatile/dirty"
"""The file in the work folder of a mounted overlay whose upper layer need not survive a crash."""

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (the folders themselves)
_IN_MEMORY = "/dev/shm"  # noqa: S108
_SHARED, _READABLE, _EMPTY = "shared", "readable", "empty"
_MADE_BY_OVERLAYFS = ("work", "work/incompat", "work/incompat/volatile", VOLATILE_FILE)  # in the work folder
_NOT_LAYERED = frozenset({"dev", "proc", "run", "sys", "tmp"})  # of the top-level folders, without files of the user

_remembered: dict[tuple[Any, ...], dict[str, str]] = {}  # visible paths by settings


class _Roots(NamedTuple):
    """The private folders of this machine, with links resolved. ``home`` is empty without a usable one."""

    temporary: tuple[str, ...]
    home: str


def private_folders() -> tuple[str, ...]:
    """The folders with private content in attempts: the temporary folders and the home folder."""
    roots = _roots()
    return (*roots.temporary, *([roots.home] if roots.home else []))


def temporary_folder(path: str) -> str:
    """The temporary folder of this machine in which a path lies; empty if it lies in none."""
    return next((folder for folder in _roots().temporary if path.startswith(f"{folder}/")), "")


def warm_up_namespaces() -> None:
    """Look up the folders for every namespace of this process and its forks: a fifth of the work of making one."""
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

    Descriptors that it opens are added to ``opened``. A process cannot leave a ``user_namespace``.
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
        self.made: list[str] = []  # the folder's content while no attempt has written a file
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
    """Decide for all forks of this process what attempts with these settings see, until the machine's mounts change.

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
    """The mounts, outermost first: private folders as *empty* or *readable*, and the paths in them that the attempt must see."""
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
    code = os.path.dirname(__file__)
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


# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH108, PTH112, PTH123, PTH208 (as in process_identity.py)


_SCRATCH = "/var/tmp"  # noqa: S108 (on disk, unlike /tmp on many machines)
_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")


def _known_hosts() -> bytes:
    """The machine's table of hosts, or empty."""
    try:
        return process_identity.read(mounts.HOSTS).rstrip(b"\n") + b"\n"
    except OSError:
        return b""


def why_incomplete() -> str:
    """What attempts share with this machine because isolation is impossible, and why; else empty. Tried in a child process.

    Root with the right to mount can isolate; only others are tried.
    """
    if _may_mount() and _knows_overlays():
        return ""
    text = mounts.try_in_child(_make_empty_namespace)
    return "; ".join(json.loads(text)["problems"]) if text else "attempts share /tmp with this machine"


def _make_empty_namespace() -> bytes:
    return json.dumps(make_namespace({"shared": [], "readable": [], "everything": False}, "", [])).encode()


def warm_up_folders() -> None:
    """Look up the data for every namespace of this process and its forks: in a fork it would be most of the preparation."""
    _may_mount()
    warm_up_namespaces()


class PrivateFolders:
    """The private folders of one shim's attempts, which run one after another."""

    def __init__(self) -> None:
        self._wanted: Mapping[str, Any] | None = None
        self._namespaces: list[int] = []  # descriptors: the user namespace if there is one, then the mount namespace
        self._contents: list[
            tuple[int, frozenset[str]]
        ] = []  # descriptor of each private folder, and its initial names
        self._scratch = ""
        self._made: Sequence[str] = ()  # the scratch folder's content while no attempt leaves files
        self.problems: Sequence[str] = ()

    @property
    def last_descriptor(self) -> int:
        """The highest open descriptor of this object; 0 without any."""
        return max((*self._namespaces, *(descriptor for descriptor, _ in self._contents)), default=0)

    def prepare(self, wanted: Mapping[str, Any] | None) -> None:
        """Make the namespace for the next attempt, unless the last one can be reused. ``None``: no folder is private.

        :meth:`clean` follows every attempt, so an existing namespace has no files of attempts.
        """
        if wanted is None or self._wanted == wanted:
            return
        self.remove()
        self._wanted = wanted
        self._scratch = _make_scratch()
        try:
            if not (_may_mount() and self._build_here(wanted)):
                self._build(wanted)
        except OSError as error:
            self.problems = (f"attempts share /tmp and the home folder with this machine: {error.strerror or error}",)

    def enter(self, host: str = "", directory: str = "") -> None:
        """Let this process, a fork of the shim with a single thread, see the private folders. Raises ``OSError``.

        With ``host`` it gets this host name, and its own boot id from a file that is made in ``directory``. The caller
        closes every descriptor up to :attr:`last_descriptor` afterwards: the attempt must not keep them.
        """
        for descriptor in self._namespaces:
            mounts.enter_namespace(descriptor)
        if host and self._namespaces:
            boot_id = f"{directory}/boot_id"
            with open(boot_id, "w", encoding="ascii") as file:
                file.write(f"{uuid.uuid4()}\n")
            hosts = f"{directory}/hosts"
            with open(hosts, "wb") as file:
                file.write(_known_hosts() + f"127.0.0.1 {host}\n".encode())  # like a pod's
            mounts.become_host(host, boot_id, hosts)
            os.unlink(hosts)
            os.unlink(boot_id)  # the mount keeps the file
        if len(self._namespaces) > 1:
            mounts.drop_capabilities()

    def environment(self, own: Mapping[str, str], directory: str) -> dict[str, str]:
        """The variables that name a temporary folder, if it cannot be private: then a folder of the attempt."""
        if self._namespaces or "TMPDIR" in own:
            return {}
        folder = f"{directory}/scratch/tmp"
        os.makedirs(folder, exist_ok=True)
        return {"TMPDIR": folder}

    def clean(self) -> None:
        """Remove an ended attempt's files in its private folders."""
        if self._wanted is not None and self._is_changed():
            self.remove()

    def remove(self) -> None:
        """Remove the namespace and the files in it."""
        has_user_namespace = len(self._namespaces) > 1
        self._close_descriptors()
        if self._scratch:
            try:
                _remove_unused(self._scratch, self._made, has_user_namespace)
            except OSError:  # an attempt has left files
                _remove_tree(self._scratch)
        self._wanted, self.problems, self._scratch, self._made = None, (), "", ()

    def _close_descriptors(self) -> None:
        for descriptor in (*self._namespaces, *(descriptor for descriptor, _ in self._contents)):
            os.close(descriptor)
        self._namespaces, self._contents = [], []

    def _is_changed(self) -> bool:
        try:
            return any(frozenset(os.listdir(descriptor)) != names for descriptor, names in self._contents)
        except OSError:  # the attempt made its folder unreadable
            return True

    def _build_here(self, wanted: Mapping[str, Any]) -> bool:
        """Make the namespace in this process, keep descriptors of it, and return; ``False`` if that is not allowed.

        Only root can return from it, at half of the processor time of a child process.
        """
        opened = [os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)]
        opened += [os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in ("/", ".")]
        before = opened[0], opened[1], opened[2]
        try:
            made = make_namespace(wanted, self._scratch, opened, user_namespace=False)
            if made["isolated"]:
                self.problems = made["problems"]
                self._open("self", made)
            return bool(made["isolated"])
        finally:
            mounts.return_to(*before)
            for descriptor in opened:
                os.close(descriptor)

    def _build(self, wanted: Mapping[str, Any]) -> None:
        """Make the namespace in a child process, and keep descriptors of it."""
        report_reader, report_writer = os.pipe()
        release_reader, release_writer = os.pipe()
        builder = os.fork()
        if builder == 0:
            build_and_wait(wanted, self._scratch, report_writer, release_reader, (report_reader, release_writer))
        os.close(report_writer)
        os.close(release_reader)
        try:
            with open(report_reader, "rb") as report:
                text = report.readline()
            if not text:
                raise OSError("its processes cannot have a mount namespace")
            made = json.loads(text)
            self.problems = made["problems"]
            if made["isolated"]:
                self._open(builder, made)
        finally:
            os.close(release_writer)
            os.waitpid(builder, 0)

    def _open(self, builder: int | str, made: Mapping[str, Any]) -> None:
        self._made = made["made"]
        kinds = ["user", "mnt"] if made["has_user_namespace"] else ["mnt"]
        self._namespaces = [os.open(f"/proc/{builder}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
        for path in made["private"]:
            descriptor = os.open(f"/proc/{builder}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._contents.append((descriptor, frozenset(os.listdir(descriptor))))


def drop_temporary_variables(own: Mapping[str, str]) -> None:
    """Remove the machine's TMPDIR and its like from the environment, unless the attempt's own variables set them."""
    for name in _TEMPORARY_VARIABLES:
        if name not in own and name in os.environ:  # rare; a failed deletion costs a fork several copied pages
            del os.environ[name]


@functools.cache
def _may_mount() -> bool:
    """Whether this process, and so each fork of it, has CAP_SYS_ADMIN."""
    fields = process_identity.read("/proc/self/status").split()
    return bool(int(fields[fields.index(b"CapEff:") + 1], 16) >> 21 & 1)


def _knows_overlays() -> bool:
    return b"overlay" in process_identity.read("/proc/filesystems").split()


def remove_abandoned() -> None:
    """Remove what killed shims have left on disk."""
    prefix = _scratch_prefix()
    with contextlib.suppress(OSError):
        for name in os.listdir(_SCRATCH):
            if name.startswith(prefix) and not _is_in_use(name.removeprefix(prefix)):
                _remove_tree(f"{_SCRATCH}/{name}")


def _scratch_prefix() -> str:
    return f"spotwright-{os.getuid()}-"


def _make_scratch() -> str:
    """A new folder of this shim on disk; empty if none can be made."""
    own = process_identity.mine()
    path = f"{_SCRATCH}/{_scratch_prefix()}{own.pid}-{own.starttime}"
    with contextlib.suppress(OSError):
        os.mkdir(path, 0o700)
        return path
    return ""


def _is_in_use(owner: str) -> bool:
    """Whether the shim with this pid and start time lives."""
    pid, _, starttime = owner.partition("-")
    if not (pid.isdecimal() and starttime.isdecimal()):
        return True  # not one of ours
    current = process_identity.stat(int(pid))
    return current is not None and current.starttime == int(starttime)


def _remove_unused(scratch: str, made: Sequence[str], has_user_namespace: bool) -> None:
    """Remove a scratch folder without reading its folders. Raises ``OSError`` if they hold anything that is not in ``made``."""
    for name in reversed(made):
        path = f"{scratch}/{name}"
        if name.endswith(VOLATILE_FILE):
            if has_user_namespace:  # overlayfs has removed the rights to its folder, except root's
                os.chmod(path.removesuffix(VOLATILE_FILE) + "work", 0o700)
            os.unlink(path)
        else:
            os.rmdir(path)
    os.rmdir(scratch)


def _remove_tree(path: str) -> None:
    try:
        _remove_folder(path)
    except (OSError, RecursionError):
        _remove_stubborn_tree(path)


def _remove_folder(path: str) -> None:
    """Remove a folder and its content, links but not their targets. Raises ``OSError`` and ``RecursionError``."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_folder(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


def _remove_stubborn_tree(path: str) -> None:
    import shutil  # imported at the top, or for a few empty folders, it would copy hundreds of pages in every fork

    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):  # an attempt or an overlay has removed even the owner's rights
        for here, folders, _ in os.walk(path):
            for name in folders:
                with contextlib.suppress(OSError):
                    os.chmod(f"{here}/{name}", 0o700)
        shutil.rmtree(path, ignore_errors=True)
