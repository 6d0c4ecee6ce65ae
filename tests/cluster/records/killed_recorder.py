"""A process that records the history and is killed at a write: ``python -m ...``, with one command a line of its input.

A command is a line of JSON: ``what`` (``history`` or ``numbers``), ``kubeconfig``, ``folder``, ``write``, the number of the
write, and ``when``, ``before`` or ``after`` it was done. For each a child of this process works until the write kills it, and a
second one goes on from what the cluster has then. The answer is a line of JSON: ``is_killed``, and ``numbers``, those that each
of them was given.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.records.bad_days import STEPS, Recording, There, quick
from tests.cluster.watching.watched_objects import job

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.attempt_numbers import Asking, Given, Numbers
from spotwright.cluster.kubernetes_login import Kubernetes

PODS = 8


def kill_at(write: int, when: str) -> None:
    """Let this process die at a write."""
    done, send = [0], Api._send

    async def counted(self: Api, method: str, *arguments: Any) -> Any:
        if method == "GET":
            return await send(self, method, *arguments)
        done[0] += 1
        is_last = done[0] == write
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await send(self, method, *arguments)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Api._send = counted  # type: ignore[assignment, method-assign]


class Noted:
    """A file with a line for each thing that was done, which a kill does not take back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, value: int) -> None:
        """Add a line at once."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{value}\n".encode())
        os.close(file)

    def all(self) -> list[int]:
        """All lines."""
        return [int(line) for line in self._path.read_text(encoding="ascii").split()] if self._path.exists() else []


def record(kubeconfig: str, folder: Path, noted: Noted) -> None:
    """Record from the step in which the previous one was killed."""
    first = noted.all()
    begun = first[-1] + 1 if first else 0
    kubernetes = Kubernetes(None, kubeconfig)
    made = Recording(kubernetes, folder, There.after(begun))
    for step in range(begun, STEPS):
        noted.add(step)
        made.play(step, step + 1)
    made.catch_up()
    kubernetes.close()


def give(kubeconfig: str, _folder: Path, noted: Noted) -> None:
    """Give out numbers to pods of one task, one after the other."""

    async def work() -> None:
        api = Api(connect(find_cluster(None, kubeconfig=kubeconfig)))
        numbers = Numbers(api)
        for pod in range(PODS):
            asked = Asking(f"{os.getpid()}-{pod}", "team-a", job(), "train")
            given = await numbers.number(asked, is_last=True, ignores_doubts=True)
            assert isinstance(given, Given)
            await numbers.keep(given, job(), Admission(("gpu",), False, False, "", given.number, ()))
            noted.add(given.number)
        await numbers.close()
        await api.close()

    asyncio.run(work())


WORK: dict[str, Callable[[str, Path, Noted], None]] = {"history": record, "numbers": give}


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a child. Returns its exit code, negative for a signal."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001  # nothing may return into the parent's code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    quick(setattr)
    for line in sys.stdin:
        asked = json.loads(line)
        folder = Path(asked["folder"])
        noted = Noted(folder / "noted")

        def work(asked: dict[str, Any] = asked, folder: Path = folder, noted: Noted = noted) -> None:
            WORK[asked["what"]](asked["kubeconfig"], folder, noted)

        def until_killed(asked: dict[str, Any] = asked, work: Callable[[], None] = work) -> None:
            kill_at(asked["write"], asked["when"])
            work()

        code = in_a_child(until_killed)
        before = noted.all()
        assert code in (0, -signal.SIGKILL), code
        assert in_a_child(work) == 0
        told = {"is_killed": code != 0, "numbers": [before, noted.all()[len(before) :]]}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
