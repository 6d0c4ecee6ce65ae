"""Places the workloads of a recording with the real command, and lets others go to spot nodes as they are."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CONFIGURATION", "placed", "tolerant"]

CONFIGURATION = """\
version: 1
target: {trainer: "2.2", argo: "3.7"}
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 1000, memory: 8Gi}}
  regular: {capacity: on-demand, provider: aks, node: {cpu: 1000, memory: 8Gi}}
policy:
  default: {spot: require, interruptions: {max: 3}, errors: {retries: 0}}
  tasks:
    "system-*-driver": {spot: never}
"""
_SPOT = "kubernetes.azure.com/scalesetpriority"


def placed(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects as ``spotwright place`` writes them for pools like those of AKS.

    A patch that Argo fills in later is not a patch yet when the Workflow is placed, so it is set aside and put back.
    """
    patches = [template.pop("podSpecPatch", None) for template in _templates(objects)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spotwright.yaml").write_text(CONFIGURATION, encoding="utf-8")
        file = Path(folder) / "workload.yaml"
        file.write_text(yaml.safe_dump_all(objects, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "spotwright", "place", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"spotwright place: {done.stderr}")
    written = list(yaml.safe_load_all(done.stdout))
    for template, patch in zip(_templates(written), patches, strict=True):
        template.update({"podSpecPatch": patch} if patch is not None else {})
    return written


def tolerant(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects with a hand-written toleration and selector for spot nodes, without Spotwright."""
    wanted = {
        "tolerations": [{"key": _SPOT, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}],
        "nodeSelector": {_SPOT: "spot"},
    }
    for each in (
        *_templates(objects),
        *(each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Job"),
    ):
        each.update(wanted)
    return list(objects)


def _templates(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [template for each in objects if each["kind"] == "Workflow" for template in each["spec"]["templates"]]
