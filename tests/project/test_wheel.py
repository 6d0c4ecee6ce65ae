"""The wheel that users install holds the package, its types, its command and its licence, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from tests.project.wheel import ASSETS, ROOT, build_wheel, copy_of_project, put_stand_ins, start_build

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INFO = f"spotwright-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> zipfile.Path:
    return zipfile.Path(wheel_file)


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
    assert "spotwright = spotwright.__main__:main" in (wheel / INFO / "entry_points.txt").read_text()


def test_the_licence_comes_with_it(wheel: zipfile.Path) -> None:
    assert "Apache License" in (wheel / INFO / "licenses" / "LICENSE").read_text()


def test_the_files_of_the_page_are_in_the_wheel_with_all_that_come_from_npm(wheel: zipfile.Path) -> None:
    assets = ROOT / ASSETS
    own = {path for path in assets.rglob("*") if path.is_file() and "vendor" not in path.parts}
    table = json.loads((assets / "vendor.json").read_text(encoding="utf-8"))
    modules = [assets / "vendor" / entry["file"] for entry in table.values()]
    licences = [assets / "vendor" / entry["licence"]["file"] for entry in table.values() if "licence" in entry]
    expected = {str(path.relative_to(ROOT / "src")) for path in (*own, *modules, *licences)}
    assert expected == {name for name in names(wheel) if name.startswith("spotwright/page/assets/")}


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("preact.js", None, "preact.js is missing"),
        ("preact.js", "another", "preact.js is not the file of vendor.json"),
        ("more.js", "more", "more.js is not in vendor.json"),
    ],
)
def test_a_wheel_without_the_modules_of_the_page_is_not_built(
    tmp_path: Path, name: str, content: str | None, fault: str
) -> None:
    copy_of_project(tmp_path)
    put_stand_ins(tmp_path)
    path = tmp_path / ASSETS / "vendor" / name
    path.unlink() if content is None else path.write_text(content, encoding="utf-8")

    done = start_build(tmp_path, tmp_path / "out")

    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert fault in last
    assert "make page" in last
    assert not list(tmp_path.rglob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment into which the wheel was installed from its folder, without a network."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--find-links", str(wheel_file.parent), f"spotwright=={VERSION}"], check=True)
    return python


@pytest.mark.long
@pytest.mark.slow
def test_the_installed_wheel_has_a_checkpoint_library_that_saves_and_loads(installed: Path, tmp_path: Path) -> None:
    code = (
        "from spotwright.checkpoint import Checkpoint\nckpt = Checkpoint('place')\nckpt.load()\nckpt.save({'a': [1, 2.5]})\n"
        "print(Checkpoint('place', writer=False).load(), __import__('spotwright').__file__)"
    )
    done = subprocess.run(
        [installed, "-I", "-c", code], cwd=tmp_path, env={}, check=True, capture_output=True, text=True
    )

    assert done.stdout.startswith("{'a': [1, 2.5]} " + str(installed.parents[1]))


@pytest.mark.slow
def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment, found after what the wheel brought."""
    env = {"PYTHONPATH": sysconfig.get_path("purelib"), "HOME": str(tmp_path)}
    command = [str(installed.parent / "spotwright"), "checkpoint-file"]
    version = subprocess.run([command[0], "--version"], env=env, check=True, capture_output=True, text=True)
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)

    assert version.stdout == f"spotwright {VERSION}\n"
    assert zipfile.is_zipfile(tmp_path / "spotwright_checkpoint.pyz")
