"""Let Ctrl-C end a command at any moment: neither lost nor shown as a traceback.

Python drops a ``KeyboardInterrupt`` that is raised in a hook after a fork, in a destructor, or in the callback of a weak
reference, of which every import has one; it prints "Exception ignored" and continues. And a starting interpreter prints a
traceback of its imports. A process started in :func:`interrupts_held` begins with SIGINT blocked, through fork and exec, and
accepts it with :func:`release_interrupts`. Finally, CPython ends a process by SIGINT, whatever its exit code, if a
``KeyboardInterrupt`` has ever left the code of ``exec(text)``, as it may while a dataclass is made:
:func:`forget_handled_interrupt`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["forget_handled_interrupt", "interrupts_held", "lost_interrupts_repeated", "release_interrupts"]

_REPEAT = 0.01  # seconds until a lost interrupt is raised again


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back in the block. If it was pressed meanwhile, the end of the block raises ``KeyboardInterrupt``.

    The mask is for started processes. It does not suffice for this one: another thread (such as NumPy's) that does not block
    the signal would receive it, and Python would raise the exception in the main thread.
    """
    if sys.platform == "win32":  # it has no signal masks
        yield
        return
    received: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    replaced = callable(handler) and threading.current_thread() is threading.main_thread()
    if replaced:
        signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if replaced:
            signal.signal(signal.SIGINT, handler)
    if received and callable(handler):
        handler(received[0], None)


def release_interrupts() -> None:
    """Accept Ctrl-C from now on, and at once if it was pressed meanwhile."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def lost_interrupts_repeated() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` again in the block where Python has dropped it, until it arrives. Not on Windows."""
    report = sys.unraisablehook

    def repeat(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt) or sys.platform == "win32":
            report(unraisable)
            return
        again = threading.Timer(_REPEAT, os.kill, (os.getpid(), signal.SIGINT))  # raised here it would be dropped again
        again.daemon = True
        again.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = report


def forget_handled_interrupt() -> None:
    """Let this process end with its exit code after a handled ``KeyboardInterrupt``.

    The start of every ``exec(text)`` clears the mark by which the interpreter would end by SIGINT instead
    (``_Py_UnhandledKeyboardInterrupt`` in CPython's ``pythonrun.c``).
    """
    exec("")  # noqa: S102 (an empty text)
