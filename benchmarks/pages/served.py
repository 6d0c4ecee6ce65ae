"""The real command ``spotwright page``, what it and its worker use, and questions that are asked without a browser."""

from __future__ import annotations

import gzip
import http.cookiejar
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

__all__ = ["Answered", "Served", "processor_seconds", "resident"]

_URL = re.compile(rb"http://\S+")
_PATIENCE = 120.0  # seconds until an address is printed, or a question answered


class Answered(NamedTuple):
    """An answer: the seconds that it took, its bytes as sent, and its document."""

    seconds: float
    size: int
    document: Any


class Served:
    """The page of a state folder. ``cache``: the folder of its index; empty at a cold start. Use it in ``with``."""

    def __init__(self, state: Path, cache: Path, port: int = 0) -> None:
        command = [
            sys.executable,
            "-m",
            "spotwright",
            "page",
            "--no-browser",
            "--listen",
            f"127.0.0.1:{port}",
            "--state",
            str(state),
        ]
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        )  # fmt: skip
        self.url = self._printed()
        self.started_in, self.start_used = time.perf_counter() - begun, processor_seconds(self.web)
        self.base = self.url.partition("?")[0]
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self._opener.open(self.url, timeout=_PATIENCE).close()

    def _printed(self) -> str:
        output = self._process.stdout.fileno() if self._process.stdout else -1
        said, until = b"", time.monotonic() + _PATIENCE
        while not (found := _URL.search(said)) or not said.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(output, 4096) if ready else b""
            if not piece:
                self.close()
                raise RuntimeError(f"spotwright page printed no address: {said!r}")
            said += piece
        return found.group().decode()

    def ask(self, path: str, **asked: object) -> Answered:
        """The answer to a question below ``api/v1``."""
        begun = time.perf_counter()
        with self._opener.open(self._address(path, asked), timeout=_PATIENCE) as response:
            body = response.read()
            is_gzip = response.headers.get("Content-Encoding") == "gzip"
        seconds = time.perf_counter() - begun
        return Answered(seconds, len(body), json.loads(gzip.decompress(body) if is_gzip else body))

    def raw(self, path: str, **asked: object) -> bytes:
        """The bytes of a download."""
        with self._opener.open(self._address(path, asked), timeout=_PATIENCE) as response:
            found: bytes = response.read()
        return found

    def _address(self, path: str, asked: dict[str, object]) -> urllib.request.Request:
        query = urlencode(asked)
        return urllib.request.Request(f"{self.base}api/v1/{path}{'?' if query else ''}{query}")  # noqa: S310

    @property
    def cookie(self) -> str:
        """The header with which others may ask."""
        processor = next(each for each in self._opener.handlers if isinstance(each, urllib.request.HTTPCookieProcessor))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in processor.cookiejar)

    @property
    def web(self) -> int:
        """The process that answers requests."""
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The processes that read runs."""
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.web)], check=False, capture_output=True, text=True
        )
        return [int(pid) for pid in listed.stdout.split()]

    def close(self) -> None:
        """End the command as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def processor_seconds(*pids: int) -> float:
    """Processor time of processes so far, in ticks of 10 ms: fields 14 and 15 of proc(5)'s stat."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Megabytes of memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
