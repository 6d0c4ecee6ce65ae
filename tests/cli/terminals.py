"""A real terminal under the command line: what reaches it, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from spotwright import cli

PATIENCE = 120.0


def on_no_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> bytes:
    """What a command writes into a pipe."""
    done = subprocess.run(_command(arguments), capture_output=True, check=True, timeout=PATIENCE, env=_with(env))
    return done.stdout


def on_a_terminal(*arguments: str) -> bytes:
    """What a command sends to a terminal, on both of its outputs, with the line ends of files."""
    with _terminal() as (theirs, seen):
        command = _command(arguments)
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            check=False,
            timeout=PATIENCE,
            env=_with(None),
        )
    return _content(seen)


def in_this_process(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> bytes:
    """As :func:`on_a_terminal`, without the start of an interpreter."""
    with (
        _terminal() as (theirs, seen),
        os.fdopen(theirs, "w", encoding="utf-8", closefd=False) as stream,
        monkeypatch.context() as patch,
    ):
        patch.setenv("COLUMNS", "200")
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["spotwright", *arguments])
        cli._outcome()
        stream.flush()
    return _content(seen)


@contextmanager
def _terminal() -> Iterator[tuple[int, list[bytes]]]:
    """The end of a terminal for programs, and what was written to it."""
    ours, theirs = os.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # no process has the terminal any more
                return
            if not data:
                return
            seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield theirs, seen
    finally:
        os.close(theirs)
        reader.join(PATIENCE)
        os.close(ours)


def _content(seen: list[bytes]) -> bytes:
    return b"".join(seen).replace(b"\r\n", b"\n")


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "spotwright", *arguments]


def _with(env: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "TERM": "xterm-256color", **(env or {})}
