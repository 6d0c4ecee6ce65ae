"""Starts and watches the processes of attempts without blocking the engine's loop.

An engine has one :class:`AttemptProcesses`. It keeps a fork server per Python environment, requests shims from it, sends each
shim one start order after another, and translates what the selector reports into ``Started``, ``Ended`` and ``StartFailed`` of
:mod:`~spotwright.local.protocol`. Every order ends in exactly one of the last two. Orders cross to the supervisor's processes
as JSON; sources of components go into files, so that each is sent once.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spotwright.errors import SpotwrightError, StateError
from spotwright.local import recovery
from spotwright.local.fork_server_client import Channel, ForkServer, ShimConnection, TrackedAttempt
from spotwright.local.host import allow_descriptors, require_linux
from spotwright.local.protocol import (
    CLAIM,
    Ended,
    ExitRecord,
    PythonEnvironment,
    Started,
    StartFailed,
    StartOrder,
    read_exit,
)
from spotwright.local.python_envs import BuildFailure, EnvironmentBuilds, cache_folder
from spotwright.local.supervisor import cgroups, process_identity

__all__ = ["AttemptProcesses", "OrderCodec", "cgroup_of"]


class OrderCodec:
    """Encodes the orders of a run. Component sources are written below the run's absolute ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._components: dict[str, str] = {}

    def encode(self, order: StartOrder) -> dict[str, Any]:
        """The order as JSON data. Raises ``OSError`` if the component's source cannot be written."""
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
            "group": cgroup_of(order),
            "secrets": [secret.decode("latin-1") for secret in order.secrets],
            "private": order.private.data if order.private is not None else None,
            "hold": order.hold,
            "host": order.host,
        }

    def claim(self, order: StartOrder, pid: int) -> dict[str, Any]:
        """The fields of the claim by the shim with this pid that a sweep needs."""
        return {
            "folder": str(self._folder),
            "task": order.task,
            "attempt": order.attempt,
            "pid": pid,
            "group": cgroup_of(order),
            "container": order.container,
        }

    def _component(self, source: str) -> str:
        """Write a component's source to a file, once for all its attempts; ``multiprocessing`` workers import it too."""
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


def cgroup_of(order: StartOrder) -> tuple[int, str, str] | None:
    """Version, parent and name for the attempt's control group; ``None`` without a limit, or if none can be made."""
    parent = cgroups.parent() if order.memory_limit is not None else None
    if parent is None:
        return None
    name = hashlib.sha256(json.dumps([order.run, order.task, order.attempt, order.epoch]).encode()).hexdigest()[:24]
    return parent.version, parent.path, name


ENVIRONMENT_LOGS = "environments"
"""The subfolder of the run with the build logs of Python environments."""

_MAX_IDLE = 32  # shims per fork server that wait for further attempts


