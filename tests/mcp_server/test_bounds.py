"""A command that a tool runs has so many seconds and bytes, and an answer is never larger than it may be."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spotwright.errors import InputError
from spotwright.mcp_server import bounds
from spotwright.mcp_server.bounds import MOST_BYTES, run_command
from spotwright.mcp_server.mcp_stdio import answer_text

OK = frozenset({0})


def test_an_answer_that_is_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(InputError, match=rf"the answer has 4\d\d,\d\d\d bytes, more than {MOST_BYTES:,}: ask for less"):
        answer_text(["a" * 1000] * 400)


def test_texts_of_an_answer_have_marks_instead_of_control_characters() -> None:
    text = answer_text({"a\x1b": ["\u202e", "\ud800", "two\nlines"]})

    assert "a<U+001B>" in text
    assert "<U+202E>" in text
    assert "<U+D800>" in text
    assert "two\\nlines" in text


@pytest.mark.slow
def test_a_command_that_prints_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_PRINTED", 100)
    with pytest.raises(InputError, match="spotwright lint printed more than 100 bytes and was stopped"):
        asyncio.run(run_command(["lint", "--rules"], tmp_path, OK))


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 3.0)
    (tmp_path / "slow.py").write_text(
        "import os, time; from kfp import dsl\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    began = time.monotonic()
    with pytest.raises(InputError, match="spotwright explain took more than 3 seconds and was stopped"):
        asyncio.run(run_command(["explain", "slow.py"], tmp_path, OK))

    assert time.monotonic() - began < 30
    assert not (tmp_path / "pid").exists() or _ends((tmp_path / "pid").read_text())


def _ends(pid: str) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(100):
        path = Path("/proc", pid, "stat")
        if not path.exists() or path.read_text().split()[2] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_without_the_extra_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys\nsys.modules['mcp'] = None\nfrom spotwright.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "mcp"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr == "spotwright: spotwright mcp needs the package mcp: pip install 'spotwright[mcp]'\n"
