"""Keys by which the ranks of a training communicate without a collective: one rank writes each key once, and all see it.

They are in the store of the process group, which PyTorch has for every group that it makes itself. Without one they are small
files in the place of the checkpoints, where only one rank can create a file.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from spotwright.checkpoint.errors import CheckpointError
from spotwright.checkpoint.store import Store

__all__ = ["KEPT_EVENTS", "LOST_AFTER", "GroupKeys", "Keys", "PlaceKeys"]

LOST_AFTER = 10.0
"""Seconds after which a silent store counts as lost."""

KEPT_EVENTS = 32
"""The number of recent events whose keys are kept: a thread may have chosen its event's number before one of them."""

_CLOSED_AFTER = 1.0  # seconds after which a thread that waits for a silent store is abandoned
_CUT_AFTER = 2.0  # seconds until an incomplete file counts as cut
_POLL = 0.25  # seconds between polls for an event in the place of the checkpoints
_POLL_ROUND = 0.05  # the same while a decision is awaited


class Keys(Protocol):
    """Keys that are written once and seen by all ranks.

    Methods raise ``RuntimeError`` or :class:`CheckpointError` if the keys are unreachable.
    """

    def create(self, name: str, value: bytes) -> bytes:
        """Write a key unless it exists; return its value, ours or the existing one."""

    def read(self, name: str) -> bytes | None:
        """Return the value of a key; ``None`` without it."""

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """Wait until all these keys exist; ``False`` on time-out."""

    def announce(self, number: int, value: bytes) -> bytes:
        """Create an event, and wake all waiting threads; return its value, ours or the existing one."""

    def next_event(self, number: int) -> bytes | None:
        """Wait for an event; ``None`` after :meth:`close`."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove keys that are no longer read."""

    def close(self) -> None:
        """Let :meth:`next_event` return."""


class _Call:
    """A call in another thread, with its result or exception."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self._what = what
        self._value: Any = None
        self._error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Call it."""
        try:
            self._value = self._what()
        except BaseException as error:  # noqa: BLE001  # it is raised in the calling thread
            self._error = error
        self.over.set()

    def result(self) -> Any:
        """Return its result; raise its exception."""
        if self._error is not None:
            raise self._error
        return self._value


class GroupKeys:
    """Keys in the store of a process group, through two clients: one for waiting, which locks it, and one for everything else.

    A time-out of a wait writes warnings to the standard error (``TCPStore`` in ``torch/csrc/distributed/c10d``), so each rank
    waits without one for a key of its own, which the maker of an event sets.
    """

    def __init__(self, store: dist.Store, prefix: str, rank: int, size: int) -> None:
        self._waiting, self._talking = (dist.PrefixStore(prefix, store.clone()) for _ in range(2))
        self._waiting.set_timeout(timedelta(days=3650))
        self._talking.set_timeout(timedelta(seconds=LOST_AFTER))
        self._rank, self._size = rank, size
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._awaited = 0
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._is_silent = False
        threading.Thread(target=self._serve, name="spotwright-keys", daemon=True).start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
        with suppress(queue.Empty):
            while (call := self._calls.get(timeout=_CLOSED_AFTER)) is not None:  # of an unfinished round
                call.run()

    def _talk(self, what: Callable[[], Any], within: float = LOST_AFTER) -> Any:
        """Call the store in a separate thread. ``TCPStore`` waits for most answers without a limit."""
        if not self._is_silent:
            call = _Call(what)
            self._calls.put(call)
            if call.over.wait(within):
                return call.result()
            self._is_silent = True
        raise RuntimeError("the store of the process group does not answer")

    def create(self, name: str, value: bytes) -> bytes:
        """See :class:`Keys`."""
        return bytes(self._talk(lambda: self._talking.compare_set(name, "", value.decode())))

    def read(self, name: str) -> bytes | None:
        """See :class:`Keys`."""
        return self._talk(lambda: bytes(self._talking.get(name)) if self._talking.check([name]) else None)  # type: ignore[no-any-return]

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """See :class:`Keys`."""
        try:
            self._waiting.wait(list(names), timedelta(seconds=max(seconds, 0.001)))
        except dist.DistStoreError:  # the time-out
            return False
        return True

    def announce(self, number: int, value: bytes) -> bytes:
        """See :class:`Keys`. Wakes threads even if the event exists: its creator may have died before it did."""
        made = self.create(f"{number}/event", value)
        self._talk(lambda: self._wake([f"wake/{number}/{rank}" for rank in range(self._size)]))
        return made

    def _wake(self, names: list[str]) -> None:
        if self._talking.has_extended_api():
            self._talking.multi_set(names, ["1"] * len(names))
        else:
            for name in names:
                self._talking.set(name, "1")

    def next_event(self, number: int) -> bytes | None:
        """See :class:`Keys`."""
        with self._lock:
            self._awaited = number
            if self._closed.is_set():
                return None
        name = f"wake/{number}/{self._rank}"
        self._waiting.wait([name])
        self._waiting.delete_key(name)
        self._waiting.delete_key(
            f"wake/{number - KEPT_EVENTS}/{self._rank}"
        )  # by a rank that made that event a second time
        return None if self._closed.is_set() else self.read(f"{number}/event")

    def remove(self, names: Sequence[str]) -> None:
        """See :class:`Keys`."""
        self._talk(lambda: [self._talking.delete_key(name) for name in names])

    def close(self) -> None:
        """See :class:`Keys`."""
        with self._lock:
            self._closed.set()
        try:
            self._talk(lambda: self._talking.set(f"wake/{self._awaited}/{self._rank}", "1"), _CLOSED_AFTER)
        except RuntimeError:  # the store is closed, so the wait has ended
            logging.getLogger("spotwright.checkpoint").debug(
                "the process group's store closed before its last client", exc_info=True
            )
        self._calls.put(None)


