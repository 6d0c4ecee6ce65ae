"""Commands that need an extra which is not installed: one sentence that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT = """
import sys
for name in ("cryptography", "httpx2", "lightkube", "msgspec", "obstore", "re2"):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError, as where it is not installed
from spotwright.cli import main
main()
"""
_INSTALL = "pip install 'spotwright[cluster]'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "need"),
    [
        (["run", "pipeline.yaml", "--on", "kfp"], "--on kfp"),
        (["runs", "--cluster"], "--cluster"),
        (["explain", "--cluster", "pod/x"], "--cluster"),
        (["pools", "import", "--cluster"], "--cluster"),
        (["controller", "check", "team-a"], "the controller"),
    ],
)
def test_a_command_without_its_extra_says_in_one_sentence_what_to_install(
    tmp_path: Path, command: list[str], need: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    first, *_ = done.stderr.splitlines()
    assert first.startswith(f"spotwright: {need} needs the package ")
    assert first.endswith(f": {_INSTALL}")
    assert "Traceback" not in done.stderr
