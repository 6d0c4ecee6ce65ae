"""Preemptible nodes of Oracle's OKE: one record, by which every command knows them. Nothing of this was tried on a real OKE."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml

from spotwright.cli import cli
from spotwright.clouds import providers
from spotwright.model.pools import Capacity, Pool
from spotwright.notices.agent import PROVIDERS as NOTICES

KEY = "oci.oraclecloud.com/oke-is-preemptible"
POOLS = """\
version: 1
pools:
  cheap: {capacity: spot, provider: oke, machine: VM.Standard.E5.Flex, node: {cpu: 8, memory: 32Gi}}
  regular: {capacity: on-demand, provider: oke, machine: VM.Standard.E5.Flex, node: {cpu: 8, memory: 32Gi}}
policy: {default: {spot: SPOT, timeout: 1h}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {SELECTOR}
      containers: [{name: main, image: registry.example/train:1}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spotwright.yaml").write_text(POOLS.replace("SPOT", "require"))
    (tmp_path / "job.yaml").write_text(JOB.replace("{SELECTOR}", "{}"))
    return tmp_path


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, list(arguments), input=stdin, standalone_mode=False)


def placed(folder: Path, spot: str) -> dict[str, object]:
    (folder / "spotwright.yaml").write_text(POOLS.replace("SPOT", spot))
    result = run("place", "-", stdin=(folder / "job.yaml").read_text())
    assert result.exception is None, result.exception
    spec: dict[str, object] = plain_yaml.load(result.stdout)["spec"]["template"]["spec"]
    return spec


def required(spec: dict[str, object]) -> list[dict[str, object]]:
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]  # type: ignore[index]
    conditions: list[dict[str, object]] = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    return conditions


def test_work_on_spot_tolerates_the_taint_and_asks_for_the_label(folder: Path) -> None:
    spec = placed(folder, "require")
    assert spec["tolerations"] == [{"key": KEY, "operator": "Equal", "value": "present", "effect": "NoSchedule"}]
    assert required(spec) == [{"key": KEY, "operator": "In", "values": ["true"]}]


def test_work_off_spot_keeps_off_the_label(folder: Path) -> None:
    spec = placed(folder, "never")
    assert "tolerations" not in spec
    assert required(spec) == [{"key": KEY, "operator": "NotIn", "values": ["true"]}]


def test_work_that_selects_the_label_fits_preemptible_nodes_alone(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(POOLS.replace("SPOT", "prefer"))
    (folder / "job.yaml").write_text(JOB.replace("{SELECTOR}", f"{{{KEY}: 'true'}}"))
    result = run("explain", "job.yaml")
    assert "pools, in order: cheap (spot)\n" in result.stdout


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (f"{{{KEY}: 'yes'}}", f"no node has {KEY}=yes"),
        ("{oke-is-preemptible: 'true'}", KEY),
        ("{oci.oraclecloud.com/oke_is_preemptible: 'true'}", KEY),
    ],
)
def test_lint_names_a_label_that_no_node_has(folder: Path, selector: str, said: str) -> None:
    (folder / "job.yaml").write_text(JOB.replace("{SELECTOR}", selector))
    result = run("lint", "job.yaml")
    assert "error: " in result.stdout
    assert said in result.stdout


def test_a_label_of_the_fault_domain_may_have_any_value(folder: Path) -> None:
    selector = "{oci.oraclecloud.com/fault-domain: FAULT-DOMAIN-1}"
    (folder / "job.yaml").write_text(JOB.replace("{SELECTOR}", selector))
    result = run("explain", "job.yaml")
    assert "pools, in order: cheap (spot)" in result.stdout
    assert "OKE sets oci.oraclecloud.com/fault-domain" in result.stdout


def test_without_pools_the_first_lines_are_those_of_oke(folder: Path) -> None:
    (folder / "spotwright.yaml").unlink()
    (folder / "job.yaml").write_text(JOB.replace("{SELECTOR}", f"{{{KEY}: 'true'}}"))
    assert "preemptible: {capacity: spot, provider: oke" in str(run("place", "job.yaml").exception)


def test_no_tool_makes_its_pools(folder: Path) -> None:
    error = run("pools", "command", "cheap").exception
    assert str(error) == "pool cheap: Spotwright writes no commands that make pools of oke"


def test_it_has_two_minutes_and_no_service_that_is_read_on_its_nodes() -> None:
    pool = Pool("cheap", Capacity.SPOT, "oke")
    assert providers.of(pool).notice_of_pods == 120
    assert not providers.of(pool).metadata_service
    assert "oke" not in NOTICES
