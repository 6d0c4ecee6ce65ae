"""Podman, where this machine can build images."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.containers.podman_settings import environment_to_start
from tests.e2e.project import Project
from tests.platforms.python_image import python_file_system

ROOT = Path(__file__).parents[2]


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
        """podman's answer; a test that cannot have this is skipped."""
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
