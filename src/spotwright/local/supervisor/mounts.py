"""Mount volume claims, secret files and empty folders for one attempt at the pipeline's paths.

A pod sees ``/data`` because its container has its own file system. An attempt gets the same from a mount namespace: its mounts
exist only for the attempt's processes, and end with the last of them. Ordinary users may not mount, so their attempts also get
a user namespace, with the same user inside.

A missing mount point is made in an in-memory copy of its nearest existing parent folder, with that folder's entries
bind-mounted. The machine's own file system stays unchanged.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "bind",
    "drop_capabilities",
    "enter",
    "enter_namespace",
    "make_read_only",
    "mount_file_system",
    "return_to",
    "try_in_child",
    "unshare",
    "why_impossible",
]


# ruff: noqa: PTH102, PTH103, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH206, PTH208, PTH211 (as in process_identity.py)


_NEWNS, _NEWUTS, _NEWUSER = 0x00020000, 0x04000000, 0x10000000
HOSTS = "/etc/hosts"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_DETACH = 2
_KEPT_FLAGS = {os.ST_NOSUID: 2, os.ST_NODEV: 4, os.ST_NOEXEC: 8, os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CAPABILITIES = 0x20080522  # the version of capset(2) with two words of capabilities
_MAX_ENTRIES = 512  # of a folder whose entries are bind-mounted; a larger one, such as /tmp, becomes empty

_libc = ctypes.CDLL(None, use_errno=True)
_UNSIGNED_LONG, _TEXT = ctypes.c_ulong, ctypes.c_char_p


def _function(name: str, *types: Any) -> Any:
    """A function of the C library, looked up and typed once: after a fork each page that a conversion touches is copied."""
    function = getattr(_libc, name)
    function.argtypes = types
    return function


_setns = _function("setns", ctypes.c_int, ctypes.c_int)
_unshare = _function("unshare", ctypes.c_int)
_system_mount = _function("mount", _TEXT, _TEXT, _TEXT, _UNSIGNED_LONG, _TEXT)
_umount = _function("umount2", _TEXT, ctypes.c_int)
_prctl = _function("prctl", ctypes.c_int, *[_UNSIGNED_LONG] * 4)  # variadic; it reads whole words


def enter(mounts: Sequence[Mapping[str, Any]], staging: str) -> None:
    """Move this process, which must have a single thread, into a namespace with these mounts. ``staging`` is an empty folder.

    A mount has a ``target``, and a ``source`` (a folder) or ``files`` (read-only texts by name). With neither it is an empty
    folder in memory of at most ``size`` bytes. The caller reads ``optional``. Raises ``OSError``.
    """
    if not mounts:
        return
    has_user_namespace = unshare()
    for mount in sorted(mounts, key=lambda each: str(each["target"])):  # a mount inside another one comes later
        _make_mount_point(mount["target"], staging)
        _mount(mount)
    if has_user_namespace:
        drop_capabilities()


def why_impossible() -> str:
    """Why attempts cannot have mounts on this machine; empty if they can. Tried in a child process."""
    return "" if try_in_child(_try_to_mount) else "users of this machine may not make mount namespaces"


def _try_to_mount() -> bytes:
    unshare()
    mount_file_system("tmpfs", "/tmp")  # noqa: S108 (a folder that exists)
    return b"+"


def try_in_child(attempt: Callable[[], bytes]) -> bytes:
    """The result of a function that changes its process, tried in a forked child; empty if it raises.

    The caller holds Ctrl-C back: an interrupted child would continue the parent's code.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, attempt())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as result:
        data = result.read()
    os.waitpid(child, 0)
    return data


def unshare(*, user_namespace: bool = True) -> bool:
    """Enter a new mount namespace, and a new user namespace if that is needed and wanted. Returns whether it was."""
    uid, gid = os.geteuid(), os.getegid()
    has_user_namespace = False
    try:
        _call(_unshare, _NEWNS)
    except PermissionError:
        if not user_namespace:
            raise
        _call(_unshare, _NEWNS | _NEWUSER)
        has_user_namespace = True
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _call(_system_mount, b"none", b"/", None, _REC | _PRIVATE, None)
    return has_user_namespace


