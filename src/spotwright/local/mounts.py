"""Mounts for one attempt on this machine: a claim's folder, a secret's files or an empty folder at the path the pipeline names.

A pod sees ``/data`` because its container has a file system of its own. An attempt gets the same by a mount namespace: what is
mounted there exists for it and what it starts, and for nobody else, and goes with its last process. Without the right to
mount, which ordinary users do not have, the attempt gets a user namespace too, in which it is the same user.

A path that does not exist here is made in a copy of the folder above it, which lies in memory and in which everything that is
there is mounted again; nothing is made on the machine itself.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

# ruff: noqa: PTH102, PTH103, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH206, PTH208, PTH211 (as in identity.py)

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["enter", "why_impossible"]

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_DETACH = 2
_KEPT_FLAGS = {os.ST_NOSUID: 2, os.ST_NODEV: 4, os.ST_NOEXEC: 8, os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048}
_PR_SET_DUMPABLE = 4
_CAPABILITIES = 0x20080522  # the version of capset(2) with two words of capabilities
_MANY = 512  # entries of a folder that are not all mounted again; a folder such as /tmp takes another empty one

_libc = ctypes.CDLL(None, use_errno=True)


def enter(mounts: Sequence[Mapping[str, Any]], staging: str) -> None:
    """Give this process a file system with these mounts. It must have one thread. ``staging`` is an empty folder.

    A mount has a ``target``, and a ``source`` (a folder), ``files`` (texts by name, which are only to be read), or neither: then
    it is an empty folder in memory, of at most ``size`` bytes. (``optional`` is for the caller.) Raises ``OSError``.
    """
    if not mounts:
        return
    with_user = _separate()
    for mount in sorted(mounts, key=lambda each: str(each["target"])):  # what stands in another comes after it
        _make_room(mount["target"], staging)
        _mount(mount)
    if with_user:
        _let_go()


def why_impossible() -> str:
    """Why attempts can have no mounts here; empty where they can. Tried in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with contextlib.suppress(OSError):
                _separate()
                _call(_libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
                os.write(writing, b"+")
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        possible = answer.read() == b"+"
    os.waitpid(child, 0)
    return "" if possible else "this machine lets its users make no mount namespaces"


def _separate() -> bool:
    """A mount namespace, by means of a user namespace where that is needed. Returns whether it was."""
    uid, gid = os.geteuid(), os.getegid()
    with_user = False
    try:
        _call(_libc.unshare, _NEWNS)
    except PermissionError:
        _call(_libc.unshare, _NEWNS | _NEWUSER)
        with_user = True
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _call(_libc.mount, b"none", b"/", None, _REC | _PRIVATE, None)
    return with_user


def _let_go() -> None:
    """Have no capability any more, which the user namespace brought, and be visible and mortal as before."""
    parent = os.getppid()
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    _call(_libc.capset, header, none)
    _call(_libc.prctl, _PR_SET_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0)
    _call(_libc.prctl, 1, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)  # the change of rights has taken it back
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _make_room(target: str, staging: str) -> None:
    """Make a folder at ``target``, for us alone."""
    if os.path.isdir(target):
        return
    above = target
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    above = os.path.realpath(above)
    below = os.path.relpath(target, above)
    entries = os.listdir(above)
    if len(entries) > _MANY:
        os.makedirs(target)
        return
    mode = stat.S_IMODE(os.stat(above).st_mode)
    os.makedirs(staging, exist_ok=True)
    _call(_libc.mount, b"none", os.fsencode(staging), b"tmpfs", 0, f"mode={mode:o}".encode())
    ours = os.path.relpath(staging, above).split(os.sep)[0]
    for name in sorted(entries, key=lambda name: name != ours):  # what holds the staging comes while that is empty
        _carry(os.path.join(above, name), os.path.join(staging, name))
    os.makedirs(os.path.join(staging, below))
    if above == "/":
        _become_root(staging)
    else:
        _bind(staging, above)


def _carry(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # it went while we looked
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        _bind(source, target)


def _become_root(folder: str) -> None:
    os.chdir(folder)
    try:
        _call(_libc.pivot_root, b".", b".")
        _call(_libc.umount2, b".", _DETACH)
    except (AttributeError, OSError):  # the first file system of a machine cannot be left so
        os.chroot(".")
    os.chdir("/")


def _mount(mount: Mapping[str, Any]) -> None:
    target = mount["target"]
    if "source" in mount:
        _bind(mount["source"], target)
        if mount.get("read_only"):
            _make_read_only(target)
        return
    size = mount.get("size")
    _call(_libc.mount, b"none", os.fsencode(target), b"tmpfs", 0, f"size={size}".encode() if size else None)
    if "files" in mount:
        for name, text in mount["files"].items():
            with open(os.path.join(target, name), "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
        _make_read_only(target)


def _bind(source: str, target: str) -> None:
    _call(_libc.mount, os.fsencode(source), os.fsencode(target), None, _BIND | _REC, None)


def _make_read_only(target: str) -> None:
    seen = os.statvfs(target).f_flag
    kept = sum(flag for known, flag in _KEPT_FLAGS.items() if seen & known)
    _call(_libc.mount, b"none", os.fsencode(target), None, _REMOUNT | _BIND | _RDONLY | kept, None)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _call(function: Any, *arguments: Any) -> None:
    if function(*(_flags(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _flags(argument: Any) -> Any:
    return ctypes.c_ulong(argument) if isinstance(argument, int) else argument
