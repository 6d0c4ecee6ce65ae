"""Real processes of attempts, started and watched without ever blocking the engine's loop.

One object for one engine. It keeps a fork server for each Python environment, sends start orders to them, holds a pidfd of
every attempt's shim, and turns what the selector says into :class:`~spotwright.local.orders.Started`,
:class:`~spotwright.local.orders.Ended` and :class:`~spotwright.local.orders.StartFailed`. Every order ends in exactly one of
the last two.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import selectors
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spotwright.errors import SpotwrightError, StateError
from spotwright.local import cgroups, identity, recovery
from spotwright.local.environments import Build, cache_folder, find_python, without_credentials
from spotwright.local.orders import (
    CLAIM,
    Ended,
    Environment,
    ExitRecord,
    Ordered,
    Started,
    StartFailed,
    StartOrder,
    read_exit,
)
from spotwright.local.servers import ForkServer

__all__ = [
    "Ended",
    "Environment",
    "ExitRecord",
    "Ordered",
    "Processes",
    "StartFailed",
    "StartOrder",
    "Started",
    "require_linux",
]

_DESCRIPTORS = 65536  # an attempt costs the engine and its fork server one each


def require_linux() -> None:
    """Raise :class:`StateError` where attempts cannot be run safely: they need pidfds, so Linux 5.3."""
    if not sys.platform.startswith("linux"):
        raise StateError(f"runs on this machine need Linux, and this is {sys.platform}: use WSL 2 or a container")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise StateError(
            f"runs on this machine need Linux 5.3 or newer with pidfds, and this is {os.uname().release}"
        ) from error


@dataclass(slots=True)
class _Attempt:
    """An order on its way: waiting for its environment, sent to a server, running."""

    order: StartOrder
    server: ForkServer | None = None
    pidfd: int | None = None
    claim: dict[str, Any] | None = None  # what its shim writes there: for a sweep when the shim is killed
    asked: signal.Signals | None = None  # an order to end that came before there was a shim to take it


class Processes:
    """Runs attempts. Every descriptor is registered with a function without arguments as its ``data``.

    The loop calls ``key.data()`` for each ready descriptor and :meth:`pump` before it waits again. ``folder`` is one of the
    run's that stays; ``cache`` is where built environments are kept. Raises :class:`StateError` where this machine cannot
    do it.
    """

    def __init__(self, selector: selectors.BaseSelector, *, run: str, folder: Path, cache: Path | None = None) -> None:
        require_linux()
        _allow_descriptors()
        self._selector, self._folder = selector, folder.resolve()
        self._marks = identity.marks(run, folder)
        self._cache = cache or cache_folder()
        self._servers: dict[Environment, ForkServer] = {}
        self._builds: dict[Environment, Build] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._components: dict[str, str] = {}
        self._events: list[Started | Ended | StartFailed] = []

    def warm(self, server: ForkServer | None = None) -> None:
        """Start the running interpreter's fork server before the first order needs it, or use one that was started."""
        if server is None:
            self._prepare(Environment())
        else:
            self._add(Environment(), server)

    def order(self, order: StartOrder) -> None:
        """Start an attempt as soon as its environment is ready."""
        if order.key in self._attempts:
            raise ValueError(f"{order.key} runs already")
        attempt = self._attempts[order.key] = _Attempt(order)
        self._start(attempt)

    def terminate(self, key: str) -> None:
        """SIGTERM to the attempt's process group; nothing when it has ended."""
        self._ask(key, signal.SIGTERM)

    def kill(self, key: str) -> None:
        """SIGKILL to the whole attempt, now; nothing when it has ended."""
        self._ask(key, recovery.KILL)

    def pump(self) -> list[Started | Ended | StartFailed]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    def close(self, patience: float = 10.0) -> None:
        """Kill what runs, forget what waits, end builds and servers. Nothing of it is left afterwards, and no event comes."""
        for build in list(self._builds.values()):
            self._selector.unregister(build.pidfd)
            build.cancel()
        self._builds.clear()
        for server in list(self._servers.values()):
            self._lose(server)
        running = [attempt.pidfd for attempt in self._attempts.values() if attempt.pidfd is not None]
        for pidfd in running:
            self._selector.unregister(pidfd)
        recovery.end_all(running, patience)
        for attempt in self._attempts.values():
            if attempt.claim is not None and read_exit(attempt.order.directory) is None:
                recovery.sweep_attempt(attempt.claim)
        self._attempts.clear()
        self._events.clear()

    # -- environments and servers

    def _prepare(self, environment: Environment) -> ForkServer | None:
        """The fork server of an environment; ``None`` while the environment is being built."""
        if environment in self._servers or environment in self._builds:
            return self._servers.get(environment)
        python = find_python(environment, self._cache)
        if python is None:
            build = self._builds[environment] = Build.start(environment, self._cache, self._marks)
            self._selector.register(build.pidfd, selectors.EVENT_READ, partial(self._on_built, build))
            return None
        return self._add(environment, ForkServer(python, self._marks))

    def _add(self, environment: Environment, server: ForkServer) -> ForkServer:
        self._servers[environment] = server
        self._selector.register(server, selectors.EVENT_READ, partial(self._on_server, server))
        return server

    def _on_built(self, build: Build) -> None:
        self._selector.unregister(build.pidfd)
        del self._builds[build.environment]
        problem = build.finish()
        waiting = [a for a in self._attempts.values() if a.server is None and a.order.environment == build.environment]
        for attempt in waiting:
            if problem:
                self._fail(attempt.order.key, problem)
            else:
                self._start(attempt)

    def _start(self, attempt: _Attempt) -> None:
        """Send the attempt to its fork server, or let it wait for its packages."""
        try:
            server = self._prepare(attempt.order.environment)
            if server is not None:
                message = self._message(attempt.order)
                attempt.server = server
                server.send(message)
                self._listen(server)
        except (OSError, SpotwrightError) as error:
            self._fail(attempt.order.key, str(error))

    def _message(self, order: StartOrder) -> dict[str, Any]:
        """The order as the fork server and the shim read it."""
        marks = {"SPOTWRIGHT_RUN": order.run, "SPOTWRIGHT_TASK": order.task, "SPOTWRIGHT_ATTEMPT": str(order.attempt)}
        return {
            "key": order.key,
            "directory": order.directory,
            "folder": str(self._folder),
            "run": order.run,
            "task": order.task,
            "attempt": order.attempt,
            "epoch": order.epoch,
            "component": self._component(order.module) if not order.command else "",
            "command": order.command,
            "container": order.container,
            "mounts": order.mounts,
            "files": order.files,
            "fetches": order.fetches,
            "function": order.function,
            "executor_input": json.dumps(order.executor_input),
            "env": {**marks, **order.env},
            "timeout": order.timeout,
            "grace": order.grace,
            "memory_limit": order.memory_limit,
            "group": _group(order),
            "mask": [secret.decode("latin-1") for secret in order.mask],
            "hold": order.hold,
        }

    def _component(self, source: str) -> str:
        """A component's source as a file, once for all its attempts: workers of ``multiprocessing`` import it again."""
        path = self._components.get(source)
        if path is None:
            folder = self._folder / "components" / hashlib.sha256(source.encode()).hexdigest()[:32]
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "ephemeral_component.py"
            temporary = folder / f".{os.getpid()}.tmp"
            temporary.write_text(source, "utf-8")
            temporary.rename(file)
            path = self._components[source] = str(file)
        return path

    def _listen(self, server: ForkServer) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if server.wants_to_send else 0)
        key = self._selector.get_key(server)
        if key.events != events:
            self._selector.modify(server, events, key.data)

    def _on_server(self, server: ForkServer) -> None:
        server.flush()
        messages, alive = server.receive()
        for message, pidfd in messages:
            self._heard(message, pidfd)
        if alive:
            self._listen(server)
        else:
            self._lose(server)

    def _heard(self, message: dict[str, Any], pidfd: int | None) -> None:
        if "failed" in message:
            self._fail(message["failed"], f"no process could be started: {message['why']}", ours=True)
        elif "buried" in message:
            self._lost(self._attempts[message["buried"]])
        else:
            self._watch(self._attempts[message["started"]], message["pid"], message["starttime"], pidfd)

    def _lose(self, server: ForkServer) -> None:
        """A server has gone: what it had not started never runs, and the next order starts another one."""
        self._selector.unregister(server)
        self._servers = {environment: other for environment, other in self._servers.items() if other is not server}
        said = server.close()
        for attempt in [a for a in self._attempts.values() if a.server is server and a.pidfd is None]:
            if attempt.claim is None:
                self._settle_unstarted(attempt, said)
            else:
                self._lost(attempt)

    def _settle_unstarted(self, attempt: _Attempt, said: str) -> None:
        """Nobody has said that it began. It may have begun all the same: then its claim says so, and it goes on."""
        order, server = attempt.order, attempt.server
        try:
            claim = recovery.fence(Path(order.directory), order.run, order.epoch)
        except StateError as error:  # no shim could write its claim either
            self._fail(order.key, str(error))
            return
        if claim is not None:
            who = identity.Identity(claim["pid"], claim["starttime"], claim["boot_id"])
            self._watch(attempt, who.pid, who.starttime, identity.open_process(who))
        elif server is not None and (server.ready or server.was_killed):
            self._fail(order.key, f"its process was lost before it began: {said or 'killed'}", ours=True)
        else:
            problem = without_credentials(said) or "it did not start"
            self._fail(order.key, f"the Python environment cannot be used: {problem}")

    # -- attempts

    def _watch(self, attempt: _Attempt, pid: int, starttime: int, pidfd: int | None) -> None:
        order = attempt.order
        attempt.claim = {
            "folder": str(self._folder),
            "task": order.task,
            "attempt": order.attempt,
            "pid": pid,
            "group": _group(order),
            "container": order.container,
        }
        self._events.append(Started(order.key, pid, starttime))
        if pidfd is None:
            self._ended(attempt)
            return
        attempt.pidfd = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, partial(self._on_ended, attempt))
        if attempt.asked is not None:
            self._ask(order.key, attempt.asked)

    def _on_ended(self, attempt: _Attempt) -> None:
        if attempt.pidfd is not None:
            self._selector.unregister(attempt.pidfd)
            os.close(attempt.pidfd)
            attempt.pidfd = None
        self._ended(attempt)

    def _ended(self, attempt: _Attempt) -> None:
        """The shim has gone. With a record all is said; without one, what it may have left comes first."""
        order, server = attempt.order, attempt.server
        record = read_exit(order.directory)
        if record is not None:
            del self._attempts[order.key]
            self._events.append(Ended(order.key, record))
        elif not Path(order.directory, CLAIM).exists():
            self._settle_unstarted(attempt, "")
        elif server is not None and server in self._servers.values():
            server.send({"bury": order.key})
            self._listen(server)
        else:
            self._lost(attempt)

    def _lost(self, attempt: _Attempt) -> None:
        """Nothing is known of the attempt's end: kill what can be found of it, then say so."""
        if attempt.server not in self._servers.values():  # nobody has collected its orphans
            shims = [other.claim["pid"] for other in self._attempts.values() if other.claim and other is not attempt]
            recovery.sweep(self._folder, spare=shims)
        if attempt.claim is not None:
            recovery.sweep_attempt(attempt.claim)
        del self._attempts[attempt.order.key]
        self._events.append(Ended(attempt.order.key, None))

    def _ask(self, key: str, number: signal.Signals) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(attempt.pidfd, number)
        elif attempt.server is not None:  # on its way, or ended already
            attempt.asked = number if attempt.asked is not recovery.KILL else attempt.asked
        else:  # nothing has been sent to anybody
            del self._attempts[key]
            self._events.append(Ended(key, None))

    def _fail(self, key: str, reason: str, *, ours: bool = False) -> None:
        del self._attempts[key]
        self._events.append(StartFailed(key, reason, ours))


def _group(order: StartOrder) -> tuple[int, str, str] | None:
    """Where the attempt's control group is to be made; ``None`` without a limit, or where none can be made."""
    parent = cgroups.parent() if order.memory_limit is not None else None
    if parent is None:
        return None
    name = hashlib.sha256(json.dumps([order.run, order.task, order.attempt, order.epoch]).encode()).hexdigest()[:24]
    return parent.version, parent.path, name


def _allow_descriptors() -> None:
    """Raise the soft limit of open files as far as is useful; attempts inherit it, as from a shell that does so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
