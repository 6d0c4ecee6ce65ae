"""Give each attempt its own temporary folders and its own layer over the home folder, as the container of a pod would.

A file in ``/tmp`` or ``~/.cache`` does not survive the node of a pod. If it survived an attempt on this machine, a step that
keeps its checkpoint there would seem to resume. So ``/tmp``, ``/var/tmp`` and ``/dev/shm`` are empty when an attempt starts, and
in the home folder an attempt reads the machine's files (credentials, caches) and writes into an overlay that goes with it.

A shim prepares one mount namespace and lets its attempts enter it, one after another. As long as they leave the private folders
unchanged, the namespace is used again: a small task then pays two system calls. After a change it is replaced.

What an attempt must see of the machine below these folders is listed in the order: *shared* paths are the machine's own (the
run's files, checkpoints, paths that the user named); *readable* paths show the machine's content, and folders take writes into
an overlay. The interpreter, its packages and the programs on PATH are readable. In a rehearsal *everything* else of the machine
is readable too, so that no write outlives an attempt unless its path is shared.

Runs in the fork server's interpreter, so it uses only the standard library. Source: mount_namespaces(7).
"""


# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH108, PTH112, PTH123, PTH208 (as in process_identity.py)

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import process_identity  # noqa: TID252 (the package has another name in the fork server)
from . import mounts, private_namespace
from .private_namespace import VOLATILE_FILE, build_and_wait, make_namespace

__all__ = ["PrivateFolders", "drop_temporary_variables", "remove_abandoned", "warm_up", "why_incomplete"]

_SCRATCH = "/var/tmp"  # noqa: S108 (on disk, unlike /tmp on many machines)
_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")


def why_incomplete() -> str:
    """What attempts share with this machine because it cannot be isolated, and why; empty if nothing. Tried in a child process.

    Root with the right to mount can isolate; only others are tried.
    """
    if _may_mount() and _knows_overlays():
        return ""
    text = mounts.try_in_child(_make_empty_namespace)
    return "; ".join(json.loads(text)["problems"]) if text else "attempts share /tmp with this machine"


def _make_empty_namespace() -> bytes:
    return json.dumps(make_namespace({"shared": [], "readable": [], "everything": False}, "", [])).encode()


def warm_up() -> None:
    """Look up what every namespace of this process and its forks needs: in a fork it would cost most of the preparation."""
    _may_mount()
    private_namespace.warm_up()


class PrivateFolders:
    """The private folders of one shim's attempts, which run one after another."""

    def __init__(self) -> None:
        self._wanted: Mapping[str, Any] | None = None
        self._namespaces: list[int] = []  # descriptors: the user namespace if there is one, then the mount namespace
        self._contents: list[
            tuple[int, frozenset[str]]
        ] = []  # descriptor of each private folder, and its initial names
        self._scratch = ""
        self._made: Sequence[str] = ()  # what the scratch folder holds while no attempt leaves files
        self.problems: Sequence[str] = ()

    @property
    def last_descriptor(self) -> int:
        """The highest open descriptor of this object; 0 without any."""
        return max((*self._namespaces, *(descriptor for descriptor, _ in self._contents)), default=0)

    def prepare(self, wanted: Mapping[str, Any] | None) -> None:
        """Make the namespace for the next attempt, unless the last one can be used again. ``None``: nothing is private.

        After every attempt comes :meth:`clean`, so a namespace that exists has no files of an attempt.
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

    def enter(self) -> None:
        """Let this process, a fork of the shim with a single thread, see the private folders. Raises ``OSError``.

        The caller closes every descriptor up to :attr:`last_descriptor` afterwards: the attempt must not keep them.
        """
        for descriptor in self._namespaces:
            mounts.enter_namespace(descriptor, 0)
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
        """Remove what an attempt that has ended left in its private folders."""
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
        except OSError:  # the attempt took the right to read its folder away
            return True

    def _build_here(self, wanted: Mapping[str, Any]) -> bool:
        """Make the namespace in this process, keep descriptors of it, and come back; ``False`` where that is not allowed.

        Only root can come back. For root it takes half of the processor time of a child process.
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
        if name not in own and name in os.environ:  # rarely so; a failed deletion costs a fork several copied pages
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
            if has_user_namespace:  # overlayfs has taken the rights to its folder away, but not from root
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
    if os.path.isdir(path):  # an attempt, or an overlay, has taken even its owner's rights away
        for here, folders, _ in os.walk(path):
            for name in folders:
                with contextlib.suppress(OSError):
                    os.chmod(f"{here}/{name}", 0o700)
        shutil.rmtree(path, ignore_errors=True)
