"""What an engine does about attempts that an earlier one started: read how they ended, end what lives, leave nothing.

An attempt's shim outlives the engine. After ``kill -9`` of the engine a later one settles each attempt: the claim in its
directory decides between them for good. Either nothing has claimed it, then the fence goes there and it never runs; or a
shim has, then it is told that its node is gone, and writes its record. Where the shim itself was killed, its main process
went with it, and what else is left is found by session and by the marks in the environment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.local import cgroups, containers, identity
from spotwright.local.orders import ExitRecord, read_exit

__all__ = ["KILL", "end_all", "fence", "settle", "settle_all", "sweep", "sweep_attempt"]

KILL = signal.SIGUSR1
"""What tells a shim that its node is gone; see :mod:`spotwright.local.shim`."""

_PATIENCE = 10.0
"""Seconds that SIGKILL may take to end a process."""


def settle(directory: str | Path, *, run: str, epoch: int, patience: float = 10.0) -> ExitRecord | None:
    """End one attempt for good and say how it ended; see :func:`settle_all`."""
    return settle_all([directory], run=run, epoch=epoch, patience=patience)[0]


def settle_all(
    directories: Sequence[str | Path], *, run: str, epoch: int, patience: float = 10.0
) -> list[ExitRecord | None]:
    """End attempts for good, all at once, and say how each ended. After this none of them lives or will ever start.

    ``None``: it never ran, or nothing is known of its end (lost). ``epoch`` is the caller's; ``patience`` is how many seconds
    a shim may take to end its attempt before it is killed itself. Raises :class:`StateError` where a directory cannot be
    written.
    """
    claims = [fence(Path(directory), run, epoch) for directory in directories]
    end_all([pidfd for pidfd in map(_open, claims) if pidfd is not None], patience)
    return [_result(Path(directory), claim) for directory, claim in zip(directories, claims, strict=True)]


def end_all(shims: Collection[int], patience: float) -> None:
    """Tell these shims, by pidfd, that their nodes are gone, and wait until all have ended. Closes the pidfds.

    A shim that has not ended after ``patience`` seconds is killed; then :func:`sweep_attempt` is to be called.
    """
    for pidfd in shims:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, KILL)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)  # somebody may have stopped it
    left = _wait(shims, time.monotonic() + patience)
    for pidfd in left:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in _wait(left, time.monotonic() + _PATIENCE):
        os.close(pidfd)  # in the kernel for good, on a dead disk say: it can do nothing any more


def sweep(folder: Path, *, spare: Collection[int] = ()) -> int:
    """Kill whatever a run started and nobody ended, and wait until it is gone. Returns how many processes that were.

    Found by the run's folder in their environment. Spared are this process, those that ``spare`` names by pid, and all
    below them: a fork server that was started early is one of them.
    """
    mark, spared = _mark(folder.resolve()), {os.getpid(), *spare}
    return _kill_until_gone(lambda pid: mark in identity.environ(pid) and not _is_below(pid, spared))


def sweep_attempt(claim: dict[str, Any]) -> int:
    """Kill what is left of one attempt whose shim was killed: its session, and what carries its marks. Returns how many."""
    run = _mark(claim["folder"])
    marks = {run, f"SPOTWRIGHT_TASK={claim['task']}".encode(), f"SPOTWRIGHT_ATTEMPT={claim['attempt']}".encode()}

    def is_left(pid: int) -> bool:
        seen = identity.stat(pid)
        environ = identity.environ(pid)
        # the session's number can have been given away since, so the run's mark must be there too: a process that was
        # forked but never executed shows the fork server's environment, which has it
        ours = seen is not None and run in environ and (seen.session == claim["pid"] or marks <= environ)
        return ours or (seen is not None and (pid, seen.starttime) in contained)

    contained: frozenset[tuple[int, int]] = frozenset()
    if claim.get("container") is not None:
        containers.conclude(claim["container"])
        contained = frozenset(_below_monitors(claim["container"]["name"]))
    killed = _kill_until_gone(is_left)
    if claim["group"] is not None:
        version, parent, name = claim["group"]
        cgroups.remove(cgroups.Group(version, parent).child(name))
    return killed


def _below_monitors(container: str) -> Iterator[tuple[int, int]]:
    """Podman's monitor of a container and all below it, by pid and start time.

    It stays where its client was killed while it started the container, and nobody has heard of that container then.
    """
    found = [pid for pid in identity.pids() if _is_monitor(pid, container)]
    while found:
        pid = found.pop()
        seen = identity.stat(pid)
        if seen is not None:
            yield pid, seen.starttime
            found += identity.children(pid)


def _is_monitor(pid: int, container: str) -> bool:
    try:
        program, *args = identity.read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return False
    return program.endswith(b"conmon") and container.encode() in args


def _mark(folder: object) -> bytes:
    return os.fsencode(f"{identity.FOLDER}={folder}")


def fence(directory: Path, run: str, epoch: int) -> dict[str, Any] | None:
    """Claim the attempt so that nobody ever runs it. Returns the claim of the shim that was first, if one was."""
    me = identity.mine()
    content = {
        "by": "fence",
        "run": run,
        "epoch": epoch,
        "pid": me.pid,
        "starttime": me.starttime,
        "boot_id": me.boot_id,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if identity.claim(directory, content):
            return None
        claim = identity.read_claim(directory)
    except OSError as error:
        raise StateError(
            f"{directory}: cannot be written ({error.strerror}); mend that, then resume the run"
        ) from error
    except ValueError as error:
        raise StateError(f"{directory}/claim: cannot be read; remove it once nothing of the run is alive") from error
    return claim if claim.get("by") == "shim" else None


def _open(claim: dict[str, Any] | None) -> int | None:
    if claim is None:
        return None
    return identity.open_process(identity.Identity(claim["pid"], claim["starttime"], claim["boot_id"]))


def _wait(living: Collection[int], deadline: float) -> list[int]:
    """Wait until the processes of these pidfds have ended. Returns those that have not at the deadline; closes the others."""
    poller, left = select.poll(), set(living)
    for pidfd in left:
        poller.register(pidfd, select.POLLIN)
    while left and (seconds := deadline - time.monotonic()) > 0:
        for pidfd, _ in poller.poll(seconds * 1000):
            poller.unregister(pidfd)
            left.remove(pidfd)
            os.close(pidfd)
    return list(left)


def _result(directory: Path, claim: dict[str, Any] | None) -> ExitRecord | None:
    record = read_exit(directory)
    if claim is None:
        return record  # there is one where its claim could not stay beside it
    if record is None and claim["boot_id"] == identity.boot_id():
        sweep_attempt(claim)
    elif record is None and claim.get("container") is not None:
        containers.conclude(claim["container"])  # it stopped with the machine, and is still there
    return record


def _is_below(pid: int, tops: Collection[int]) -> bool:
    """Whether a process is one of these or below one."""
    while pid > 1:
        if pid in tops:
            return True
        seen = identity.stat(pid)
        if seen is None:
            return False
        pid = seen.parent
    return False


def _kill_until_gone(is_meant: Callable[[int], bool]) -> int:
    """Kill every process that is meant, again until a look at all of them finds none alive, or patience is at its end."""
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        living = [pidfd for pid in identity.pids() if (pidfd := _kill(pid, is_meant, killed)) is not None]
        if not living:
            break
        for pidfd in _wait(living, deadline):
            os.close(pidfd)
    return len(killed)


def _kill(pid: int, is_meant: Callable[[int], bool], killed: set[int]) -> int | None:
    """Kill a process if it is meant and lives. Returns its pidfd, to wait for it."""
    if not is_meant(pid) or not _is_alive(pid):
        return None
    with contextlib.suppress(OSError):  # it ended by itself, or is not ours to kill
        pidfd = os.pidfd_open(pid)
        if is_meant(pid):  # asked again now that the pid cannot be given away unseen
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            killed.add(pid)
            return pidfd
        os.close(pidfd)
    return None


def _is_alive(pid: int) -> bool:
    seen = identity.stat(pid)
    return seen is not None and seen.state not in "ZX"
