"""A small project for the tests of other tools: pools, a policy and a Job that is not placed yet."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["CONFIG", "JOB", "ROOT", "a_path", "run", "tool"]

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 8, memory: 32Gi}}
  regular: {capacity: on-demand, provider: aks, node: {cpu: 8, memory: 32Gi}}
policy:
  default: {spot: require, timeout: 1h}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: trainer:1.0
"""


def tool(name: str) -> str:
    """The path of a program; a test without it is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def a_path(folder: Path) -> str:
    """A PATH on which ``spotwright`` is the one that is tested."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    script = programs / "spotwright"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spotwright "$@"\n')
    script.chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


def run(
    command: Sequence[str | Path], folder: Path, *, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with its output; HOME is the folder, so that user settings do not count."""
    whole: Mapping[str, str] = {**os.environ, "HOME": str(folder), **environment}
    return subprocess.run(
        command, cwd=folder, env=whole, input=given, capture_output=True, text=True, timeout=120, check=False
    )
