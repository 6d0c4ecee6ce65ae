"""The errors of the test bed."""

from __future__ import annotations

__all__ = ["OutOfTimeError", "TestbedError"]


class TestbedError(Exception):
    """Something that the person at the keyboard must change or know; the text says what, in one message."""

    __test__ = False  # pytest takes classes named Test* for tests


class OutOfTimeError(TestbedError):
    """A build did not end in the time that it had. What is built is kept, and the next build goes on from there."""
