"""Observes a namespace and the nodes of a cluster: keeps every state that the API server sent, with the time of its arrival."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.recorder.api import Api, collection

__all__ = ["Observer", "State", "is_finished"]

_KINDS = ("Pod", "Event", "Node", "Job", "JobSet", "TrainJob", "Workflow")


@dataclass(frozen=True, slots=True)
class State:
    """An object as it was from ``at`` on, in Unix seconds; ``gone``: the API has it no more, and this was its last state."""

    at: float
    value: dict[str, Any]
    gone: bool = False


class Observer:
    """Watches from before the first object of a recording until :meth:`close`."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._histories: dict[str, list[State]] = {}  # by UID
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._closed = False
        for kind in _KINDS:
            path = collection(kind, namespace)
            threading.Thread(target=self._follow, args=(api, path), name=f"watch {kind}", daemon=True).start()

    def _follow(self, api: Api, path: str) -> None:
        try:
            for change, item in api.list_and_watch(path):
                with self._lock:
                    states = self._histories.setdefault(item["metadata"]["uid"], [])
                    states.append(State(time.time(), item, gone=change == "DELETED"))
        except Exception as error:  # noqa: BLE001  # reported by `check` in the thread that records
            self._failures.append(f"{path}: {error!r}")
        else:
            self._failures.append(f"{path}: the watch ended")

    def check(self) -> None:
        """Raise ``RuntimeError`` if a watch ended: its changes would be missing from the recording."""
        if self._failures:
            raise RuntimeError("; ".join(self._failures))

    def history(self, uid: str) -> Sequence[State]:
        """All states of an object, oldest first."""
        with self._lock:
            return tuple(self._histories.get(uid, ()))

    def objects(self, kind: str) -> Iterable[str]:
        """The UIDs of all objects of a kind that were ever seen, in the order in which they were."""
        with self._lock:
            return [uid for uid, states in self._histories.items() if states[0].value.get("kind") == kind]

    def at(self, uid: str, moment: float) -> State | None:
        """The state of an object at a time; None: it did not exist yet."""
        return next((state for state in reversed(self.history(uid)) if state.at <= moment), None)

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until the condition holds; raise ``TimeoutError`` after so many seconds."""
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > end:
                raise TimeoutError(f"waited {seconds:g} s for {what}")
            time.sleep(0.05)


def is_finished(pod: dict[str, Any]) -> bool:
    """True in a phase that a pod never leaves."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
