"""The wheels have the right files and share none; ``spotwright.checkpoint`` is the same from either, and from both."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.project.wheel import (
    ASSETS,
    ROOT,
    build_light_wheel,
    build_wheel,
    copy_of_project,
    put_stand_ins,
    start_build,
)

from spotwright.checkpoint_file import library_modules

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INFO = f"spotwright-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def wheel_file(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light_wheel_file(wheel_file: Path, source: Path) -> Path:
    return build_light_wheel(source, wheel_file.parent)


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> zipfile.Path:
    return zipfile.Path(wheel_file)


def names(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def test_every_module_is_in_the_wheel(wheel: zipfile.Path) -> None:
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names(wheel)


def test_the_wheel_has_the_schema_of_the_configuration_for_editors(wheel: zipfile.Path) -> None:
    assert "spotwright/config/spotwright.schema.json" in names(wheel)


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


def test_the_light_wheel_holds_the_modules_of_the_library_unchanged(light_wheel_file: Path) -> None:
    archive = zipfile.ZipFile(light_wheel_file)
    modules = {f"spotwright_train/{path}": ROOT / "src" / "spotwright" / path for path in library_modules()[1:]}
    info = f"spotwright_train-{VERSION}.dist-info/"

    assert {name for name in archive.namelist() if not name.startswith(info)} == {"spotwright.py", *modules}
    assert {name: archive.read(name).decode() for name in modules} == {
        name: path.read_text(encoding="utf-8") for name, path in modules.items()
    }
    assert "Apache License" in archive.read(f"{info}licenses/LICENSE").decode()


def test_the_light_wheel_has_at_most_300_kilobytes_and_needs_nothing(light_wheel_file: Path) -> None:
    metadata = zipfile.ZipFile(light_wheel_file).read(f"spotwright_train-{VERSION}.dist-info/METADATA").decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]

    assert required == []
    assert light_wheel_file.stat().st_size < 300_000


def test_the_two_wheels_share_no_file(wheel: zipfile.Path, light_wheel_file: Path) -> None:
    assert names(wheel).isdisjoint(zipfile.ZipFile(light_wheel_file).namelist())


def project(folder: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def test_all_distributions_have_one_version_and_name_it_where_they_need_each_other() -> None:
    assert {project(folder)["version"] for folder in ("", "distributions/train", "distributions/pytest")} == {VERSION}
    assert project("")["optional-dependencies"]["pytest"] == [f"spotwright-pytest=={VERSION}"]
    assert f"spotwright=={VERSION}" in project("distributions/pytest")["dependencies"]
    stores = {name: project("")["optional-dependencies"][name] for name in ("s3", "gs", "az")}
    assert project("distributions/train")["optional-dependencies"] == stores


def test_no_plugin_of_pytest_is_registered_without_the_extra(wheel: zipfile.Path) -> None:
    assert "pytest11" not in (wheel / INFO / "entry_points.txt").read_text()


@pytest.fixture(scope="module")
def environments(wheel_file: Path, light_wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Pythons of empty environments into which the wheels were installed from their folder, without a network."""
    pythons = {}
    sets = {"whole": ["spotwright"], "light": ["spotwright-train"], "both": ["spotwright-train", "spotwright"]}
    for name, distributions in sets.items():
        folder = tmp_path_factory.mktemp(name)
        venv.create(folder)
        pythons[name] = folder / "bin" / "python"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(pythons[name]),
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
        ]
        wanted = [f"{each}=={VERSION}" for each in distributions]
        subprocess.run([*pip, "--find-links", str(wheel_file.parent), *wanted], check=True)
    assert wheel_file.parent == light_wheel_file.parent
    return pythons


SAVES = """
import sys
from spotwright.checkpoint import Checkpoint, notice, progress
from spotwright.notices import Notice
import spotwright
ckpt = Checkpoint('place')
ckpt.load()
ckpt.save({'a': [1, 2.5]})
print(Checkpoint('place', writer=False).load(), spotwright.__version__, spotwright.checkpoint.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"), [("whole", "spotwright"), ("light", "spotwright_train"), ("both", "spotwright")]
)
def test_the_library_saves_and_loads_alike_from_either_distribution_and_from_both(
    environments: dict[str, Path], tmp_path: Path, name: str, package: str
) -> None:
    python = environments[name]
    done = subprocess.run([python, "-I", "-c", SAVES], cwd=tmp_path, env={}, check=True, capture_output=True, text=True)
    state, file = done.stdout.split(f" {VERSION} ")

    assert state == "{'a': [1, 2.5]}"
    assert Path(file.strip()).is_relative_to(python.parents[1])
    assert file.strip().endswith(f"/{package}/checkpoint/__init__.py")


@pytest.mark.slow
def test_uninstalling_one_of_both_leaves_the_other_whole(
    wheel_file: Path, light_wheel_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "environment"
    venv.create(target)
    python = target / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel_file), str(light_wheel_file)]
    subprocess.run(install, check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "spotwright"], check=True)
    done = subprocess.run([python, "-I", "-c", SAVES], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert "/spotwright_train/checkpoint/" in done.stdout


@pytest.mark.slow
def test_a_public_function_that_only_the_whole_distribution_has_is_said_to_be_there(
    environments: dict[str, Path],
) -> None:
    code = "import spotwright as spot; spot.run('pipeline.py')"
    done = subprocess.run([environments["light"], "-I", "-c", code], check=False, capture_output=True, text=True)

    assert done.stderr.splitlines()[-1] == (
        "AttributeError: spotwright.run: only spotwright-train is installed, which has spotwright.checkpoint and "
        f"spotwright.notices; for all of Spotwright: pip install spotwright=={VERSION}"
    )


@pytest.mark.slow
def test_the_installed_command_runs(environments: dict[str, Path], tmp_path: Path) -> None:
    """Its dependencies are those of this environment, found after the wheel's own."""
    env = {"PYTHONPATH": sysconfig.get_path("purelib"), "HOME": str(tmp_path)}
    command = [str(environments["whole"].parent / "spotwright"), "checkpoint-file"]
    version = subprocess.run([command[0], "--version"], env=env, check=True, capture_output=True, text=True)
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)

    assert version.stdout == f"spotwright {VERSION}\n"
    assert zipfile.is_zipfile(tmp_path / "spotwright_checkpoint.pyz")
