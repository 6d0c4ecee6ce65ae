"""The Dockerfile of the repository, built with podman on a base image made of this machine, runs pipelines as a plain user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.building import step
from tests.e2e.containers.podman_settings import environment_to_start
from tests.e2e.inside import attempt, say, work_and_hold
from tests.e2e.project import AT_WORK, Project, a_project
from tests.platforms.python_image import python_file_system

ROOT = Path(__file__).parents[2]
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


class Podman:
    """podman, with the images that are made by it and removed at the end."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("podman") is None:
            pytest.skip("podman is not installed")
        self._folder = folder
        self._images: list[str] = []
        self._env: Mapping[str, str] = os.environ
        self._init: tuple[str, ...] = ()
        self.base = self._name("base")

    def prepare(self) -> None:
        """Make the base image, and see that containers of it start."""
        self.ask(
            "import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "-", self.base, given=python_file_system()
        )
        self._images.append(self.base)
        self._env = {**os.environ, **environment_to_start(self._folder, self._starts)}
        self.ask("run", "--rm", "--network", "none", self.base, "python", "--version")
        if self._starts(self._env, "--init"):  # not every machine has podman's program for that
            self._init = ("--init",)

    def _starts(self, env: Mapping[str, str], *options: str) -> bool:
        command = ["podman", "run", "--rm", *options, "--network", "none", self.base, "python", "--version"]
        env = {**os.environ, **env}
        return subprocess.run(command, env=env, capture_output=True, check=False, timeout=600).returncode == 0

    @staticmethod
    def _name(what: str) -> str:
        return f"localhost/spotwright-test-{os.getpid()}-{what}:1"

    def ask(self, *command: str, given: bytes = b"") -> str:
        """What podman answers; a test that cannot have this is skipped."""
        done = subprocess.run(
            ["podman", *command], input=given, env=self._env, capture_output=True, check=False, timeout=600
        )
        if done.returncode != 0:
            pytest.skip(f"podman {command[0]}: {(done.stderr.decode().strip().splitlines() or ['fails'])[-1]}")
        return done.stdout.decode()

    def build(self, settings_of_pip: Path) -> str:
        """The image of the Dockerfile."""
        image = self._name("spotwright")
        command = ["podman", "build", "--tag", image, "--network", "host", "--layers=false", "--force-rm"]
        command += ["--build-arg", f"BASE={self.base}", "--secret", f"id=pip,src={settings_of_pip}", str(ROOT)]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=590)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        self._images.insert(0, image)
        return image

    def run(self, image: str, project: Project, *command: str) -> subprocess.CompletedProcess[str]:
        """``spotwright COMMAND`` in a container whose project is the test's."""
        options = ["--rm", *self._init, "--network", "none", "--volume", f"{project.folder}:/project"]
        options += ["--env", "PLAYGROUND=/project/playground"]
        return subprocess.run(
            ["podman", "run", *options, image, *command],
            env=self._env, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def remove(self) -> None:
        """Remove the images."""
        for image in self._images:
            subprocess.run(["podman", "rmi", "--force", image], env=self._env, capture_output=True, check=False)


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
    """The image, made with the machine's own settings of pip."""
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
