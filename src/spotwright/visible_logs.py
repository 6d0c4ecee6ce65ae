"""A process's log lines for people: untrusted names cannot control a terminal or begin a new line."""

from __future__ import annotations

import logging

from spotwright.visible_text import visible

__all__ = ["VisibleFormatter", "log_visibly"]

_FORM = "%(asctime)s %(levelname)s %(message)s"


class VisibleFormatter(logging.Formatter):
    """Formats a record with marks, see :func:`~spotwright.visible_text.visible`; lines after its first one are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return visible(super().format(record), block=True).replace("\n", "\n    ")


def log_visibly(level: int) -> None:
    """Write the process's log from this level on to the error output, with time and level."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter(_FORM))
    logging.basicConfig(level=level, handlers=[handler])
