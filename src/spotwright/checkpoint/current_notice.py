"""Returns the present notice of this node, for code that asks between two pieces of its work.

The sources are those of :func:`spotwright.notices.from_environment`. A thread watches them from the first call on, so that
further calls cost nothing. An address that cannot be used is logged once and counts as no notice, so that the code goes on.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotwright.notices import Notice, NoticeWatch

__all__ = ["notice"]

_FIRST_ANSWER = 1.0  # seconds for which the first call waits for an answer

_VARIABLES = ("SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_NOTICE_FILE", "SPOTWRIGHT_HOST")

_watches: dict[tuple[object, ...], NoticeWatch | None] = {}  # by process and variables: a fork has no threads


def notice() -> Notice | None:
    """Return the notice of this node's end, or ``None``: there is none, it was withdrawn, or no source of notices is named.

    ``ends_at`` of the notice is the end in Unix seconds. The first call asks the source and waits at most a second; later calls
    return at once the notice that a thread has seen since. Never raises.
    """
    key = (os.getpid(), *(os.environ.get(name, "") for name in _VARIABLES))
    if key not in _watches:
        _watches[key] = _watch() if any(key[1:]) else None
    watch = _watches[key]
    return None if watch is None else watch.current


def _watch() -> NoticeWatch | None:
    """Start watching the source that the environment names; ``None`` if it cannot be used."""
    from spotwright import notices

    try:
        source = notices.from_environment(os.environ)
    except notices.SourceError as error:
        import logging

        logging.getLogger("spotwright.checkpoint").warning("no notices will be seen: %s", error)
        return None
    if source is None:
        return None
    watch = notices.NoticeWatch(source, lambda _notice: None)
    watch.start()
    deadline = time.monotonic() + _FIRST_ANSWER
    while not (watch.answered or watch.problem) and time.monotonic() < deadline:
        time.sleep(0.002)
    return watch