class PlaceKeys:
    """Keys as small files ``key-...`` in the polled place of the checkpoints."""

    def __init__(self, store: Store, prefix: str, rank: int) -> None:
        self._store, self._prefix, self._rank = store, f"key-{prefix}-", rank
        self._closed = threading.Event()
        if rank == 0:
            self._remove_all(lambda name: not name.startswith(self._prefix))

    def create(self, name: str, value: bytes) -> bytes:
        """See :class:`Keys`."""
        if self._store.create(self._file(name), value + b"\n"):
            return value
        end = time.monotonic() + _CUT_AFTER
        while (found := self.read(name)) is None:
            if time.monotonic() > end:
                raise CheckpointError(
                    f"{self._store.place}: {self._file(name)} is truncated; remove the key-* files there"
                )
            time.sleep(_POLL_ROUND)
        return found

    def read(self, name: str) -> bytes | None:
        """See :class:`Keys`. A file that is being written does not exist yet."""
        found = self._store.read(self._file(name))
        return found[:-1] if found is not None and found.endswith(b"\n") else None

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """See :class:`Keys`."""
        end = time.monotonic() + seconds
        missing = set(names)
        while True:
            listed = set(self._store.names()) if len(missing) > 1 else {self._file(name) for name in missing}
            missing -= {name for name in missing if self._file(name) in listed and self.read(name) is not None}
            if not missing or time.monotonic() >= end or self._closed.wait(_POLL_ROUND):
                return not missing

    def announce(self, number: int, value: bytes) -> bytes:
        """See :class:`Keys`."""
        return self.create(f"{number}/event", value)

    def next_event(self, number: int) -> bytes | None:
        """See :class:`Keys`."""
        while not self._closed.is_set():
            if (found := self.read(f"{number}/event")) is not None:
                return found
            self._closed.wait(_POLL)
        return None

    def remove(self, names: Sequence[str]) -> None:
        """See :class:`Keys`."""
        for name in names:
            self._store.remove(self._file(name))

    def close(self) -> None:
        """See :class:`Keys`. The next attempt removes keys that a killed rank 0 leaves."""
        self._closed.set()
        if self._rank == 0:
            self._remove_all(lambda name: name.startswith(self._prefix))

    def _file(self, name: str) -> str:
        return self._prefix + name.replace("/", "-")

    def _remove_all(self, is_old: Callable[[str], bool]) -> None:
        for name in self._store.names():
            if name.startswith("key-") and is_old(name):
                self._store.remove(name)
