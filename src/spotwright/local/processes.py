"""Real processes of attempts, started and watched without ever blocking the engine's loop.

One object for one engine. It keeps a fork server for each Python environment, has it fork shims, sends each shim one start
order after another, and turns what the selector says into :class:`~spotwright.local.orders.Started`,
:class:`~spotwright.local.orders.Ended` and :class:`~spotwright.local.orders.StartFailed`. Every order ends in exactly one of
the last two.
"""

from __future__ import annotations

import selectors
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spotwright.errors import SpotwrightError, StateError
from spotwright.local import identity, recovery
from spotwright.local.channels import Channel
from spotwright.local.environments import Build, cache_folder, find_python, without_credentials
from spotwright.local.lines import Attempt, Line
from spotwright.local.messages import Messages
from spotwright.local.orders import (
    CLAIM,
    Ended,
    Environment,
    ExitRecord,
    Started,
    StartFailed,
    StartOrder,
    read_exit,
)
from spotwright.local.prerequisites import allow_descriptors, require_linux
from spotwright.local.servers import ForkServer

__all__ = ["Processes"]

_IDLE = 32  # shims that a server keeps for the next attempts


class Processes:
    """Runs attempts. Every descriptor is registered with a function without arguments as its ``data``.

    The loop calls ``key.data()`` for each ready descriptor and :meth:`pump` before it waits again. ``folder`` is one of the
    run's that stays; ``cache`` is where built environments are kept. Raises :class:`StateError` where this machine cannot
    do it.
    """

    def __init__(self, selector: selectors.BaseSelector, *, run: str, folder: Path, cache: Path | None = None) -> None:
        require_linux()
        allow_descriptors()
        self._selector, self._folder = selector, folder.resolve()
        self._marks, self._messages = identity.marks(run, folder), Messages(self._folder)
        self._cache = cache or cache_folder()
        self._servers: dict[Environment, ForkServer] = {}
        self._builds: dict[Environment, Build] = {}
        self._attempts: dict[str, Attempt] = {}
        self._lines: dict[int, Line] = {}
        self._asked = 0  # how many shims have been asked for
        self._burying: dict[int, Attempt] = {}  # by the number of the shim that was killed
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
        attempt = self._attempts[order.key] = Attempt(order)
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
        for line in self._lines.values():
            self._selector.unregister(line.channel)
            message = line.await_introduction() if not line.pid else None
            if message is not None:
                self._here(line, message)
            line.channel.close()
            line.hold()
        recovery.end_all([line.pidfd for line in self._lines.values() if line.pidfd is not None], patience)
        for attempt in self._attempts.values():
            if attempt.claim is not None and read_exit(attempt.order.directory) is None:
                recovery.sweep_attempt(attempt.claim)
        self._lines.clear()
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
        self._selector.register(server.channel, selectors.EVENT_READ, partial(self._on_server, server))
        return server

    def _on_built(self, build: Build) -> None:
        self._selector.unregister(build.pidfd)
        del self._builds[build.environment]
        problem = build.finish()
        waiting = [a for a in self._attempts.values() if a.line is None and a.order.environment == build.environment]
        for attempt in waiting:
            if problem:
                self._fail(attempt.order.key, problem)
            else:
                self._start(attempt)

    def _start(self, attempt: Attempt) -> None:
        """Send the attempt to a shim, or let it wait for its packages."""
        try:
            server = self._prepare(attempt.order.environment)
            if server is not None:
                message = self._messages.of(attempt.order)
                line = attempt.line = self._line_for(server, attempt)
                self._send(line, message)
        except (OSError, SpotwrightError) as error:
            self._fail(attempt.order.key, str(error))
            return
        if attempt.line is not None and attempt.line.pid:
            self._began(attempt.line, attempt)

    def _line_for(self, server: ForkServer, attempt: Attempt) -> Line:
        """The way to a shim that has nothing to do, the one that had something last; or to a new one."""
        if server.idle:
            line = self._lines[server.idle.pop()]
            line.attempt = attempt
            return line
        self._asked += 1
        line = Line(self._asked, server, server.fork(self._asked), attempt)
        self._lines[line.number] = line
        self._selector.register(line.channel, selectors.EVENT_READ, partial(self._on_line, line))
        self._listen(server.channel)
        return line

    def _send(self, line: Line, message: Mapping[str, Any]) -> None:
        line.channel.send(message)
        self._listen(line.channel)

    def _listen(self, channel: Channel) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)
        key = self._selector.get_key(channel)
        if key.events != events:
            self._selector.modify(channel, events, key.data)

    def _on_server(self, server: ForkServer) -> None:
        if server not in self._servers.values():  # it was lost while the selector's last answer was being served
            return
        server.channel.flush()
        messages, alive = server.receive()
        for message in messages:
            self._heard(message)
        if alive:
            self._listen(server.channel)
        else:
            self._lose(server)

    def _heard(self, message: dict[str, Any]) -> None:
        if "buried" in message:
            self._lost(self._burying.pop(message["buried"]))
        else:
            line = self._lines.get(message["failed"])
            if line is not None and line.attempt is not None:
                self._forget(line)
                self._fail(line.attempt.order.key, f"no process could be started: {message['why']}", ours=True)

    def _lose(self, server: ForkServer) -> None:
        """A server has gone, and its shims have not: they end what they attend, and the next order starts another server."""
        self._selector.unregister(server.channel)
        self._servers = {environment: other for environment, other in self._servers.items() if other is not server}
        server.close()
        for number in server.idle:
            self._lines[number].channel.finish()
        for number, attempt in list(self._burying.items()):
            if attempt.line is not None and attempt.line.server is server:
                self._lost(self._burying.pop(number))

    # -- shims

    def _here(self, line: Line, message: dict[str, Any]) -> None:
        """A shim has begun to live."""
        line.introduced(message)
        if line.attempt is not None:
            self._began(line, line.attempt)

    def _on_line(self, line: Line) -> None:
        if line.number not in self._lines:  # forgotten while the selector's last answer was being served
            return
        line.channel.flush()
        messages, alive = line.channel.receive()
        for message in messages:
            if "here" in message:
                self._here(line, message)
            elif "idle" in message:
                self._dismiss(line)
            else:
                self._done(line, message["record"])
        if alive:
            self._listen(line.channel)
            return
        if not line.pid:
            self._on_server(line.server)  # which says whether it was forked, and why not
        if line.number in self._lines:
            self._forget(line)
            if line.attempt is not None:
                self._ended(line.attempt, line)

    def _done(self, line: Line, record: dict[str, Any]) -> None:
        """An attempt has ended, nothing of it is left, and its shim is free."""
        if line.attempt is None:
            return
        key, line.attempt = line.attempt.order.key, None
        del self._attempts[key]
        self._events.append(Ended(key, ExitRecord.from_json(record)))
        if line.server in self._servers.values() and len(line.server.idle) < _IDLE:
            line.server.idle.append(line.number)
        else:
            line.channel.finish()

    def _dismiss(self, line: Line) -> None:
        """Let a shim go that has had nothing to do for long; not where an order is on its way to it."""
        if line.number in line.server.idle:
            line.server.idle.remove(line.number)
            line.channel.finish()

    def _forget(self, line: Line) -> None:
        """A shim is gone, or was never there."""
        del self._lines[line.number]
        if line.number in line.server.idle:
            line.server.idle.remove(line.number)
        self._selector.unregister(line.channel)
        line.close()

    # -- attempts

    def _began(self, line: Line, attempt: Attempt) -> None:
        attempt.claim = self._messages.claim(attempt.order, line.pid)
        self._events.append(Started(attempt.order.key, line.pid, line.starttime))

    def _ended(self, attempt: Attempt, line: Line) -> None:
        """Its shim has gone. With a record all is said; without one, what it may have left comes first."""
        order, server = attempt.order, line.server
        record = read_exit(order.directory)
        if record is not None:
            del self._attempts[order.key]
            self._events.append(Ended(order.key, record))
        elif not _is_claimed(order.directory):
            self._settle_unstarted(attempt, server)
        elif server in self._servers.values():
            self._burying[line.number] = attempt
            server.bury(line.number)
            self._listen(server.channel)
        else:
            self._lost(attempt)

    def _settle_unstarted(self, attempt: Attempt, server: ForkServer) -> None:
        """Nobody has claimed it, and so nobody ever will: there is a fence then. Somebody may have been faster."""
        order = attempt.order
        try:
            claim = recovery.fence(Path(order.directory), order.run, order.epoch)
        except StateError as error:  # no shim could write its claim either
            self._fail(order.key, str(error))
            return
        if claim is not None:
            attempt.claim = self._messages.claim(order, claim["pid"])
            self._lost(attempt)
        elif server.ready or server.was_killed:
            # what one that was killed has said is not why: its shims say there, too, what befell them
            why = server.said if server.said and not server.was_killed else "killed"
            self._fail(order.key, f"its process was lost before it began: {why}", ours=True)
        else:
            problem = without_credentials(server.said) or "it did not start"
            self._fail(order.key, f"the Python environment cannot be used: {problem}")

    def _lost(self, attempt: Attempt) -> None:
        """Nothing is known of the attempt's end: kill what can be found of it, then say so."""
        if (
            attempt.line is None or attempt.line.server not in self._servers.values()
        ):  # nobody has collected its orphans
            recovery.sweep(self._folder, spare=[line.pid for line in self._lines.values() if line.pid])
        if attempt.claim is not None:
            recovery.sweep_attempt(attempt.claim)
        del self._attempts[attempt.order.key]
        self._events.append(Ended(attempt.order.key, None))

    def _ask(self, key: str, number: signal.Signals) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.line is None:  # nothing has been sent to anybody
            del self._attempts[key]
            self._events.append(Ended(key, None))
        elif attempt.line.number in self._lines:
            self._send(attempt.line, {"end": int(number), "key": key})
            attempt.line.wake()

    def _fail(self, key: str, reason: str, *, ours: bool = False) -> None:
        del self._attempts[key]
        self._events.append(StartFailed(key, reason, ours))


def _is_claimed(directory: str) -> bool:
    """Whether anybody has claimed an attempt; where that cannot be seen, somebody may have."""
    try:
        Path(directory, CLAIM).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
