"""What ``pools command`` prints for a table of pools: golden texts, and that a shell reads each word of them as it was meant."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pools.pool_tables import HERE, TABLES, request_for

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.pools.catalogue import script

YAML_TOOLS = ("eksctl", "karpenter")
CASES = [
    (tool, pool) for tool, table in TABLES.items() for pool in configuration.load(HERE / f"pools_{table}.yaml").pools
]


def one_pool(**settings: object) -> Config:
    pool = {"capacity": "spot", "provider": "aks", "machine": "Standard_D4s_v3", **settings}
    pool = {name: value for name, value in pool.items() if value is not None}
    return configuration.from_mapping({"version": 1, "pools": {"spot": pool}})


def script_of(**settings: object) -> str:
    return "\n".join(script(request_for(one_pool(**settings), "spot")))


def arguments(text: str, folder: Path, tool: str) -> list[list[str]]:
    """The arguments of each call of the tool when a real shell runs the text, with a tool that only writes them down."""
    calls = folder / "calls"
    for name in (tool, "kubectl", "spotwright"):
        (folder / name).write_text(f'#!/bin/sh\nprintf \'%s\\0\' "$@" >> "{calls}"\nprintf \'\\n\' >> "{calls}"\n')
        (folder / name).chmod(0o755)
    names = ("RESOURCE_GROUP", "CLUSTER", "LOCATION", "LOCATIONS", "REGION", "AWS_REGION", "NODE_ROLE", "NODE")
    variables = {**dict.fromkeys((*names, "MACHINE_DEPLOYMENT"), "the value"), "SUBNETS": "subnet-1 subnet-2"}
    env = {**variables, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu"], input=text, env=env, text=True, check=True, capture_output=True)
    return [line.split("\0")[:-1] for line in calls.read_text().split("\0\n") if line for line in [f"{line}\0"]]


@pytest.mark.parametrize(("tool", "pool"), CASES)
def test_the_text_for_a_pool_is_the_golden_one(tool: str, pool: str) -> None:
    config = configuration.load(HERE / f"pools_{TABLES[tool]}.yaml")
    request = request_for(config, pool)
    text = "\n".join([*script(request, tool), *(f"# warning: {one}" for one in request.warnings)]) + "\n"
    golden = HERE / "golden" / tool / f"{pool}.{'yaml' if tool in YAML_TOOLS else 'sh'}"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(("tool", "pool"), [case for case in CASES if case[0] not in YAML_TOOLS])
def test_a_shell_runs_the_whole_text(tool: str, pool: str, tmp_path: Path) -> None:
    config = configuration.load(HERE / f"pools_{TABLES[tool]}.yaml")
    calls = arguments("\n".join(script(request_for(config, pool), tool)), tmp_path, tool)
    assert all(word for call in calls for word in call[:2])
    assert len(calls) >= 3


def test_a_shell_hands_the_tool_each_word_as_it_was_meant(tmp_path: Path) -> None:
    config = configuration.load(HERE / "pools_aks.yaml")
    calls = arguments("\n".join(script(request_for(config, "cheap-spot"))), tmp_path, "az")
    [made] = [call for call in calls if call[:3] == ["aks", "nodepool", "add"]]
    words = dict(zip(made, [*made[1:], ""], strict=True))
    assert words["--vnet-subnet-id"] == str(config.pools["cheap-spot"].create_flags["vnet-subnet-id"])
    assert made[made.index("--tags") + 1 : made.index("--tags") + 3] == ["team=research", "note=it's ours"]
    assert words["--spot-max-price"] == "0.04125"
    assert words["--node-count"] == words["--min-count"] == "1"
    assert words["--cluster-name"] == "the value"


def test_a_variable_that_is_not_set_ends_the_shell_with_its_meaning() -> None:
    text = "\n".join(line for line in script_of(region="eastus").splitlines() if not line.startswith("az vm"))
    done = subprocess.run(
        ["sh"],
        check=False,
        input=text[text.index("az aks nodepool add") :],
        env={"PATH": os.environ["PATH"], "LOCATION": "x"},
        text=True,
        capture_output=True,
    )
    assert done.returncode != 0
    assert "the resource group of the cluster" in done.stderr


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc"]), min_size=1, max_size=20)
)
def test_no_text_of_the_configuration_leaves_its_quotes(text: str) -> None:
    config = one_pool(create_flags={"tags": [text, "b"]})
    lines = script(request_for(config, "spot"))
    start = next(index for index, line in enumerate(lines) if line.startswith("az aks nodepool add"))
    words = shlex.split("\n".join(lines[start : lines.index("", start)]))
    assert words[words.index("--tags") + 1] == text


def test_on_aks_no_maximum_price_is_capacity_only_and_a_price_is_price_or_capacity() -> None:
    assert "--spot-max-price -1 \\" in script_of()
    assert "'capacity only'" in script_of()
    assert "--spot-max-price 1.2 \\" in script_of(max_price="1.20/h")
    assert "'price or capacity'" in script_of(max_price="1.20/h")


def test_zones_as_the_labels_of_nodes_have_them_are_those_of_az() -> None:
    assert "  --zones 1 2 \\" in script_of(zones=["eastus-1", "2"]).splitlines()


@pytest.mark.parametrize(
    ("machine", "node", "image"),
    [
        ("m7g.large", None, "AL2023_ARM_64_STANDARD"),
        ("g5g.xlarge", {"nvidia.com/gpu": 1}, "AL2023_ARM_64_NVIDIA"),
        ("g5.xlarge", {"nvidia.com/gpu": 1}, "AL2023_x86_64_NVIDIA"),
        ("m7i.large", None, ""),
    ],
)
def test_the_image_of_a_group_of_aws_fits_its_machine(machine: str, node: object, image: str) -> None:
    request = request_for(one_pool(provider="eks", machine=machine, node=node), "spot")
    lines = [line.strip() for line in script(request, "aws")]
    assert [line for line in lines if "--ami-type" in line] == ([f"--ami-type {image} \\"] if image else [])


def test_deallocate_is_warned_about() -> None:
    request = request_for(one_pool(create_flags={"eviction-policy": "Deallocate"}), "spot")
    assert "  --eviction-policy Deallocate \\" in script(request)
    assert any("stopped nodes" in one for one in request.warnings)


def test_a_flag_that_is_false_is_left_out() -> None:
    assert "--mode" not in [line.split()[0] for line in script_of(create_flags={"mode": False}).splitlines() if line]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"machine": None}, "az needs the machine"),
        ({"max_nodes": 0}, "AKS asks for at least 1"),
        ({"max_price": "0.123456/h"}, "more than 5 decimals"),
        ({"create_flags": {"node-vm-size": "x"}}, "create_flags: node-vm-size: machine says it"),
        ({"create_flags": {"tags": {"a": "b"}}}, "found nested settings"),
        ({"labels": {"kubernetes.azure.com/agentpool": "farTooLong"}}, "at most 12 small letters and digits"),
    ],
)
def test_a_pool_that_aks_cannot_have_is_refused_with_the_fix(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        script_of(**settings)


def test_a_maximum_price_in_another_currency_is_refused() -> None:
    pool = {"capacity": "spot", "provider": "aks", "machine": "m", "max_price": "1/h"}
    config = configuration.from_mapping({"version": 1, "currency": "EUR", "pools": {"spot": pool}})
    with pytest.raises(InputError, match="in USD"):
        script(request_for(config, "spot"))


def test_a_name_that_the_provider_does_not_allow_is_said_with_the_label_to_add() -> None:
    config = configuration.load(HERE / "pools_aks.yaml")
    request = request_for(config, "cheap-spot")
    assert "  --name cheapspot \\" in script(request)
    assert "labels: {kubernetes.azure.com/agentpool: cheapspot}" in request.warnings[0]
