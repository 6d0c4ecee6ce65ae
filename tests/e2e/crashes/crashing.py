"""Run the command line and end it by SIGKILL at a named point: ``crashing.py POINT COUNT COMMAND...``.

``POINT`` is ``MOMENT:KIND``: ``before`` a commit that holds an event of that kind, once it is ``committed``, or once what the
event asks for is ``performed``; ``any:any`` counts all of them. The engine dies at the COUNT-th time it comes by.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from spotwright.cli import main
from spotwright.engine.events import Event
from spotwright.engine.loop import Engine
from spotwright.records.journal import Journal


class _Bomb:
    def __init__(self, point: str, count: int) -> None:
        self._moment, _, self._kind = point.partition(":")
        self._left = count

    def pass_by(self, moment: str, kinds: Sequence[str]) -> None:
        if self._moment not in {"any", moment} or (self._kind != "any" and self._kind not in kinds):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _arm(bomb: _Bomb) -> None:
    append: Callable[[Journal, Any], None] = Journal.append
    perform: Callable[[Engine, Event], None] = Engine._perform

    def exploding_append(self: Journal, events: Any) -> None:
        batch: list[Event] = list(events)
        bomb.pass_by("before", [event.kind for event in batch])
        append(self, batch)
        bomb.pass_by("committed", [event.kind for event in batch])

    def exploding_perform(self: Engine, event: Event) -> None:
        perform(self, event)
        bomb.pass_by("performed", [event.kind])

    Journal.append = exploding_append  # type: ignore[method-assign]
    Engine._perform = exploding_perform  # type: ignore[method-assign]


if __name__ == "__main__":
    point, count, *command = sys.argv[1:]
    _arm(_Bomb(point, int(count)))
    sys.argv = ["spotwright", *command]
    main()
