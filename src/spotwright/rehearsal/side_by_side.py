"""Run the trials of a step in parallel processes, as many as the machine has room for.

The processes are forked, so that a trial starts with its parent's imports and data. Ctrl-C ends them all.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from spotwright.errors import StateError
from spotwright.interrupts import interrupts_held, release_interrupts
from spotwright.local.supervisor import kernel

__all__ = ["room_for", "run_side_by_side"]


_PDEATHSIG = 1  # of prctl(2)
_OWN_CPU_SECONDS = 0.3  # of a trial beside the step: its engine, fork server and shim
_MOST = 32
_SHORT = 1.0  # seconds: in a shorter step, starting its processes takes a core for a large part of the time


def room_for(seconds: float, cpu_seconds: float, max_rss: int) -> int:
    """The number of parallel trials of a step, from the resources of an undisturbed execution. ``max_rss`` is in bytes.

    ``seconds`` exclude waits for a processor, because on a busy machine the step would seem idle. With a GPU the result is one,
    because trials would share its memory.
    """
    if Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists():
        return 1
    cores = len(os.sched_getaffinity(0))
    share = 1.0 if seconds < _SHORT else (cpu_seconds + _OWN_CPU_SECONDS) / seconds
    return max(1, min(round(cores / share), _MOST, _available_memory() // 2 // max(max_rss, 1)))


def _available_memory() -> int:
    """Bytes, as the kernel estimates them."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


T = TypeVar("T")


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    data: bytearray = field(default_factory=bytearray)


def _never() -> bool:
    return False


def run_side_by_side(
    trials: Sequence[Callable[[], T]],
    room: int,
    may_start: Callable[[int], bool],
    is_over: Callable[[], bool] = _never,
) -> Iterator[T | None]:
    """Yield the results of the trials in order; None for a trial whose number ``may_start`` refuses.

    At most ``room`` trials run at the same time. ``is_over`` is called after each consumed result; once true, the running
    trials are ended without a result. If a trial raises, the others are ended, and its error is raised here. After Ctrl-C,
    every trial ends its own run first.
    """
    if room == 1:
        for number, trial in enumerate(trials):
            yield trial() if may_start(number) else None
        return
    with contextlib.closing(_Workers(room)) as workers:
        results: dict[int, T | None] = {}
        waiting = list(enumerate(trials))
        for number in range(len(trials)):
            while number not in results and not is_over():
                while waiting and workers.has_room:
                    following, trial = waiting.pop(0)
                    if may_start(following):
                        workers.start(following, trial)
                    else:
                        results[following] = None
                if number not in results:
                    results.update(workers.wait())
            yield results.pop(number, None)


class _Workers:
    """The processes of running trials."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}  # by the descriptor of the result

    @property
    def has_room(self) -> bool:
        return len(self._workers) < self._room

    def start(self, number: int, trial: Callable[[], Any]) -> None:
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with interrupts_held():  # until this trial is among those that close() interrupts
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _run_and_report(trial, writer, parent)
            os.close(writer)
            self._workers[reader] = _Worker(number, pid)
            self._selector.register(reader, selectors.EVENT_READ)

    def wait(self) -> dict[int, Any]:
        """Wait until trials end. Returns their results by number."""
        results = {}
        for key, _ in self._selector.select():
            worker = self._workers[key.fd]
            data = os.read(key.fd, 1 << 20)
            worker.data += data
            if not data:
                self._remove(key.fd, worker)
                results[worker.number] = _result_of(worker)
        return results

    def close(self) -> None:
        """Interrupt the running trials, as Ctrl-C does, and wait until each has ended its run."""
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for descriptor, worker in list(self._workers.items()):
            while os.read(descriptor, 1 << 20):
                continue  # a full pipe would keep the trial from ending
            self._remove(descriptor, worker)
        self._selector.close()

    def _remove(self, descriptor: int, worker: _Worker) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        os.waitpid(worker.pid, 0)
        del self._workers[descriptor]


def _run_and_report(trial: Callable[[], Any], writer: int, parent: int) -> NoReturn:
    """Run a trial in its own process and send its result. Never returns."""
    code = 130
    try:
        try:
            code = _run(trial, writer, parent)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    finally:  # even if a second Ctrl-C interrupts the lines above: the parent's code must not run twice
        os._exit(code)


def _run(trial: Callable[[], Any], writer: int, parent: int) -> int:
    try:
        # A shell starts background jobs with SIGINT ignored, but a trial must end at it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        release_interrupts()
        kernel.prctl(_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            return 1
        with open(writer, "wb") as result:
            pickle.dump(trial(), result)
    except KeyboardInterrupt:
        return 130
    except BaseException:  # noqa: BLE001 (top level of a process)
        traceback.print_exc()
        return 1
    return 0


def _result_of(worker: _Worker) -> Any:
    if not worker.data:
        raise StateError("the process of a trial ended without a result; its messages stand above")
    return pickle.loads(bytes(worker.data))  # noqa: S301 (written by our own fork)
