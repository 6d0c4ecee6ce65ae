"""Reading executors: Python components of every SDK 2.x, and containers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kfp.builders import RUN_COMPONENT, python_container

from spotwright.graph import Container
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.task_reader import Unsupported, read_executor

PIP = '\nif ! [ -x "$(command -v pip)" ]; then\n    python3 -m ensurepip || apt-get install python3-pip\nfi\n\n'
ONE_LINE = PIP + (  # SDK 2.0: packages and the SDK in one pip command
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet     --no-warn-script-location "
    "'pandas' \"x; python_version<'3.9'\" 'kfp==2.0.1' && \"$0\" \"$@\"\n"
)
SDK_FIRST = PIP + (  # SDK 2.4 to 2.11: the SDK, then the packages, with the index repeated
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location "
    "--index-url https://a/simple --extra-index-url https://b/simple --trusted-host a 'kfp==2.7.0' '--no-deps' "
    "'typing-extensions>=3.7.4,<5; python_version<\"3.9\"'  &&  python3 -m pip install --quiet "
    "--no-warn-script-location --index-url https://a/simple --extra-index-url https://b/simple --trusted-host a "
    "'yapf' 'kfp-kubernetes==1.0' && \"$0\" \"$@\"\n"
)
SDK_LAST = PIP + (  # SDK 2.12 and later, here with use_venv
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location 'pandas>=2'  &&  \n"
    'export PIP_DISABLE_PIP_VERSION_CHECK=1\ntmp=$(mktemp -d)\npython3 -m venv "$tmp/venv" --system-site-packages\n'
    ". \"$tmp/venv/bin/activate\"\n python3 -m pip install --quiet --no-warn-script-location 'kfp==2.17.0' "
    '\'--no-deps\' \'typing-extensions>=3.7.4,<5; python_version<"3.9"\' && "$0" "$@"\n'
)


def executor(**container: Any) -> dict[str, Any]:
    return {"container": python_container(**container)}


def lightweight(entry: dict[str, Any]) -> PythonComponent:
    found = read_executor(entry)
    assert isinstance(found, PythonComponent)
    return found


def test_source_function_image_and_environment_are_read() -> None:
    found = lightweight(
        executor(function="train", source="def train(): ...", env=[{"name": "A", "value": "b"}, {"name": "C"}])
    )
    assert (found.module, found.function, found.image) == ("def train(): ...", "train", "python:3.11")
    assert found.env == {"A": "b", "C": ""}
    assert (found.packages, found.kfp) == ((), "")


@pytest.mark.parametrize(
    ("install", "packages", "kfp", "urls", "hosts"),
    [
        (ONE_LINE, ("pandas", "x; python_version<'3.9'"), "kfp==2.0.1", (), ()),
        (SDK_FIRST, ("yapf", "kfp-kubernetes==1.0"), "kfp==2.7.0", ("https://a/simple", "https://b/simple"), ("a",)),
        (SDK_LAST, ("pandas>=2",), "kfp==2.17.0", (), ()),
    ],
)
def test_packages_are_read_from_the_pip_commands_of_every_version(
    install: str, packages: tuple[str, ...], kfp: str, urls: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    found = lightweight(executor(install=install))
    assert found.packages == packages
    assert (found.kfp, found.index_urls, found.trusted_hosts) == (kfp, urls, hosts)


def test_the_executor_of_early_sdk_versions_is_recognised() -> None:
    container = python_container()
    container["command"][2] = RUN_COMPONENT.replace("_KFP_RUNTIME=true ", "").replace("kfp.dsl", "kfp.components")
    assert lightweight({"container": container}).function == "step"


def test_a_real_component_keeps_quoted_requirements_whole(training: Any) -> None:
    found = lightweight(training.ir["deploymentSpec"]["executors"]["exec-get"])
    assert found.packages == ("pandas>=2", "x; python_version<'3.9'")
    assert found.kfp.startswith("kfp==2.")
    assert lightweight(training.ir["deploymentSpec"]["executors"]["exec-train"]).kfp == ""


def test_an_executor_without_a_python_component_is_a_container() -> None:
    entry = {"image": "alpine", "command": ["echo"], "args": ["a"], "env": [{"name": "A", "value": "1"}]}
    assert read_executor({"container": entry}) == Container("alpine", ("echo",), ("a",), {"A": "1"})
    own_image = {"image": "mine", "command": ["python3", "-m", "kfp.dsl.executor_main"], "args": []}
    assert read_executor({"container": own_image}, {"imagePullPolicy": "Always"}) == Container(
        "mine", ("python3", "-m", "kfp.dsl.executor_main"), pull="Always"
    )


def test_a_container_has_the_user_and_shared_memory_of_its_platform_document() -> None:
    settings = {"securityContext": {"runAsUser": "7", "runAsGroup": "0", "runAsNonRoot": True}}
    entry = {"container": {"image": "alpine"}}
    assert read_executor(entry, settings) == Container("alpine", user=7, group=0, non_root=True)
    assert read_executor(entry, {"enabledSharedMemory": {"size": "1Gi"}}) == Container("alpine", shared_memory=2**30)
    assert read_executor(entry, {"enabledSharedMemory": {"volumeName": "shm"}}) == Container("alpine", shared_memory=0)
    with pytest.raises(Unsupported, match="securityContext or enabledSharedMemory cannot be read"):
        read_executor(entry, {"securityContext": {"runAsUser": "me"}})


def test_the_error_for_another_executor_names_its_kind() -> None:
    kfp1 = python_container()
    kfp1["command"][2] = RUN_COMPONENT.replace("kfp.dsl", "kfp.v2.components")
    wrong: dict[str, Any] = {
        "compiled by kfp 1": {"container": kfp1},
        "source or function is missing": {"container": {"command": ["sh", "-ec", RUN_COMPONENT]}},
        "the kind resolver": {"resolver": {}},
    }
    for words, given in wrong.items():
        with pytest.raises(Unsupported, match=words):
            read_executor(given)
