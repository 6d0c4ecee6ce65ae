"""End the attempts of earlier engines on this machine for good, and read how they ended.

An attempt's shim outlives the engine. After ``kill -9`` of the engine the next one settles each attempt. The claim in the
attempt's directory decides between shim and engine, once for all. An unclaimed attempt is fenced by the engine and never runs.
If a shim has the claim, the engine signals that its node is gone, and the shim writes its record. If the shim was killed, its
main process was killed with it; other processes are found by their session and by the marks in their environment.

A claim is a file, and a state folder may be untrusted. Processes and paths in a claim are ended, executed or deleted only if
the kernel, or a name derived from the attempt, proves that they belong to the run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from spotwright.engine.events import AttemptEnded, Event, NodeChanged
from spotwright.engine.state import RunState
from spotwright.errors import StateError
from spotwright.local.attempt_orders import AttemptPaths
from spotwright.local.ends import ObservedEnd, ended_event, hide_secrets
from spotwright.local.protocol import OUT, ExitRecord, read_exit
from spotwright.local.supervisor import cgroups, process_identity
from spotwright.model.attempts import Signals

__all__ = [
    "KILL",
    "end_all",
    "fence",
    "hide_secrets_everywhere",
    "settle",
    "settle_all",
    "settle_run",
    "sweep",
    "sweep_attempt",
]


KILL = signal.SIGUSR1
"""The signal to a shim that its node is gone; see :mod:`spotwright.local.supervisor.fork_server`."""

_ENDING = 5.0  # seconds in which a process without an environment has to end
_PATIENCE = 10.0
"""Seconds that SIGKILL may take to end a process."""


def settle(directory: str | Path, *, folder: Path, run: str, epoch: int, patience: float = 10.0) -> ExitRecord | None:
    """End one attempt for good. Returns how it ended; see :func:`settle_all`."""
    return settle_all([directory], folder=folder, run=run, epoch=epoch, patience=patience)[0]


def settle_all(
    directories: Sequence[str | Path], *, folder: Path, run: str, epoch: int, patience: float = 10.0
) -> list[ExitRecord | None]:
    """End attempts for good, all at once. Returns how each ended. Afterwards none is alive or can start.

    ``None``: the attempt never ran, or its end is unknown (lost). ``folder`` is the run's, ``epoch`` that of the calling
    engine; ``patience`` is the time in seconds for a shim to end its attempt before it is killed. Raises
    :class:`StateError` if a directory cannot be written, or has another run's claim; then nothing was ended.
    """
    claims = [fence(Path(directory), folder, run, epoch) for directory in directories]
    shims: list[int] = []
    try:
        for directory, claim in zip(directories, claims, strict=True):
            if (pidfd := _open(Path(directory), claim)) is not None:
                shims.append(pidfd)
    except StateError:
        for pidfd in shims:
            os.close(pidfd)
        raise
    end_all(shims, patience)
    return [_result(Path(directory), claim) for directory, claim in zip(directories, claims, strict=True)]


def end_all(shims: Collection[int], patience: float) -> None:
    """Signal these shims, by pidfd, that their nodes are gone, and wait until all have ended. Closes the pidfds.

    A shim that has not ended after ``patience`` seconds is killed; the caller then calls :func:`sweep_attempt`.
    """
    for pidfd in shims:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, KILL)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)  # the user may have stopped it
    left = _wait(shims, time.monotonic() + patience)
    for pidfd in left:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in _wait(left, time.monotonic() + _PATIENCE):
        os.close(pidfd)  # stuck in the kernel, for example on a dead disk: it can do no more harm


def sweep(folder: Path, *, spare: Collection[int] = ()) -> int:
    """Kill all remaining processes of a run, and wait until they have ended. Returns their number.

    A process of the run has the run's folder in its environment. Spared are this process, the pids in ``spare`` (such as an
    early fork server), and their descendants.
    """
    mark, spared = _mark(folder.resolve()), {os.getpid(), *spare}
    return _kill_until_gone(lambda pid: mark in process_identity.environ(pid) and not _is_below(pid, spared))


def sweep_attempt(claim: dict[str, Any]) -> int:
    """Kill the remaining processes of an attempt whose shim was killed: its session, and those with its marks.

    Returns their number.
    """
    run = _mark(claim["folder"])
    marks = {run, f"SPOTWRIGHT_TASK={claim['task']}".encode(), f"SPOTWRIGHT_ATTEMPT={claim['attempt']}".encode()}

    def is_left(pid: int) -> bool:
        stat = process_identity.stat(pid)
        environ = process_identity.environ(pid)
        # Another session may have the same number by now, so the run's mark is required too. A process that was forked and
        # never executed another program shows the environment of the fork server, which has that mark.
        ours = stat is not None and run in environ and (stat.session == claim["pid"] or marks <= environ)
        return ours or (stat is not None and (pid, stat.starttime) in contained)

    contained: frozenset[tuple[int, int]] = frozenset()
    if claim.get("container") is not None:
        _conclude(claim["container"])
        contained = frozenset(_below_monitors(claim["container"]["name"]))
    killed = _kill_until_gone(is_left)
    if claim["group"] is not None:
        cgroups.remove(cgroups.own_group(claim["group"]))
    return killed


def _conclude(container: dict[str, Any]) -> None:
    """Remove a container and its folder; only runs with containers import its module."""
    from spotwright.local.supervisor import containers

    containers.conclude(container)


def _below_monitors(container: str) -> Iterator[tuple[int, int]]:
    """Podman's monitor of a container and its descendants, by pid and start time.

    If the client was killed while it started the container, podman does not know it, and the monitor stays.
    """
    pids = [pid for pid in process_identity.pids() if _is_monitor(pid, container)]
    while pids:
        pid = pids.pop()
        stat = process_identity.stat(pid)
        if stat is not None:
            yield pid, stat.starttime
            pids += process_identity.children(pid)


def _is_monitor(pid: int, container: str) -> bool:
    try:
        program, *args = process_identity.read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return False
    return program.endswith(b"conmon") and container.encode() in args


def _mark(folder: object) -> bytes:
    return os.fsencode(f"{process_identity.FOLDER}={folder}")


def fence(directory: Path, folder: Path, run: str, epoch: int) -> dict[str, Any] | None:
    """Claim the attempt of a run in ``folder``, so that no shim runs it. Returns the claim of the shim that was first, or None.

    Raises :class:`StateError` if a link leads the directory out of the folder, and for a claim on things that are not the
    attempt's.
    """
    real = folder.resolve()
    if not directory.resolve().is_relative_to(real):
        raise StateError(f"{directory}: leads out of the run's folder through a symbolic link; remove the link")
    me = process_identity.mine()
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
        if process_identity.claim(directory, content):
            return None
        claim = process_identity.read_claim(directory)
        return _own(claim, folder, real) if claim.get("by") == "shim" else None
    except OSError as error:
        raise StateError(
            f"{directory}: cannot be written ({error.strerror}); mend that, then resume the run"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(
            f"{directory}/claim: cannot be read ({error}); remove it once no process of the run is alive"
        ) from error


def _own(claim: dict[str, Any], folder: Path, real: Path) -> dict[str, Any]:
    """The claim of a shim with this run's names in place of its own. Raises ``ValueError`` and the like."""
    identity, group = process_identity.read_identity(claim), claim["group"]
    container = None
    if claim.get("container") is not None:
        from spotwright.local.supervisor.containers import own_container

        container = own_container(claim, {str(claim["folder"]), str(folder.absolute()), str(real)})
    if group is not None and identity.boot_id == process_identity.boot_id():
        cgroups.own_group(group)
    return {
        **identity._asdict(),
        "folder": str(real),
        "task": str(claim["task"]),
        "attempt": int(claim["attempt"]),
        "group": group,
        "container": container,
    }


