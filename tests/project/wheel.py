"""Builds the wheel of this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def build_wheel(source: Path, out: Path) -> Path:
    """Build the project's wheel from a copy in ``source``, since building writes into the tree."""
    source.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=source, check=True, capture_output=True)
    return next(out.glob("spotwright-*.whl"))