def become_host(name: str, boot_id: str, hosts: str) -> None:
    """Give this process its own host name and boot id, like a pod's on another machine. Raises ``OSError``.

    ``boot_id`` is a file with the id, ``hosts`` one that replaces ``/etc/hosts``, if that exists: programs such as torchrun
    look up their host's address. Source: uts_namespaces(7), proc_sys_kernel(5), hosts(5).
    """
    _call(_unshare, _NEWNS | _NEWUTS)
    text = name.encode()
    _call(_libc.sethostname, text, len(text))
    bind(boot_id, _BOOT_ID)
    if os.path.exists(HOSTS):  # noqa: PTH110 (as in process_identity.py)
        bind(hosts, HOSTS)


def drop_capabilities() -> None:
    """Drop the capabilities that the user namespace gave; become dumpable again and die with the parent again."""
    parent = os.getppid()
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    _call(_libc.capset, header, none)
    _call(_prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)
    _call(_prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # the change of credentials has reset it
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _make_mount_point(target: str, staging: str) -> None:
    """Make the mount point, visible to this namespace only."""
    if os.path.isdir(target):
        return
    above = target
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    above = os.path.realpath(above)
    below = os.path.relpath(target, above)
    entries = os.listdir(above)
    if len(entries) > _MAX_ENTRIES:
        os.makedirs(target)
        return
    mode = stat.S_IMODE(os.stat(above).st_mode)
    os.makedirs(staging, exist_ok=True)
    mount_file_system("tmpfs", staging, f"mode={mode:o}")
    ours = os.path.relpath(staging, above).split(os.sep)[0]
    for name in sorted(
        entries, key=lambda name: name != ours
    ):  # the entry that contains the staging folder is mounted first, while that folder is empty
        _mount_entry(os.path.join(above, name), os.path.join(staging, name))
    os.makedirs(os.path.join(staging, below))
    if above == "/":
        _become_root(staging)
    else:
        bind(staging, above)


def _mount_entry(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        bind(source, target)


def _become_root(folder: str) -> None:
    os.chdir(folder)
    try:
        _call(_libc.pivot_root, b".", b".")
        _call(_umount, b".", _DETACH)
    except (AttributeError, OSError):  # the initial root file system cannot be pivoted
        os.chroot(".")
    os.chdir("/")


def _mount(mount: Mapping[str, Any]) -> None:
    target = mount["target"]
    if "source" in mount:
        bind(mount["source"], target)
        if mount.get("read_only"):
            make_read_only(target)
        return
    size = mount.get("size")
    mount_file_system("tmpfs", target, f"size={size}" if size else "")
    if "files" in mount:
        for name, text in mount["files"].items():
            with open(os.path.join(target, name), "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
        make_read_only(target)


def enter_namespace(descriptor: int) -> None:
    """``setns(2)``: join the namespace, of any kind, that a descriptor refers to. Raises ``OSError``."""
    _call(_setns, descriptor, 0)


def return_to(namespace: int, root: int, folder: int) -> None:
    """Leave a mount namespace for an earlier one of this process, with its root and current folder, all as descriptors."""
    enter_namespace(namespace)
    os.fchdir(root)
    os.chroot(".")
    os.fchdir(folder)


def mount_file_system(kind: str, target: str, options: str = "") -> None:
    """Mount a new file system of this kind. Raises ``OSError``."""
    _call(_system_mount, b"none", os.fsencode(target), kind.encode(), 0, options.encode() or None)


def bind(source: str, target: str) -> None:
    """Make a file or folder, with the mounts below it, visible at a second path too. Raises ``OSError``."""
    _call(_system_mount, os.fsencode(source), os.fsencode(target), None, _BIND | _REC, None)


def make_read_only(target: str) -> None:
    """Make an existing bind mount read-only. Raises ``OSError``."""
    current = os.statvfs(target).f_flag
    kept = sum(flag for status_flag, flag in _KEPT_FLAGS.items() if current & status_flag)
    _call(_system_mount, b"none", os.fsencode(target), None, _REMOUNT | _BIND | _RDONLY | kept, None)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