def _open(directory: Path, claim: dict[str, Any] | None) -> int | None:
    """A pidfd of the shim; ``None`` if it has ended. Raises :class:`StateError` for a process that is not of the run."""
    if claim is None:
        return None
    pidfd = process_identity.open_process(process_identity.read_identity(claim))
    environment = frozenset() if pidfd is None else process_identity.environ(claim["pid"])
    if pidfd is None or _mark(claim["folder"]) in environment:
        return pidfd
    # A process loses its environment some time before its end.
    has_ended = bool(select.select([pidfd], [], [], 0 if any(environment) else _ENDING)[0])
    os.close(pidfd)
    if has_ended:
        return None
    raise StateError(
        f"{directory}/claim: names process {claim['pid']}, which lives and is not an attempt of this run; it was not ended. "
        "Remove the folder if it comes from elsewhere"
    )


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
        return record  # without hard links the shim renamed its claim to the record
    if record is None and claim["boot_id"] == process_identity.boot_id():
        sweep_attempt(claim)
    elif record is None and claim.get("container") is not None:
        _conclude(claim["container"])  # the container stopped with the machine and still exists
    return record


def _is_below(pid: int, tops: Collection[int]) -> bool:
    """Whether a process is one of ``tops`` or a descendant of one."""
    while pid > 1:
        if pid in tops:
            return True
        stat = process_identity.stat(pid)
        if stat is None:
            return False
        pid = stat.parent
    return False


