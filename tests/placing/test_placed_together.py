"""What is placed together fits together: a runtime and its TrainJobs, flavors of Kueue and the work that gets them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, assert_unplaces, at_path

from spotwright import config
from spotwright.clouds import node_labels, providers
from spotwright.config import Config
from spotwright.kube.pod import scheduling_of
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.model.pools import Pool
from spotwright.placing.merging import strategic

TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
PROVIDERS = ["aks", "gke", "eks", "oke", "karpenter"]
OF_RUNTIME = ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
OF_JOB = "spec.runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs.0.template.spec.template.spec"


def a_config(provider: str, policy: str = "{default: {spot: prefer}}", labels: str = "{}") -> Config:
    gpu = f"provider: {provider}, node: {{cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}, labels: {labels}"
    return config.parse(f"""\
version: 1
pools:
  cpu-spot: {{capacity: spot, provider: {provider}, node: {{cpu: 8, memory: 32Gi}}}}
  cpu: {{capacity: on-demand, provider: {provider}, node: {{cpu: 8, memory: 32Gi}}}}
  l4-spot: {{capacity: spot, {gpu}}}
  l4: {{capacity: on-demand, {gpu}}}
policy: {policy}
""")


RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: torch}]}}}
"""


def a_train_job(spot: str = "", limits: str = "{nvidia.com/gpu: 1}") -> str:
    labels = f", labels: {{spotwright.dev/spot: {spot}}}" if spot else ""
    return (
        f"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: llm{labels}}}\n"
        f"spec: {{runtimeRef: {{name: torch}}, trainer: {{numNodes: 2, resourcesPerNode: {{limits: {limits}}}}}}}\n"
    )


def placed(text: str, settings: Config) -> PlacedFile:
    done = place_text(text, FILE, settings)
    assert place_text(done.text, FILE, settings).text == done.text
    assert_unplaces(text, done.text)
    return done


def admitted(pod: dict[str, Any], settings: Config) -> set[str]:
    """The pools whose nodes admit a pod."""
    constraints = scheduling_of(pod)
    pools = settings.pools.values()
    return {pool.name for pool in pools if not node_labels.refusal(pool, constraints, providers.taints(pool))}


def merged(done: PlacedFile) -> dict[str, Any]:
    """The pod of a TrainJob beside its runtime, as the Trainer makes it."""
    runtime, job = plain_yaml.load_all(done.text)
    value: Any = runtime
    for step in OF_RUNTIME:
        value = value[step]
    pod: dict[str, Any] = strategic(value, at_path(job, OF_JOB) or {})
    return pod


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_train_job_with_gpus_fits_the_pools_of_its_explanation_beside_its_runtime(provider: str) -> None:
    settings = a_config(provider)
    done = placed(f"{RUNTIME}---\n{a_train_job()}", settings)
    [role] = [role for role in done.roles if role.policy_path == "llm/node"]

    assert set(role.pools) == {"l4-spot", "l4"}
    assert set(role.pools) <= admitted(merged(done), settings)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_train_job_that_is_not_placed_may_ask_its_placed_runtime_for_gpus(provider: str) -> None:
    settings = a_config(provider, "{default: {spot: require, timeout: 1h}}")
    done = placed(RUNTIME, settings)
    pod: Any = plain_yaml.load(done.text)
    for step in OF_RUNTIME:
        pod = pod[step]

    pod.setdefault("tolerations", []).append({"key": "nvidia.com/gpu", "operator": "Exists"})  # as the cluster adds it
    assert admitted(pod, settings) == {"cpu-spot", "l4-spot"}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("spot", ["prefer", "never"])
def test_a_train_job_of_another_policy_than_its_runtime_reaches_its_own_pools(provider: str, spot: str) -> None:
    settings = a_config(provider, "{default: {spot: require, timeout: 1h}}")
    done = placed(f"{RUNTIME}---\n{a_train_job(spot)}", settings)
    [role] = [role for role in done.roles if role.policy_path == "llm/node"]

    assert set(role.pools) <= admitted(merged(done), settings)


@pytest.mark.parametrize("provider", ["aks", "gke", "eks"])
def test_a_train_job_without_gpus_is_kept_off_gpu_pools_beside_its_runtime(provider: str) -> None:
    settings = a_config(provider)
    done = placed(f"{RUNTIME}---\n{a_train_job(limits='{cpu: 4}')}", settings)

    assert admitted(merged(done), settings) == {"cpu-spot", "cpu"}


def test_a_label_that_every_node_has_excludes_no_pool() -> None:
    settings = a_config("generic", labels="{kubernetes.io/os: linux}")
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {template: {spec: {containers: "
        "[{name: main, image: python, resources: {limits: {cpu: 1}}}]}}}\n"
    )
    settings = replace(settings, pools={name: with_market(pool) for name, pool in settings.pools.items()})
    done = placed(text, settings)
    pod = at_path(plain_yaml.load(done.text), "spec.template.spec")

    assert set(done.roles[0].pools) <= admitted(pod, settings)


def with_market(pool: Pool) -> Pool:
    return replace(pool, labels={**pool.labels, "market": "spot" if pool.is_spot else "regular"})


WORKFLOWS = """\
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: shared}
spec: {entrypoint: train, templates: [{name: train, container: {image: python}}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: run}
spec: {workflowTemplateRef: {name: shared}}
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name: run", "name: run, labels: {spotwright.dev/spot: never}"), "train, by spot: prefer (spotwright.yaml:"),
        (
            ("name: shared}}", "name: shared}, nodeSelector: {disk: ssd}}"),
            "train override nodeSelector of the workflow",
        ),
    ],
)
def test_a_workflow_is_told_what_its_placed_template_overrides(change: tuple[str, str], says: str) -> None:
    settings = a_config("eks", labels="{disk: ssd}")
    done = placed(WORKFLOWS.replace(*change), settings)

    assert [role.policy_path for role in done.roles] == ["shared/train"]
    assert any(says in one.text for one in done.findings)
    assert not any("override" in one.text for one in placed(WORKFLOWS, settings).findings)
