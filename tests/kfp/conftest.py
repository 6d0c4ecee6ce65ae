"""Pipelines compiled by the real SDK, once for all tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.shared_folders import shared_folder

from spotwright.kfp.compiled import Compiled
from spotwright.kfp.loader import load

TRAINING = '''
from kfp import dsl, kubernetes
import spotwright as spot


@dsl.component(base_image="python:3.11", packages_to_install=["pandas>=2", "x; python_version<'3.9'"])
def get(url: str, data: dsl.Output[dsl.Dataset]):
    with open(data.path, "w") as f:
        f.write(url)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def train(
    data: dsl.Input[dsl.Dataset],
    steps: int,
    note: str,
    model: dsl.Output[dsl.Model],
    log: dsl.OutputPath(str),
    rate: float = 0.5,
    options: dict = {"layers": [1, 2]},
) -> float:
    """Trains."""
    model.metadata["steps"] = steps
    with open(model.path, "w") as f:
        f.write(f"{open(data.path).read()} {steps} {note} {options}")
    with open(log, "w") as f:
        f.write("line")
    return rate * steps


@dsl.component(base_image="python:3.11")
def size() -> str:
    return "3Gi"


@dsl.pipeline
def inner(data: dsl.Input[dsl.Dataset], steps: int, toleration: dict = {"key": "k", "operator": "Exists"}) -> float:
    step = train(data=data, steps=steps, note="inside")
    kubernetes.add_toleration_json(step, toleration)
    return step.outputs["Output"]


@dsl.pipeline(name="training")
def training(url: str, steps: int = 3, memory: str = "2Gi", extra: list = None) -> float:
    first = get(url=url).set_display_name("Get it")
    needed = size()
    nested = inner(data=first.outputs["data"], steps=steps).set_retry(1)
    last = train(data=first.outputs["data"], steps=7, note=f"{url} of {dsl.PIPELINE_JOB_NAME_PLACEHOLDER}")
    last.set_memory_limit(memory).set_cpu_request("500m").set_retry(2, "30s", 3, "10m").after(nested)
    spot.prefer(last, interruptions=5, gpus=2)
    kubernetes.add_toleration(last, key="sku", operator="Equal", value="gpu", effect="NoSchedule")
    kubernetes.add_node_affinity(last, match_expressions=[{"key": "a", "operator": "In", "values": ["b"]}], weight=5)
    kubernetes.add_node_affinity_json(
        last,
        {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]}},
    )
    kubernetes.set_timeout(last, 600)
    kubernetes.set_image_pull_secrets(last, ["acr"])
    big = train(data=first.outputs["data"], steps=1, note="x", options={"layers": [3]})
    big.set_memory_limit(needed.output).set_cpu_limit("2").set_env_variable("A", "b")
    big.set_caching_options(True, cache_key="mine")
    kubernetes.add_node_selector(big, "disk", "ssd")
    return nested.output


training = spot.defaults(spot="prefer", interruptions=3)(training)
'''


@pytest.fixture(scope="session")
def training_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that uses most supported features."""
    return shared_folder(tmp_path_factory, "training", _write_training) / "training.py"


def _write_training(folder: Path) -> None:
    """Write the pipeline, and the same one as the SDK writes it to YAML, and once more after the SDK has read that file."""
    (folder / "training.py").write_text(TRAINING)
    script = (
        "import sys, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, sys.argv[1])\n"
        "import training; from kfp import compiler, components\n"
        "compiler.Compiler().compile(training.training, sys.argv[2])\n"
        "compiler.Compiler().compile(components.load_component_from_file(sys.argv[2]), sys.argv[2] + '.again.yaml')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(folder), str(folder / "training.yaml")], check=True)


@pytest.fixture(scope="session")
def training(training_file: Path) -> Compiled:
    """The pipeline compiled from its .py file."""
    return load(training_file, pipeline="training")


@pytest.fixture(scope="session")
def training_yaml(training_file: Path) -> Path:
    """The same pipeline as the SDK writes it to YAML, and once more after the SDK has read that file."""
    return training_file.with_suffix(".yaml")
