"""The Dockerfile of the repository, built with podman on a base image made of this machine, runs pipelines as a plain user."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.building import step
from tests.e2e.inside import attempt, say, work_and_hold
from tests.e2e.project import AT_WORK, Project, a_project
from tests.platforms.podman import ROOT, Podman

PIPELINE = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def double(rows: int) -> int:
    import os
    print("user", os.getuid())
    return rows * 2

@dsl.pipeline
def training(rows: int = 3):
    double(rows=double(rows=rows).output)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    made = Podman(tmp_path_factory.mktemp("podman"))
    try:
        made.prepare()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, made with the machine's own settings of pip, and with the modules of the page that its npm makes."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "page_assets.py"], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("this machine reaches no npm registry")
    folder = tmp_path_factory.mktemp("pip")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    lock = str(ROOT / "requirements" / "build.txt")
    there = subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", str(folder / "wheels"), "-r", lock],
        capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    if there.returncode != 0:
        pytest.skip("this machine reaches no package index")
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=True).stdout
    said = [line.partition("=") for line in listed.splitlines()]
    names = ("cert", "index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
    lines = {key.rpartition(".")[2]: value.strip("'\"") for key, _, value in said}
    settings = folder / "pip.conf"
    settings.write_text("\n".join(["[global]", *(f"{name} = {lines[name]}" for name in names if name in lines)]) + "\n")
    return podman.build(settings)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project that the user of the image may write to, wherever pytest puts it."""
    with a_project(tmp_path) as made:
        for folder in (made.folder, made.playground):
            folder.chmod(0o777)
        yield made


@pytest.mark.long
def test_a_pipeline_is_compiled_and_run_by_an_ordinary_user_and_read_outside(
    podman: Podman, image: str, project: Project
) -> None:
    project.write("pipeline.py", PIPELINE)
    ran = podman.run(image, project, "run", "pipeline.py", "--arg", "rows=5", "--name", "r")
    assert ran.returncode == 0, ran.stderr
    assert project.show()["outputs"]["double-2.Output"]["value"] == 20
    assert project.spotwright("logs", "r", "double", "1").out == "user 1000\n"


def gets_through(number: int) -> int:
    say(f"attempt {attempt()}")
    if attempt() == 1:
        work_and_hold()
    return number


def test_an_interrupted_task_goes_on_in_the_container(podman: Podman, image: str, project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    pipeline = project.pipeline({"it": step(gets_through, {"number": 1})})
    ran = podman.run(image, project, "run", pipeline.name, "--name", "r")
    assert ran.returncode == 0, ran.stderr
    assert project.causes("it") == ["interrupted", "succeeded"]


def test_the_container_has_the_packages_of_the_lock_file_and_nothing_of_the_tests(
    podman: Podman, image: str, project: Project
) -> None:
    script = (
        "import json, pathlib, importlib.metadata as m; print(json.dumps([sorted("
        "d.name.lower().replace('_', '-') for d in m.distributions()), sorted(p.name for p in pathlib.Path('.').iterdir())]))"
    )
    options = ["--rm", "--network", "none", "--entrypoint", "python", "--workdir", "/opt/spotwright"]
    names, files = json.loads(podman.ask("run", *options, image, "-c", script))
    lock = (ROOT / "requirements" / "run.txt").read_text().splitlines()
    locked = {line.partition("==")[0].replace("_", "-") for line in lock if "==" in line and ";" not in line}
    assert locked <= set(names)
    assert "spotwright" in names
    assert files == ["LICENSE", "README.md", "pyproject.toml", "requirements", "src"]