class AttemptProcesses:
    """Runs attempts. Every descriptor is registered in the selector with a function without arguments as its ``data``.

    The loop calls ``key.data()`` for each ready descriptor and :meth:`pump` before it waits again. ``folder`` is a lasting
    folder of the run; ``cache`` is the folder of built environments. Raises :class:`UnsupportedPlatform` if this machine
    cannot run attempts.
    """

    def __init__(self, selector: selectors.BaseSelector, *, run: str, folder: Path, cache: Path | None = None) -> None:
        require_linux()
        allow_descriptors()
        self._selector, self._folder = selector, folder.resolve()
        self._marks, self._codec = process_identity.marks(run, folder), OrderCodec(self._folder)
        self.builds = EnvironmentBuilds(selector, cache or cache_folder(), self._folder / ENVIRONMENT_LOGS, self._marks)
        self._servers: dict[PythonEnvironment, ForkServer] = {}
        self._attempts: dict[str, TrackedAttempt] = {}
        self._connections: dict[int, ShimConnection] = {}  # by number of the shim
        self._requested = 0  # shims so far
        self._reaping: dict[int, TrackedAttempt] = {}  # by number of the killed shim
        self._events: list[Started | Ended | StartFailed] = []

    def warm(self, server: ForkServer | None = None) -> None:
        """Start the running interpreter's fork server before the first order, or take over a started one."""
        if server is None:
            self._server_for(PythonEnvironment())
        else:
            self._add_server(PythonEnvironment(), server)

    def order(self, order: StartOrder) -> None:
        """Start an attempt. If its environment was deleted meanwhile, it waits for a new build."""
        if order.key in self._attempts:
            raise ValueError(f"{order.key} was ordered before")
        attempt = self._attempts[order.key] = TrackedAttempt(order)
        self._start(attempt)

    def terminate(self, key: str) -> None:
        """Send SIGTERM to the attempt's process group; do nothing if it has ended."""
        self._request_end(key, signal.SIGTERM)

    def kill(self, key: str) -> None:
        """Kill the whole attempt now; do nothing if it has ended."""
        self._request_end(key, recovery.KILL)

    def pump(self) -> list[Started | Ended | StartFailed]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def detach(self) -> None:
        """Release everything without ending it, as if the engine were killed: attempts continue under their shims.

        Waiting attempts never run. A later engine settles the rest (:mod:`.recovery`).
        """
        self.builds.cancel()
        for connection in self._connections.values():
            connection.channel.flush()  # an order in transit arrives whole or not at all
            self._selector.unregister(connection.channel)
            connection.channel.close()
            if connection.pidfd is not None:
                os.close(connection.pidfd)
        for server in self._servers.values():
            self._selector.unregister(server.channel)
            server.close()
        self._connections.clear()
        self._servers.clear()
        self._attempts.clear()
        self._events.clear()

    def close(self, patience: float = 10.0) -> None:
        """Kill running attempts, drop waiting ones, end builds and servers, leaving no process and no event."""
        self.builds.cancel()
        for connection in self._connections.values():
            if connection.attempt is None:
                connection.channel.finish()  # an idle shim removes its private folders while the servers end
        for server in list(self._servers.values()):
            self._remove_server(server)
        for connection in self._connections.values():
            self._selector.unregister(connection.channel)
            message = connection.await_identity() if not connection.pid else None
            if message is not None:
                self._identified(connection, message)
            connection.channel.close()
            connection.open_pidfd()
        recovery.end_all(
            [connection.pidfd for connection in self._connections.values() if connection.pidfd is not None], patience
        )
        for attempt in self._attempts.values():
            if attempt.claim is not None and read_exit(attempt.order.directory) is None:
                recovery.sweep_attempt(attempt.claim)
        self._connections.clear()
        self._attempts.clear()
        self._events.clear()

    # -- environments and servers

    def _server_for(self, environment: PythonEnvironment) -> ForkServer | None:
        """The fork server of an environment; ``None`` if the environment has to be built."""
        if environment in self._servers:
            return self._servers[environment]
        python = self.builds.find_python(environment)
        return None if python is None else self._add_server(environment, ForkServer(python, self._marks))

    def _add_server(self, environment: PythonEnvironment, server: ForkServer) -> ForkServer:
        self._servers[environment] = server
        self._selector.register(server.channel, selectors.EVENT_READ, partial(self._on_server, server))
        self._update_selector(server.channel)
        for number, channel in server.early.items():
            server.idle.append(self._add_connection(ShimConnection(number, server, channel, None)).number)
        server.early.clear()
        return server

    def _on_built(self, attempt: TrackedAttempt, failure: BuildFailure | None) -> None:
        if self._attempts.get(attempt.order.key) is not attempt:  # ended meanwhile
            return
        if failure is not None:
            self._fail(attempt.order.key, str(failure))
        else:
            self._start(attempt)

    def _start(self, attempt: TrackedAttempt) -> None:
        """Send the order to a shim, or queue it for its environment or for room."""
        try:
            server = self._server_for(attempt.order.environment)
            if server is None:
                self.builds.build(attempt.order.environment, partial(self._on_built, attempt))
            elif not server.has_room:
                server.waiting.append(attempt)
            else:
                message = self._codec.encode(attempt.order)
                connection = attempt.connection = self._connection_for(server, attempt, message["private"])
                self._send(connection, message)
        except (OSError, SpotwrightError) as error:
            self._fail(attempt.order.key, str(error))
            return
        if attempt.connection is not None and attempt.connection.pid:
            self._began(attempt.connection, attempt)

    def _connection_for(
        self, server: ForkServer, attempt: TrackedAttempt, private: Mapping[str, Any] | None
    ) -> ShimConnection:
        """The connection to the last used idle shim, or to a new one."""
        if server.idle:
            connection = self._connections[server.idle.pop()]
            connection.attempt = attempt
            return connection
        self._requested += 1
        channel = server.fork(self._requested, private)
        self._update_selector(server.channel)
        return self._add_connection(ShimConnection(self._requested, server, channel, attempt))

    def _add_connection(self, connection: ShimConnection) -> ShimConnection:
        """Watch the connection to a shim that was requested."""
        self._connections[connection.number] = connection
        connection.server.starting.add(connection.number)
        self._selector.register(connection.channel, selectors.EVENT_READ, partial(self._on_shim, connection))
        return connection

    def _send(self, connection: ShimConnection, message: Mapping[str, Any]) -> None:
        connection.channel.send(message)
        self._update_selector(connection.channel)

    def _update_selector(self, channel: Channel) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)
        key = self._selector.get_key(channel)
        if key.events != events:
            self._selector.modify(channel, events, key.data)

    def _on_server(self, server: ForkServer) -> None:
        if server not in self._servers.values():  # lost while earlier selector results were handled
            return
        server.channel.flush()
        messages, alive = server.receive()
        for message in messages:
            self._on_server_message(message)
        if alive:
            self._update_selector(server.channel)
            return
        self._remove_server(server)
        for attempt in server.waiting:
            if self._attempts.get(attempt.order.key) is attempt:
                self._settle_unstarted(attempt, server)

    def _on_server_message(self, message: dict[str, Any]) -> None:
        if "reaped" in message:
            self._lost(self._reaping.pop(message["reaped"]))
        else:
            connection = self._connections.get(message["failed"])
            if connection is None:
                return
            self._remove_connection(connection)
            if connection.attempt is not None:
                self._fail(connection.attempt.order.key, f"no process could be started: {message['why']}", ours=True)
                self._start_waiting(connection.server)

    def _remove_server(self, server: ForkServer) -> None:
        """Remove a server that has ended. Its shims complete their attempts; the next order starts another server."""
        self._selector.unregister(server.channel)
        self._servers = {environment: other for environment, other in self._servers.items() if other is not server}
        server.close()
        for number in server.idle:
            self._connections[number].channel.finish()
        for number, attempt in list(self._reaping.items()):
            if attempt.connection is not None and attempt.connection.server is server:
                self._lost(self._reaping.pop(number))

    # -- shims

    def _identified(self, connection: ShimConnection, message: dict[str, Any]) -> None:
        """A new shim has reported its identity."""
        connection.identify(message)
        connection.server.starting.discard(connection.number)
        if connection.attempt is not None:
            self._began(connection, connection.attempt)

    def _start_waiting(self, server: ForkServer) -> None:
        """Start waiting attempts while a shim is idle or another one may start."""
        while server.waiting and server.has_room and server in self._servers.values():
            attempt = server.waiting.popleft()
            if self._attempts.get(attempt.order.key) is attempt:  # not ended meanwhile
                self._start(attempt)

    def _on_shim(self, connection: ShimConnection) -> None:
        if connection.number not in self._connections:  # removed while earlier selector results were handled
            return
        connection.channel.flush()
        messages, alive = connection.channel.receive()
        for message in messages:
            if "pid" in message:
                self._identified(connection, message)
            elif "idle" in message:
                self._dismiss(connection)
            else:
                self._completed(connection, message["record"])
        if alive:
            self._update_selector(connection.channel)
            self._start_waiting(connection.server)
            return
        if not connection.pid:
            self._on_server(connection.server)  # its messages say whether and why the fork failed
        if connection.number in self._connections:
            self._remove_connection(connection)
            if connection.attempt is not None:
                self._ended(connection.attempt, connection)
            self._start_waiting(connection.server)

    def _completed(self, connection: ShimConnection, record: dict[str, Any]) -> None:
        """An attempt has ended, with all its processes, and its shim is free."""
        if connection.attempt is None:
            return
        key, connection.attempt = connection.attempt.order.key, None
        del self._attempts[key]
        self._events.append(Ended(key, ExitRecord.from_json(record)))
        if connection.server in self._servers.values() and len(connection.server.idle) < _MAX_IDLE:
            connection.server.idle.append(connection.number)
        else:
            connection.channel.finish()

    def _dismiss(self, connection: ShimConnection) -> None:
        """End a shim that has been idle for long, unless an order is on its way to it."""
        if connection.number in connection.server.idle:
            connection.server.idle.remove(connection.number)
            connection.channel.finish()

    def _remove_connection(self, connection: ShimConnection) -> None:
        """Remove the connection to a shim that has ended or was never forked."""
        del self._connections[connection.number]
        connection.server.starting.discard(connection.number)
        if connection.number in connection.server.idle:
            connection.server.idle.remove(connection.number)
        self._selector.unregister(connection.channel)
        connection.close()

    # -- attempts

    def _began(self, connection: ShimConnection, attempt: TrackedAttempt) -> None:
        attempt.claim = self._codec.claim(attempt.order, connection.pid)
        self._events.append(Started(attempt.order.key, connection.pid, connection.starttime))

    def _ended(self, attempt: TrackedAttempt, connection: ShimConnection) -> None:
        """Handle the end of an attempt's shim: use the exit record, or clean up first if it is missing."""
        order, server = attempt.order, connection.server
        record = read_exit(order.directory)
        if record is not None:
            del self._attempts[order.key]
            self._events.append(Ended(order.key, record))
        elif not _is_claimed(order.directory):
            self._settle_unstarted(attempt, server)
        elif server in self._servers.values():
            self._reaping[connection.number] = attempt
            server.reap(connection.number)
            self._update_selector(server.channel)
        else:
            self._lost(attempt)

    def _settle_unstarted(self, attempt: TrackedAttempt, server: ForkServer) -> None:
        """Fence the unclaimed attempt against shims; a shim may win."""
        order = attempt.order
        try:
            claim = recovery.fence(Path(order.directory), self._folder, order.run, order.epoch)
        except StateError as error:  # then shims could not write claims either
            self._fail(order.key, str(error))
            return
        if claim is not None:
            attempt.claim = self._codec.claim(order, claim["pid"])
            self._lost(attempt)
        elif server.ready or server.was_killed:
            # a killed server's output is not the reason: it also holds error messages of its shims
            why = server.error_output if server.error_output and not server.was_killed else "killed"
            self._fail(order.key, f"its process was lost before it began: {why}", ours=True)
        else:
            from spotwright.local.build_environment import without_credentials  # here: for errors alone

            problem = without_credentials(server.error_output) or "it did not start"
            self._fail(order.key, f"the Python environment cannot be used: {problem}")

    def _lost(self, attempt: TrackedAttempt) -> None:
        """Kill the processes of an attempt whose end is unknown, then report it without a record."""
        # without its fork server no process collects the orphans
        if attempt.connection is None or attempt.connection.server not in self._servers.values():
            recovery.sweep(
                self._folder, spare=[connection.pid for connection in self._connections.values() if connection.pid]
            )
        if attempt.claim is not None:
            recovery.sweep_attempt(attempt.claim)
        del self._attempts[attempt.order.key]
        self._events.append(Ended(attempt.order.key, None))

    def _request_end(self, key: str, number: signal.Signals) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.connection is None:  # its order was not sent to a shim yet
            del self._attempts[key]
            self._events.append(Ended(key, None))
        elif attempt.connection.number in self._connections:
            self._send(attempt.connection, {"end": int(number), "key": key})
            attempt.connection.resume()

    def _fail(self, key: str, reason: str, *, ours: bool = False) -> None:
        del self._attempts[key]
        self._events.append(StartFailed(key, reason, ours))


def _is_claimed(directory: str) -> bool:
    """Whether an attempt is claimed; True if that cannot be determined."""
    try:
        Path(directory, CLAIM).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
