"""Stands in for a pod of the image ``python:3.11``: a separate Python with pip, an index of wheels in a folder, another user.

The container's command runs as the backend runs it: with only the variables of the container and of the pod's fields, from
``/``, as a user who owns only the installation. Wheels are packed from the packages installed here and from this project.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.project.wheel import build_light_wheel, copy_of_project

__all__ = ["StockImage", "wheel_of_installed"]

_USER = 1000
ROOT = Path(__file__).resolve().parents[2]


def _interpreter() -> tuple[str, int | None]:
    """A Python of this version, and the other user who may run it; without such a Python or rights our own, and no user."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for base in (os.path.realpath(sys.executable), f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        if os.getuid() == 0 and Path(base).exists():
            with contextlib.suppress(OSError):
                done = subprocess.run([base, "-c", ""], user=_USER, group=_USER, extra_groups=[], check=False, env={})
                if done.returncode == 0:
                    return base, _USER
    return sys.executable, None


def wheel_of_installed(name: str, folder: Path) -> Path:
    """Pack an installed distribution as the wheel that it came from."""
    found = importlib.metadata.distribution(name)
    made = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(made, "w") as archive:
        for file in found.files or ():
            path, text = Path(str(found.locate_file(file))), str(file)
            if (
                text.startswith("..")
                or text.endswith((".pyc", "RECORD", "INSTALLER", "REQUESTED"))
                or not path.is_file()
            ):
                continue
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{text},sha256={digest},{len(data)}")
            archive.writestr(text, data)
        info = f"{name.replace('-', '_')}-{found.version}.dist-info"
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")
    return made


class StockImage:
    """One pod's file system below a folder that the user may enter."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="spotwright-stock-", dir="/tmp"))  # pytest's are root's alone
        self.folder.chmod(0o755)
        self.wheels, self.python = self.folder / "wheels", self.folder / "python"
        self.wheels.mkdir()
        base, self._user = _interpreter()
        subprocess.run([base, "-m", "venv", "--without-pip", str(self.python)], check=True)
        self._add_pip()
        wheel_of_installed("kfp", self.wheels)
        self.volume = self.folder / "volume"
        self.volume.mkdir()
        self.give(self.folder)

    def _add_pip(self) -> None:
        """Unpack the pip of this environment, since some distributions leave out ensurepip."""
        packed = wheel_of_installed("pip", self.folder)
        python = self.python / "bin" / "python3"
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        zipfile.ZipFile(packed).extractall(site)
        script = self.python / "bin" / "pip"
        script.write_text(f"#!{python}\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n")
        script.chmod(0o755)

    def add_spotwright(self) -> Path:
        """Put the wheel for training images into the index."""
        copy_of_project(self.folder / "source")
        return build_light_wheel(self.folder / "source", self.wheels)

    def give(self, folder: Path) -> None:
        """Make the image's user the owner of a folder and of everything in it."""
        if self._user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._user, self._user, follow_symlinks=False)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder)

    def run(
        self, container: Mapping[str, Any], inputs: Mapping[str, Any], artifacts: Mapping[str, str], **fields: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a container's command with the values of its inputs; ``fields`` are variables that come from the pod's fields."""
        outputs = Path(tempfile.mkdtemp(dir=self.folder))
        self.give(outputs)
        executor_input = json.dumps(_executor_input(inputs, artifacts, outputs))
        command = [
            str(part).replace("{{$}}", executor_input) for part in (*container["command"], *container.get("args", ()))
        ]
        declared = {
            item["name"]: item["value"].replace("{{workflow.name}}", "run-1") for item in container.get("env", ())
        }
        env = {**declared, **fields}
        self.output = outputs / "executor_output.json"
        return self.start(command, env)

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command as the image's user in ``/``, with these variables and those that an image has."""
        env = {
            "PATH": f"{self.python}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_CACHE_DIR": "1",
            **variables,
        }
        user: dict[str, Any] = {}
        if self._user is not None:
            user = {"user": self._user, "group": self._user, "extra_groups": []}
        return subprocess.run(
            command, cwd="/", env=env, capture_output=True, text=True, timeout=300, check=False, **user
        )


def _executor_input(inputs: Mapping[str, Any], artifacts: Mapping[str, str], outputs: Path) -> dict[str, Any]:
    """The launcher's arguments for the SDK's executor."""
    kind = {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}
    given = {
        name: {"artifacts": [{"name": name, "type": kind, "uri": uri, "metadata": {}}]}
        for name, uri in artifacts.items()
    }
    return {
        "inputs": {"parameterValues": dict(inputs), "artifacts": given},
        "outputs": {
            "parameters": {"Output": {"outputFile": str(outputs / "Output")}},
            "outputFile": str(outputs / "executor_output.json"),
        },
    }
