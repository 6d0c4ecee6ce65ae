"""Inputs that would take the SDK too long, or a network: large compiled pipelines, and a package to install.

The SDK needs minutes for thousands of static tasks. What it would write is one component and one executor a task; so a small
compiled pipeline is taken for the pattern and its first task repeated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["write_grown", "write_loop", "write_wheel"]


def write_grown(pattern: Path, target: Path, count: int, *, chain: bool) -> None:
    """Write a compiled pipeline of ``count`` tasks, each like the first task of the one in ``pattern``."""
    import yaml

    document: dict[str, Any] = yaml.load(pattern.read_text(), Loader=yaml.CSafeLoader)
    components, tasks = document["components"], document["root"]["dag"]["tasks"]
    executors = document["deploymentSpec"]["executors"]
    component, task, executor = components["comp-noop"], tasks["noop"], executors["exec-noop"]
    for group in (components, tasks, executors):
        group.clear()
    for number in range(1, count + 1):
        suffix = f"-{number}" if number > 1 else ""
        components[f"comp-noop{suffix}"] = component | {"executorLabel": f"exec-noop{suffix}"}
        executors[f"exec-noop{suffix}"] = executor
        own = {"componentRef": {"name": f"comp-noop{suffix}"}, "taskInfo": {"name": f"noop{suffix}"}}
        if chain and number > 1:
            before = f"noop-{number - 1}" if number > 2 else "noop"
            source = {"taskOutputParameter": {"producerTask": before, "outputParameterKey": "Output"}}
            own |= {"dependentTasks": [before], "inputs": {"parameters": {"number": source}}}
        tasks[f"noop{suffix}"] = task | own
    target.write_text(json.dumps(document))


def write_loop(pattern: Path, target: Path, count: int) -> None:
    """Write the compiled pipeline of ``pattern``, whose loop goes over constants, with ``count`` iterations."""
    import yaml

    document: dict[str, Any] = yaml.load(pattern.read_text(), Loader=yaml.CSafeLoader)
    (loop,) = document["root"]["dag"]["tasks"].values()
    loop["parameterIterator"]["items"]["raw"] = json.dumps(list(range(count)))
    target.write_text(json.dumps(document))


def write_wheel(folder: Path) -> Path:
    """Write a wheel of one function, so that a task with packages needs no network. Format: PEP 427."""
    name, info = "benchmark_tiny-1.0-py3-none-any.whl", "benchmark_tiny-1.0.dist-info"
    files = {
        "benchmark_tiny.py": "def same(number):\n    return number\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: benchmark_tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: benchmark\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return folder / name


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
