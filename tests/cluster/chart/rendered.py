"""The chart as the real Helm renders it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from testbed.building.builds import Cache
from testbed.settings import Settings

__all__ = ["CHART", "PROCESSES", "Helm", "RefusedError", "find_helm", "pod_of"]

Object = dict[str, Any]

CHART = Path(__file__).resolve().parents[3] / "charts" / "spotwright"


class RefusedError(AssertionError):
    """Helm refuses the values; the text is its message for the user."""


@dataclass(frozen=True)
class Helm:
    """The program, and the cluster that it installs into, if there is one."""

    program: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """The output of a command. Raises :class:`RefusedError`."""
        command = [str(self.program), *arguments]
        command += [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig}"]
        command += [] if values is None else ["--values=-"]
        text = None if values is None else json.dumps(values)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout

    def render(
        self, values: Mapping[str, Any], namespace: str = "spotwright", release: str = "spotwright"
    ) -> list[Object]:
        """The objects of a release, without tests. Raises :class:`RefusedError`."""
        command = ["template", release, str(CHART), f"--namespace={namespace}", "--skip-tests"]
        return [each for each in yaml.safe_load_all(self.run(*command, values=values)) if each]


def find_helm() -> Path | None:
    """The Helm of the test bed, else one on the PATH."""
    built = Cache(Settings.from_environment().cache).program("helm")
    found = shutil.which("helm")
    return built if built.exists() else Path(found) if found else None


PROCESSES = ("webhook", "recorder")


def pod_of(objects: list[Object], process: str) -> Object:
    """The pod template of a process of the controller."""
    (deployment,) = [
        each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"] == f"spotwright-{process}"
    ]
    template: Object = deployment["spec"]["template"]
    return template
