"""Builds the wheels of this checkout, with stand-ins for the page's modules: tests without a browser do not need npm."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


ASSETS = Path("src", "spotwright", "page", "assets")


def copy_of_project(source: Path) -> None:
    """Copy the inputs of a wheel, without the page's modules: building writes into the tree."""
    source.mkdir(exist_ok=True)
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "vendor")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    made = shutil.ignore_patterns("*.egg-info", "build", "spotwright_train")
    shutil.copytree(ROOT / "distributions", source / "distributions", ignore=made)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)


def put_stand_ins(source: Path) -> None:
    """Write a file for each of the table, and its digest into the copy's table."""
    assets = source / ASSETS
    (assets / "vendor").mkdir()
    table = json.loads((assets / "vendor.json").read_text(encoding="utf-8"))
    for name, module in table.items():
        for entry in filter(None, (module, module.get("licence"))):
            content = f"// in the place of {name}\n".encode()
            (assets / "vendor" / entry["file"]).write_bytes(content)
            entry["sha256"] = hashlib.sha256(content).hexdigest()
    (assets / "vendor.json").write_text(json.dumps(table), encoding="utf-8")


def start_build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the wheel of the copy, as pip does."""
    command = [sys.executable, "-c", BUILD, str(out)]
    return subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)


def build_wheel(source: Path, out: Path) -> Path:
    """Build the project's wheel from a copy in ``source``, and give its path."""
    copy_of_project(source)
    put_stand_ins(source)
    done = start_build(source, out)
    assert done.returncode == 0, done.stderr
    return next(out.glob("spotwright-*.whl"))


def build_light_wheel(source: Path, out: Path) -> Path:
    """Build the wheel of ``spotwright-train`` in a copy of the project, and give its path."""
    done = start_build(source / "distributions" / "train", out)
    assert done.returncode == 0, done.stderr
    return next(out.glob("spotwright_train-*.whl"))
