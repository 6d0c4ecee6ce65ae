"""The command ``spotwright page`` as a separate process, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["served_page"]

_URL = re.compile(r"https?://\S+")


@contextmanager
def served_page(state: Path, folder: Path, *arguments: str) -> Iterator[str]:
    """The address that the command prints, with its token. At the end it is stopped, with all its processes.

    ``folder`` is for its output and for the cache of this user, which is not the real one.
    """
    command = [sys.executable, "-m", "spotwright", "page", "--no-browser", "--listen", "127.0.0.1:0"]
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    said = folder / "page.txt"
    with said.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*command, "--state", str(state), *arguments],
            env=env, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield _address(process, said)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        left = _processes_of(process.pid)
        assert not left, f"spotwright page ended, and left {left}"
    finally:
        if process.poll() is None or _processes_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        code = process.poll()
        text = said.read_text(encoding="utf-8")
        found = _URL.search(text)
        if found and text.endswith("\n"):
            return found.group()
        assert code is None, f"spotwright page ended with {code}: {text}"
        time.sleep(0.02)
    raise AssertionError(f"spotwright page printed no address in a minute: {said.read_text(encoding='utf-8')}")


def _processes_of(group: int) -> list[str]:
    """The processes of a group that still run; those that ended and wait for their parent do not count."""
    listed = subprocess.run(["ps", "-eo", "pgid=,pid=,stat=,args="], check=True, capture_output=True, text=True).stdout
    fields = [line.split(None, 3) for line in listed.splitlines()]
    return [" ".join(field[1:]) for field in fields if field[0] == str(group) and not field[2].startswith("Z")]
