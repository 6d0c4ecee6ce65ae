"""Two sources at a time: the node agent, which knows the node's end, and the file in which a pod hears of its own.

An agent is asked with a long poll, and may not be there at all. So it is watched in a thread, while the file is read here.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from spotwright.notices.notice import Notice, Source, SourceError
from spotwright.notices.notice_watch import NoticeWatch

__all__ = ["EitherSource"]

_FIRST_ANSWER = 1.0  # seconds for which the first call waits for an agent's answer
_POLL = 0.2  # seconds between two looks at the file


class EitherSource:
    """The notice in ``file``, with the earlier end if ``agent`` has one too; without one, the last notice of the agent.

    The agent need not answer.
    """

    def __init__(self, agent: Source, file: Source) -> None:
        self.name = agent.name
        self._file = file
        self._watch = NoticeWatch(agent, lambda _notice: None)
        self._last: Notice | None = None
        self._answered = False

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`. Never raises: no file is an answer, also where no agent runs."""
        if not self._answered:
            self._watch.start()
            self._wait_for_agent()
        deadline = time.monotonic() + timeout
        while True:
            notice = self._current()
            left = deadline - time.monotonic()
            if notice != self._last or not self._answered or left <= 0:
                self._last, self._answered = notice, True
                return notice
            time.sleep(min(left, _POLL))

    def stop(self) -> None:
        """Stop watching the agent, for callers that live on without this source."""
        self._watch.stop()

    def _current(self) -> Notice | None:
        ours, theirs = None, self._watch.current
        with contextlib.suppress(SourceError):  # a file that cannot be read says nothing; the agent may
            ours = self._file.wait(0)
        if ours is None or theirs is None or not theirs.certain:
            return ours or theirs
        return replace(ours, ends_at=min(ours.ends_at, theirs.ends_at))

    def _wait_for_agent(self) -> None:
        deadline = time.monotonic() + _FIRST_ANSWER
        while not (self._watch.answered or self._watch.problem) and time.monotonic() < deadline:
            time.sleep(0.002)
