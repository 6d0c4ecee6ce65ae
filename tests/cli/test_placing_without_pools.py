"""place refuses the built-in pools, which are for local runs, and offers a pools section that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import plain_yaml
from tests.e2e.project import Project

import spotwright as spot
from spotwright.errors import ConfigError

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers: [{name: main, image: "python:3.11"}]
"""
PIPELINE = """\
from kfp import dsl


@dsl.component
def train() -> str:
    return "done"


@dsl.pipeline
def p():
    train()
"""
SELECTORS = {
    "aks": {"kubernetes.azure.com/mode": "user"},
    "gke": {"cloud.google.com/machine-family": "n2"},
    "eks": {"eks.amazonaws.com/sourceLaunchTemplateVersion": "1"},
    "karpenter": {"karpenter.sh/registered": "true"},
    "generic": {},
}


@pytest.fixture
def bare(project: Project) -> Project:
    """A project without a configuration."""
    (project.folder / "spotwright.yaml").unlink()
    return project


def a_pod(provider: str) -> str:
    value = plain_yaml.load(POD)
    value["metadata"]["annotations"] = dict.fromkeys(SELECTORS[provider], "x")
    return plain_yaml.dump(value)


def offered(message: str) -> str:
    """The lines that the message offers."""
    return message.split("\n\n", 1)[1]


def test_without_a_configuration_place_exits_with_2_and_writes_nothing(bare: Project) -> None:
    (bare.folder / "pod.yaml").write_text(POD)
    done = bare.here("place", "pod.yaml", "--in-place")

    assert done.code == 2
    assert "no spotwright.yaml: placing needs the node pools of your cluster" in done.err
    assert (bare.folder / "pod.yaml").read_text() == POD


@pytest.mark.parametrize("provider", SELECTORS)
def test_the_offered_lines_fit_the_provider_and_place_the_same_file(bare: Project, provider: str) -> None:
    (bare.folder / "pod.yaml").write_text(a_pod(provider))
    lines = offered(bare.here("place", "pod.yaml").err)
    (bare.folder / "spotwright.yaml").write_text(lines)
    placed = bare.here("place", "pod.yaml")

    assert f"provider: {provider}" in lines
    assert placed.code == 0, placed.err
    assert "nodeAffinity" in placed.out


def test_a_configuration_without_pools_is_refused_with_lines_to_add(bare: Project) -> None:
    (bare.folder / "pod.yaml").write_text(POD)
    (bare.folder / "spotwright.yaml").write_text("version: 1\npolicy: {default: {spot: require}}\n")
    done = bare.here("place", "pod.yaml")

    assert done.code == 2
    assert "spotwright.yaml does not define pools: placing needs the node pools of your cluster" in done.err
    assert offered(done.err).startswith("pools:\n")


def test_spot_place_raises_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="the built-in pools are for local runs"):
        spot.place(plain_yaml.load(POD))
    with pytest.raises(ConfigError, match="does not define pools"):
        spot.place(plain_yaml.load(POD), {"policy": {"default": {"spot": "require"}}})


def test_compile_without_a_configuration_exits_with_2_and_writes_nothing(bare: Project) -> None:
    (bare.folder / "p.py").write_text(PIPELINE)
    done = bare.here("compile", "p.py", "-o", "p.yaml")

    assert done.code == 2
    assert "no spotwright.yaml: placing needs the node pools of your cluster" in done.err
    assert not (bare.folder / "p.yaml").exists()
