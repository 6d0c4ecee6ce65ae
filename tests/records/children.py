"""Forked children that may change their own limits and user."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["Foreign", "in_a_child"]

Foreign = Callable[[Callable[[], str]], str]
"""Runs a function as a user who may only read."""


def in_a_child(work: Callable[[], str]) -> str:
    """The result of ``work`` in a forked child, which may change its own limits and user; else the type and text of its error."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is what the test wants to see
            answer = f"{type(error).__name__}: {error}"
        os.write(send, answer.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer
