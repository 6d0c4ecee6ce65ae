"""Forked children that may spoil their own limits and user."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["Foreign", "in_a_child"]

Foreign = Callable[[Callable[[], str]], str]
"""Runs something as a user who may only read."""


def in_a_child(work: Callable[[], str]) -> str:
    """What ``work`` says in a forked child that may spoil its own limits and user; an exception's type and text otherwise."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is what the test wants to see
            said = f"{type(error).__name__}: {error}"
        os.write(send, said.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
