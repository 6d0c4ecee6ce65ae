"""The errors of the test bed."""

from __future__ import annotations

__all__ = ["OutOfTimeError", "TestbedError", "one_line"]

_LONGEST = 400  # characters of a reason


class TestbedError(Exception):
    """Something that the person at the keyboard must change or know; the text says what, in one message."""

    __test__ = False  # pytest takes classes named Test* for tests


class OutOfTimeError(TestbedError):
    """A build did not end in the time that it had. What is built is kept, and the next build goes on from there."""


def one_line(error: Exception) -> str:
    """What an error says, in one line; of a long text the begin and the end."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
