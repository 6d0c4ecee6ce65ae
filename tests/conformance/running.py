"""One conformance pipeline, run by the real command on pools that are left alone or taken away, and what came of it."""

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

__all__ = ["Expected", "Ran", "plain_output", "run", "run_on"]

WORLDS = {
    "undisturbed": """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, max_nodes: 2, simulate: {boot: 0s}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer}
""",
    "taken every second": """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, max_nodes: 2, notice: 50ms, simulate: {boot: 10ms, taken_every: 1s}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, grace_period: 20ms, interruptions: {max: 20, backoff: 10ms}, fall_back_after: 3}
""",
}
"""Where the suite runs, once each: what comes out must be the same."""

OBJECTS = """
secrets: {registry: {token: "@env:REGISTRY_TOKEN"}}
config_maps: {settings: {mode: fast, text: "a: 1"}}
"""
"""What the cluster of the suite has."""


@dataclass(frozen=True)
class Expected:
    """What a pipeline must come to.

    ``values`` are the outputs of its components by task, ``skipped`` and ``failed`` the tasks that end so; everything else
    succeeds, unless ``open`` names it. ``outputs`` are the pipeline's own. An artifact counts as the text of its file.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    view: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """The value that each component gave back; of several outputs those that are parameters, by name."""
        found = {}
        for task in self.view["tasks"]:
            given = task["outputs"]["parameters"]
            if given and not task["is_pipeline"]:
                found[task["path"]] = given["Output"] if list(given) == ["Output"] else given
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        """The pipeline's own outputs; none where it declares none."""
        return {name: plain_output(output) for name, output in self.view["outputs"].items() if "." not in name}

    def having(self, status: str) -> frozenset[str]:
        """The tasks with a status."""
        return frozenset(task["path"] for task in self.view["tasks"] if task["status"] == status)

    @property
    def causes(self) -> list[str]:
        """Why attempts ended that did not succeed."""
        attempts = [attempt for task in self.view["tasks"] for attempt in task["attempts"]]
        return [attempt["cause"] for attempt in attempts if attempt["cause"] != "succeeded"]


def plain_output(output: Mapping[str, Any]) -> Any:
    """An output as it is compared: a parameter's value, the text of an artifact's file, or a list of those."""
    if output["kind"] == "parameter":
        return output["value"]
    if output["kind"] == "artifacts":
        return [plain_output(each) for each in output["artifacts"]]
    return Path(output["uri"]).read_text(encoding="utf-8")


def run(compiled: Path, world: str, folder: Path, arguments: Mapping[str, Any]) -> Ran:
    """Run a compiled pipeline to its end in a world of its own."""
    return run_on(compiled, WORLDS[world], folder, arguments)


def run_on(compiled: Path, pools: str, folder: Path, arguments: Mapping[str, Any]) -> Ran:
    """Run a compiled pipeline to its end on these pools."""
    config = folder / "spotwright.yaml"
    config.write_text(f"version: 1\n{pools}{OBJECTS}")
    given = [part for name, value in arguments.items() for part in ("--arg", f"{name}={_text(value)}")]
    command = [sys.executable, "-m", "spotwright", "run", str(compiled), "--config", str(config), "--no-cache"]
    command += ["--state", str(folder / "state"), "--seed", "7", "--json", "--containers", "host", *given]
    environ = {**os.environ, "REGISTRY_TOKEN": "quite-a-secret!", "PYTHONPATH": str(IMPORTABLE)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout, done.stderr
    return Ran(json.loads(done.stdout))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
