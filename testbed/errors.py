"""The errors of the test bed."""

from __future__ import annotations

__all__ = ["OutOfTimeError", "TestbedError", "one_line"]

_LONGEST = 400  # characters of a reason


class TestbedError(Exception):
    """A problem that the person at the keyboard must know or fix; the text says what, in one message."""

    __test__ = False  # pytest takes classes named Test* for tests


class OutOfTimeError(TestbedError):
    """A build did not finish in time. Built parts are kept, and the next build continues from there."""


def one_line(error: Exception) -> str:
    """An error's text in one line; of a long text the beginning and the end."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
