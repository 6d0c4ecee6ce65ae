"""The wheel that users install holds the package, its types, its command and its licence, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INFO = f"spotwright-{VERSION}.dist-info"
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """Build the wheel from a copy, since building writes into the tree."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=source, check=True, capture_output=True)
    return zipfile.Path(next(out.glob("*.whl")))


def names(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def test_every_module_is_in_the_wheel(wheel: zipfile.Path) -> None:
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names(wheel)


def test_the_wheel_says_that_it_is_typed(wheel: zipfile.Path) -> None:
    assert "spotwright/py.typed" in names(wheel)


def test_nothing_but_the_package_is_installed(wheel: zipfile.Path) -> None:
    assert {name.partition("/")[0] for name in names(wheel)} == {"spotwright", INFO}


def test_the_command_is_spotwright(wheel: zipfile.Path) -> None:
    assert "spotwright = spotwright.cli:main" in (wheel / INFO / "entry_points.txt").read_text()


def test_the_licence_comes_with_it(wheel: zipfile.Path) -> None:
    assert "Apache License" in (wheel / INFO / "licenses" / "LICENSE").read_text()
