"""The process that reads runs, answers one question after the other, and fills the index of runs in between.

``python -m spotwright.page.worker`` reads the settings, then questions, from standard input, and writes answers to standard
output (:mod:`spotwright.page.workers` has the frames). It ends with its input.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import select
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, BinaryIO

from spotwright.page.answers import answer
from spotwright.page.kept_runs import KeptRuns
from spotwright.page.workers import ANSWER, QUESTION
from spotwright.visible_text import visible

__all__ = ["main"]

FORMAT = "spotwright-page/1"

_DEEPEST = 220  # levels of a document
_TO_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_IDLE = 0.5  # seconds until an idle worker checks whether active runs are due for a read


def _encoded(document: Any) -> tuple[bytes, bool]:
    if isinstance(document, bytes):
        return document, False
    try:
        written = _TO_JSON({"format": FORMAT, **document})
    except (ValueError, RecursionError):  # a number that JSON lacks, or too deep lists
        written = ""
    if not (written and written.isascii() and written.isprintable()) or "\\u" in written:
        written = _TO_JSON(_visible({"format": FORMAT, **document}))
    text = written.encode("utf-8", "replace")
    return (gzip.compress(text, 4, mtime=0), True) if len(text) > 1000 else (text, False)


def _visible(value: Any, level: int = 0) -> Any:
    """A document with hidden characters made visible, because task names and logs are untrusted.

    Numbers that JSON lacks, which a task may report, become strings, and too deep values ``...``.
    """
    if isinstance(value, str):
        return visible(value, block=True)
    if isinstance(value, Mapping):
        return (
            {visible(str(name)): _visible(each, level + 1) for name, each in value.items()}
            if level < _DEEPEST
            else "..."
        )
    if isinstance(value, list | tuple):
        return [_visible(each, level + 1) for each in value] if level < _DEEPEST else "..."
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next question; ``None`` at the end of the input."""
    head = _exactly(stream, QUESTION.size)
    if head is None:
        return None
    (length,) = QUESTION.unpack(head)
    text = _exactly(stream, length)
    if text is None:
        return None
    question: dict[str, Any] = json.loads(text)
    return question


def _exactly(stream: BinaryIO, length: int) -> bytes | None:
    """Exactly this many bytes, which a pipe may split; ``None`` at the end of the input."""
    found = b""
    while len(found) < length:
        piece = stream.read(length - len(found))
        if not piece:
            return None
        found += piece
    return found


def main() -> None:
    """Answer until the input ends, and fill the index between questions."""
    questions = os.fdopen(os.dup(0), "rb", buffering=0)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with the answers
    settings = _read(questions)
    if settings is None:
        return
    with closing(KeptRuns(settings)) as runs, suppress(BrokenPipeError):
        has_work = False
        while True:
            if not select.select([questions], [], [], 0.0 if has_work else _IDLE)[0]:
                has_work = runs.step()
                continue
            question = _read(questions)
            if question is None:
                return
            status, document = answer(runs, question)
            body, is_gzip = _encoded(document)
            output.write(ANSWER.pack(question["id"], status, is_gzip, len(body)) + body)
            output.flush()


if __name__ == "__main__":
    main()
