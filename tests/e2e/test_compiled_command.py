"""The training step of the tutorial, compiled for KFP, runs in a stock Python image as its container's command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT, blocks
from tests.e2e.stock_image import StockImage

pytestmark = pytest.mark.long

TUTORIAL = ROOT / "docs" / "tutorial.md"
CONFIG = """
version: 1
{target}
pools:
  spot: {{capacity: spot, provider: aks, node: {{cpu: 16, memory: 64Gi}}}}
  regular: {{capacity: on-demand, provider: aks, node: {{cpu: 16, memory: 64Gi}}}}
policy: {{default: {{spot: prefer, checkpoint: "pvc://checkpoints"}}}}
"""


@pytest.fixture(scope="module")
def image() -> Iterator[StockImage]:
    made = StockImage()
    try:
        yield made
    finally:
        made.remove()


def compiled(folder: Path, target: str) -> list[Any]:
    """The documents that ``spotwright compile`` writes for the tutorial's last pipeline."""
    for block in blocks(TUTORIAL):
        if block.file in ("steps.py", "surviving.py"):
            (folder / block.file).write_text(block.text)
    (folder / "spotwright.yaml").write_text(CONFIG.format(target=target))
    command = [sys.executable, "-m", "spotwright", "compile", "surviving.py", "-o", "surviving.yaml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return list(yaml.safe_load_all((folder / "surviving.yaml").read_text()))


def container_of(documents: list[Any], image: StockImage) -> dict[str, Any]:
    """The container of the step, with the mounted volume at a folder of this machine."""
    settings = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]
    [mount] = settings["pvcMount"]
    container = dict(documents[0]["deploymentSpec"]["executors"]["exec-train"]["container"])
    container["env"] = [
        {**item, "value": item["value"].replace(mount["mountPath"], str(image.volume))} for item in container["env"]
    ]
    fields = {item["name"] for item in settings["fieldPathAsEnv"]}
    assert fields == {"SPOTWRIGHT_RUN", "SPOTWRIGHT_POD_UID", "SPOTWRIGHT_HOST"}
    return container


def run(image: StockImage, container: dict[str, Any], epochs: int, pod: str) -> str:
    table = image.folder / "table.csv"
    table.write_text("length,width,kind\n5.1,3.5,setosa\n4.9,3.0,setosa\n")
    fields = {"SPOTWRIGHT_RUN": "1234", "SPOTWRIGHT_POD_UID": pod, "SPOTWRIGHT_HOST": "127.0.0.1"}
    done = image.run(container, {"epochs": epochs}, {"table": str(table)}, **fields)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize("target", ["", "target: {package: 0.1.0}"])
def test_the_step_of_the_tutorial_trains_and_a_second_pod_goes_on(
    image: StockImage, tmp_path: Path, target: str
) -> None:
    if target:
        image.add_spotwright()
    shutil.rmtree(image.volume)
    image.volume.mkdir()
    image.give(image.volume)
    container = container_of(compiled(tmp_path, target), image)
    first = run(image, container, 3, "pod-1")
    second = run(image, container, 5, "pod-2")

    assert "epoch 3 of 3" in first
    assert "goes on after" not in first
    assert "goes on after epoch 3" in second
    assert "epoch 4 of 5" in second
    assert "epoch 3 of 5" not in second
    assert json.loads(image.output.read_text())["parameterValues"]["Output"] > 0
    assert list((image.volume / "run-1" / "train").glob("state-*"))


def test_without_the_library_the_step_would_fail_there(image: StockImage, tmp_path: Path) -> None:
    """The image of the test lacks Spotwright, so that the tests above show the effect of compile."""
    documents = compiled(tmp_path, "target: {package: image}")
    fresh = StockImage()
    try:
        done = fresh.run(container_of(documents, fresh), {"epochs": 1}, {"table": str(tmp_path / "table")})
    finally:
        fresh.remove()

    assert done.returncode != 0
    assert "No module named 'spotwright'" in done.stderr
