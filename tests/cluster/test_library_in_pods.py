"""The checkpoint library reaches pods in a mount for which unrelated work never waits, also pods that KFP's own client starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, admitted
from tests.cluster.admitted_pods import a_pod, precise

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file, config_map
from spotwright.config import Config

NAME = config_map()["metadata"]["name"]
MOUNT = {"name": "spotwright-library", "mountPath": "/spotwright/library", "readOnly": True}
FILE = f"/spotwright/library/{FILE_NAME}"
LAUNCHER = ["/var/run/argo/argoexec", "emissary", "--", "/kfp-launcher/launch", "--pipeline_name", "p", "--"]
PIP = 'if ! [ -x pip ]; then true; fi\npython3 -m pip install kfp && "$0" "$@"'
EXECUTOR = 'program_path=$(mktemp -d)\npython3 -m kfp.dsl.executor_main --component_module_path x "$@"\n'
SOURCE = "import kfp\nfrom spotwright.checkpoint import Checkpoint\n"
BY_DEFAULT = "{default: {spot: prefer, checkpoint: 'gs://saves/team-a'}}"


def configured(policy: str = BY_DEFAULT, package: str = "configmap") -> Config:
    from spotwright import config as configuration

    text = a_config(policy).text.replace("target: {", f"target: {{package: {package}, " if package else "target: {")
    return configuration.parse(text, "team-a")


def a_component(config: Config, source: str = SOURCE, **container: Any) -> dict[str, Any]:
    """The pod of a Python component as KFP 2.17 makes it."""
    pod = a_pod(config)
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), "pipeline/runid": "1"}
    pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"] = "run(0).root(0).train(0).executor(0)"
    main = pod["spec"]["containers"][0]
    kept = [one for one in main["env"] if one["name"] != "PYTHONPATH"]
    arguments = ["sh", "-c", PIP, "sh", "-ec", EXECUTOR, source, "--function_to_execute", "train"]
    pod["spec"]["containers"] = [{**main, "command": LAUNCHER, "args": arguments, "env": kept, **container}]
    pod["spec"]["containers"][0].pop("volumeMounts", None)
    pod["spec"].pop("volumes", None)
    return pod


def library_of(spec: dict[str, Any]) -> dict[str, Any] | None:
    return next((one["configMap"] for one in spec.get("volumes", ()) if one["name"] == "spotwright-library"), None)


def job_with(
    policy: str, command: list[str] | None = None, package: str = "configmap", **metadata: Any
) -> dict[str, Any]:
    job = a_job()
    job["metadata"] |= metadata
    job["spec"]["template"]["spec"]["containers"][0]["command"] = command or ["sh", "-c", "sleep 1"]
    spec: dict[str, Any] = admitted(job, configured(policy, package))[0]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("package", ["configmap", "embedded"])
def test_work_with_a_checkpoint_by_default_alone_does_not_wait_for_the_library(package: str) -> None:
    assert library_of(job_with(BY_DEFAULT, package=package)) == {"name": NAME, "optional": True}


def test_work_that_asks_for_a_checkpoint_waits_for_it() -> None:
    own = {"spotwright.dev/policy": '{"spot": "prefer", "checkpoint": "gs://saves/own"}'}
    assert library_of(job_with(BY_DEFAULT, annotations=own)) == {"name": NAME}
    of_task = "{default: {spot: prefer}, tasks: {train: {checkpoint: 'gs://saves/own'}}}"
    assert library_of(job_with(of_task)) == {"name": NAME}
    assert library_of(job_with(BY_DEFAULT, ["python", "-c", SOURCE])) == {"name": NAME}


@pytest.mark.parametrize("package", ["", "configmap", "embedded"])
@pytest.mark.parametrize("policy", [BY_DEFAULT, "{default: {spot: prefer}}"])
def test_a_component_of_kfp_s_client_that_imports_it_has_it(policy: str, package: str) -> None:
    config = configured(policy, package)
    spec = precise(a_component(config), config=config)[0]["spec"]
    [main] = spec["containers"]
    assert library_of(spec) == {"name": NAME, "optional": True}
    assert MOUNT in main["volumeMounts"]
    assert main["args"][2] == PIP
    assert main["args"][5].endswith(EXECUTOR)
    assert FILE in main["args"][5]
    assert main["args"][6] == SOURCE


def test_a_component_whose_policy_has_a_checkpoint_has_it_too() -> None:
    spec = precise(a_component(configured(), "import kfp"), config=configured())[0]["spec"]
    assert library_of(spec) == {"name": NAME, "optional": True}
    without = configured("{default: {spot: prefer}}")
    assert library_of(precise(a_component(without, "import kfp"), config=without)[0]["spec"]) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [FILE]),
        ([{"name": "PYTHONPATH", "value": "/app"}], [f"/app:{FILE}"]),
        ([{"name": "PYTHONPATH", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], [None]),
    ],
)
def test_a_container_without_a_script_finds_it_by_its_environment(given: list[Any], expected: list[Any]) -> None:
    pod = a_component(configured(), args=["python", "train.py"])
    pod["spec"]["containers"][0]["env"] += given
    [main] = precise(pod, config=configured())[0]["spec"]["containers"]
    assert [one.get("value") for one in main["env"] if one["name"] == "PYTHONPATH"] == expected
    assert main["args"] == ["python", "train.py"]


def test_a_script_finds_it_whatever_python_path_its_image_has() -> None:
    pod = a_component(configured(), args=["bash", "-ec", "python train.py"])
    [main] = precise(pod, config=configured())[0]["spec"]["containers"]
    assert main["args"][2].endswith("fi\npython train.py")
    assert "PYTHONPATH" not in [one["name"] for one in main["env"]]


@pytest.mark.parametrize("package", ["image", "/opt/library", "0.1.0"])
def test_another_way_that_was_named_needs_no_mount(package: str) -> None:
    config = configured(package=package)
    spec = precise(a_component(config), config=config)[0]["spec"]
    assert library_of(spec) is None
    script = spec["containers"][0]["args"][5]
    assert (script == EXECUTOR) is (package == "image")
    assert "/opt/library" in script or package != "/opt/library"
    assert (
        "pip install --quiet --no-warn-script-location --no-deps spotwright-train==0.1.0" in script
        or package != "0.1.0"
    )


def test_a_component_that_has_it_already_stays() -> None:
    for args in (
        ["sh", "-c", 'python3 -m pip install spotwright==0.1.0 && "$0"', "sh", "-ec", EXECUTOR, SOURCE],
        ["sh", "-ec", f"export PYTHONPATH={FILE}\n{EXECUTOR}", SOURCE],
    ):
        spec = precise(a_component(configured(), args=args), config=configured())[0]["spec"]
        assert (library_of(spec), spec["containers"][0]["args"]) == (None, args)


def test_a_driver_gets_nothing_though_its_arguments_hold_the_source() -> None:
    pod = a_component(configured())
    pod["spec"]["containers"][0]["env"] = []
    assert library_of(precise(pod, config=configured())[0]["spec"]) is None


@pytest.mark.parametrize("is_there", [True, False])
def test_the_lines_let_the_code_import_it_and_start_it_without_the_file_too(tmp_path: Path, is_there: bool) -> None:
    pod = a_component(configured(), args=["sh", "-ec", "python3 main.py"])
    script = precise(pod, config=configured())[0]["spec"]["containers"][0]["args"][2]
    if is_there:
        (tmp_path / FILE_NAME).write_bytes(checkpoint_file())
    (tmp_path / "main.py").write_text(
        "import os, spotwright.checkpoint as it; print(it.__file__, os.environ['PYTHONPATH'])"
    )
    (tmp_path / "python3").symlink_to(sys.executable)
    script = script.replace("/spotwright/library", str(tmp_path)).replace("python3", f"{tmp_path}/python3 -S")
    environment = {"PYTHONPATH": "/own", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if is_there:
        assert done.stdout.split() == [
            f"{tmp_path / FILE_NAME}/spotwright/checkpoint/__init__.py",
            f"{tmp_path / FILE_NAME}:/own",
        ]
    else:
        assert "ModuleNotFoundError" in done.stderr
