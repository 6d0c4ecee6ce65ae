"""The priority of a pod as admitted, and that place, lint and the check of pools say the same of one below the cut-off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spotwright.clouds.providers import below_cut_off
from spotwright.kube.admission import priority
from spotwright.model.pools import Capacity, Pool


def named(name: str, value: Any, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }


LOW, DEFAULT = named("low", -20), named("usual", -11, globalDefault=True)


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ({"priorityClassName": "low"}, [LOW], -20),
        ({"priorityClassName": "low", "priority": 5}, [LOW], -20),
        ({"priority": -30}, [LOW], -30),
        ({}, [LOW], 0),
        ({}, [LOW, DEFAULT], -11),
        ({"priorityClassName": "system-node-critical"}, [], 2_000_001_000),
        ({"priorityClassName": "unknown"}, [LOW], None),
        ({"priorityClassName": "low"}, [named("low", "-20")], None),
    ],
)
def test_a_pod_has_the_value_of_its_class_or_of_the_default(
    spec: dict[str, Any], classes: list[dict[str, Any]], expected: int | None
) -> None:
    found = priority(spec, lambda kind: classes if kind == "PriorityClass" else ())
    assert (None if found is None else found.value) == expected


@pytest.mark.parametrize(
    ("value", "pool", "is_said"),
    [
        (-11, Pool("a", Capacity.SPOT, "gke"), True),
        (-10, Pool("a", Capacity.SPOT, "gke"), False),
        (-11, Pool("a", Capacity.SPOT, "karpenter"), False),
        (-11, Pool("a", Capacity.SPOT, "aks", min_nodes=3, max_nodes=3), False),
    ],
    ids=["below", "at the cut-off", "Karpenter", "a pool that does not grow"],
)
def test_only_pools_that_the_cluster_autoscaler_grows_have_a_cut_off(value: int, pool: Pool, is_said: bool) -> None:
    assert bool(below_cut_off(value, "PriorityClass low", [pool], {})) == is_said


CONFIG = """\
version: 1
pools:
  spot: {capacity: spot, provider: gke, machine: n2-standard-8}
  usual: {capacity: on-demand, provider: gke, machine: n2-standard-8}
policy: {default: {spot: prefer}}
"""
KINDS = ["Job", "JobSet", "Workflow", "Workflow of one class"]


def work(kind: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "priorityClassName": "low", "containers": [{"name": "a", "image": "i"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"}, "spec": {"template": {"spec": pod}}}
    if kind == "JobSet":
        jobs = [{"name": "a", "template": {"spec": job["spec"]}}]
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": kind,
            "metadata": {"name": "w"},
            "spec": {"replicatedJobs": jobs},
        }
    if kind.startswith("Workflow"):
        named_by, template = {"priorityClassName": "low"}, {"name": "a", "container": {"image": "i"}}
        spec: dict[str, Any] = {"entrypoint": "a", "templates": [{**template, **named_by}]}
        if kind != "Workflow":
            spec = {"entrypoint": "a", "templates": [template], "podPriorityClassName": "low"}
        return {**job, "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": spec}
    return job


@pytest.mark.parametrize("value", [-11, -10])
@pytest.mark.parametrize("kind", KINDS)
def test_place_lint_and_the_check_of_pools_say_the_same_for_every_kind(
    kind: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spotwright.cli import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    text = "\n---\n".join(json.dumps(one) for one in (named("low", value), work(kind)))
    (tmp_path / "all.yaml").write_text(text)
    (tmp_path / "nodes.json").write_text('{"kind": "List", "items": []}')
    is_low = value < -10
    for words in (["lint", "all.yaml"], ["place", "all.yaml"], ["pools", "check", "nodes.json", "all.yaml"]):
        result = CliRunner().invoke(cli, words)
        assert ("PriorityClass low has the value -11: below -10" in result.output) == is_low, (words, result.output)
