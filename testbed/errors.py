"""The one error of the test bed."""

from __future__ import annotations

__all__ = ["TestbedError"]


class TestbedError(Exception):
    """Something that the person at the keyboard must change or know; the text says what, in one message."""

    __test__ = False  # pytest takes classes named Test* for tests
