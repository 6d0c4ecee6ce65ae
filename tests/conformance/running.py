"""Run a conformance pipeline with the real command, on undisturbed or interrupted pools, and read its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.compiling import IMPORTABLE

__all__ = ["Expected", "FinishedRun", "plain_output", "run", "run_on"]

POOLS = {
    "undisturbed": """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, max_nodes: 2, simulate: {boot: 0s}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer}
""",
    "interrupted every second": """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, max_nodes: 2, notice: 50ms, simulate: {boot: 10ms, interrupt_every: 1s}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, grace_period: 20ms, interruptions: {max: 20, backoff: 10ms}, fall_back_after: 3}
""",
}
"""The pools on which the suite runs: the results must be the same on both."""

SECRETS_AND_CONFIG_MAPS = """
secrets: {registry: {token: "@env:REGISTRY_TOKEN"}}
config_maps: {settings: {mode: fast, text: "a: 1"}}
"""
"""The secrets and config maps that the pipelines of the suite read."""


@dataclass(frozen=True)
class Expected:
    """The expected result of a pipeline.

    ``values`` are the outputs of its components by task, ``skipped`` and ``failed`` the tasks that end so; all others succeed,
    except those in ``open``, which never begin. ``outputs`` are the pipeline's own. An artifact counts as the text of its file.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended."""

    view: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """The value that each component returned; of several outputs those that are parameters, by name."""
        found = {}
        for task in self.view["tasks"]:
            given = task["outputs"]["parameters"]
            if given and not task["is_pipeline"]:
                found[task["path"]] = given["Output"] if list(given) == ["Output"] else given
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        """The pipeline's own outputs; empty if it declares none."""
        return {name: plain_output(output) for name, output in self.view["outputs"].items() if "." not in name}

    def tasks_with(self, status: str) -> frozenset[str]:
        """The tasks with a status."""
        return frozenset(task["path"] for task in self.view["tasks"] if task["status"] == status)

    @property
    def causes(self) -> list[str]:
        """The causes of attempts that did not succeed."""
        attempts = [attempt for task in self.view["tasks"] for attempt in task["attempts"]]
        return [attempt["cause"] for attempt in attempts if attempt["cause"] != "succeeded"]


def plain_output(output: Mapping[str, Any]) -> Any:
    """An output in the form of the comparison: a parameter's value, the text of an artifact's file, or a list of those."""
    if output["kind"] == "parameter":
        return output["value"]
    if output["kind"] == "artifacts":
        return [plain_output(each) for each in output["artifacts"]]
    return Path(output["uri"]).read_text(encoding="utf-8")


def run(compiled: Path, pools: str, folder: Path, arguments: Mapping[str, Any]) -> FinishedRun:
    """Run a compiled pipeline to its end on pools of :data:`POOLS`."""
    return run_on(compiled, POOLS[pools], folder, arguments)


def run_on(compiled: Path, pools: str, folder: Path, arguments: Mapping[str, Any]) -> FinishedRun:
    """Run a compiled pipeline to its end on the given pools, in the YAML of ``spotwright.yaml``."""
    config = folder / "spotwright.yaml"
    config.write_text(f"version: 1\n{pools}{SECRETS_AND_CONFIG_MAPS}")
    given = [part for name, value in arguments.items() for part in ("--arg", f"{name}={_text(value)}")]
    command = [sys.executable, "-m", "spotwright", "run", str(compiled), "--config", str(config), "--cache", "off"]
    command += ["--state", str(folder / "state"), "--seed", "7", "--json", "--containers", "host", *given]
    environ = {**os.environ, "REGISTRY_TOKEN": "quite-a-secret!", "PYTHONPATH": str(IMPORTABLE)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout, done.stderr
    return FinishedRun(json.loads(done.stdout))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