def _kill_until_gone(matches: Callable[[int], bool]) -> int:
    """Kill matching processes repeatedly until none is alive or patience is over. Returns the number killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        living = [pidfd for pid in process_identity.pids() if (pidfd := _kill(pid, matches, killed)) is not None]
        if not living:
            break
        for pidfd in _wait(living, deadline):
            os.close(pidfd)
    return len(killed)


def _kill(pid: int, matches: Callable[[int], bool], killed: set[int]) -> int | None:
    """Kill a process if it matches and is alive. Returns its pidfd, to wait for it."""
    if not matches(pid) or not _is_alive(pid):
        return None
    with contextlib.suppress(OSError):  # it ended by itself, or belongs to another user
        pidfd = os.pidfd_open(pid)
        if matches(pid):  # checked again: from here the pidfd excludes reuse
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            killed.add(pid)
            return pidfd
        os.close(pidfd)
    return None


def _is_alive(pid: int) -> bool:
    stat = process_identity.stat(pid)
    return stat is not None and stat.state not in "ZX"


def settle_run(state: RunState, paths: AttemptPaths, *, secrets_known: bool = True) -> list[Event]:
    """End every attempt that had a node when the last engine ended. Returns the facts about them, oldest first.

    Afterwards all processes of the run have ended. ``secrets_known`` is false if the run's secrets cannot be read: as they
    could not be hidden in outputs, the outputs are deleted and the attempts count as cancelled.
    """
    bound = [task for task in map(state.tasks.__getitem__, state.under_way) if task.last.bound_at is not None]
    directories = [paths.attempt(task.path, task.last.number) for task in bound]
    records = settle_all(directories, folder=paths.folder, run=paths.run, epoch=paths.epoch)
    events: list[Event] = []
    for task, directory, record in zip(bound, directories, records, strict=True):
        attempt, key, at = task.last, (task.path, task.last.number), _ended_at(state, record)
        if secrets_known:
            observed = ObservedEnd(
                noticed=attempt.noticed_at is not None, spot=_is_spot(state, attempt.pool), engine_gone=True
            )
            events.append(ended_event(at, key, task.plan.spec, directory, record, observed, paths))
        else:
            from shutil import rmtree  # here: all runs import this module, and few delete anything

            rmtree(directory / OUT, ignore_errors=True)
            events.append(AttemptEnded(at, *key, signals=Signals(cancelled=True), settled=True))
    sweep(paths.folder)
    events.sort(key=lambda event: event.at)
    return [*events, *_lost_nodes(state, events[-1].at if events else state.last_at)]


def hide_secrets_everywhere(state: RunState, paths: AttemptPaths) -> None:
    """Hide secrets in the outputs of every attempt of the run: the last engine may have ended before it did so."""
    if paths.secrets:
        for task in chain(state.tasks.values(), state.retired.values()):
            for attempt in task.attempts:
                hide_secrets(paths.attempt(task.path, attempt.number), paths.secrets)


def _ended_at(state: RunState, record: ExitRecord | None) -> float:
    if record is None or any(order.what == "kill" for order in record.ordered):
        return state.last_at
    return max(state.last_at, record.ended_at)


def _lost_nodes(state: RunState, at: float) -> list[Event]:
    """The ends of the simulated nodes: at the end of their engine, or of the last attempt that outlived it."""
    gone = [node for node in state.nodes.values() if node.gone_at is None]
    return [NodeChanged(at, node=n.name, pool=n.pool, state="gone", why="its engine ended") for n in gone]


def _is_spot(state: RunState, pool: str | None) -> bool | None:
    configured = state.plan.config.pools.get(pool or "")
    return configured.is_spot if configured is not None else None
