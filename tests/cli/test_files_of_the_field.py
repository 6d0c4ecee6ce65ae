"""Situations that people met in public, each written anew as a small file, through the commands that they would type.

The first line of each text names where it was met. What is asserted is what the person needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml

from spotwright.cli import cli

GKE = """\
version: 1
pools:
  regular: {capacity: on-demand, provider: gke, node: {cpu: 4, memory: 16Gi}}
  spot: {capacity: spot, provider: gke, node: {cpu: 8, memory: 32Gi}}
  gpu-spot: {capacity: spot, provider: gke, node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1},
    taints: ["cloud.google.com/gke-spot=true:NoSchedule"]}
policy: {default: {spot: prefer, interruptions: {max: 5}, grace_period: 10s}}
"""
PREEMPTIBLE = 'labels: {cloud.google.com/gke-preemptible: "true"}'
AKS = """\
version: 1
pools:
  regular: {capacity: on-demand, provider: aks, node: {cpu: 4, memory: 16Gi}}
  spot: {capacity: spot, provider: aks, node: {cpu: 8, memory: 32Gi}}
  gpuspot: {capacity: spot, provider: aks, node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}, taints: ["sku=gpu:NoSchedule"]}
policy: {default: {spot: prefer, interruptions: {max: 5}}}
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def with_files(text: str, configuration: str = "", name: str = "work.yaml") -> None:
    Path(name).write_text(text)
    if configuration:
        Path("spotwright.yaml").write_text(configuration)


def placed(text: str, configuration: str, *options: str) -> list[Any]:
    """The placed documents; what was placed is taken out again, to the same bytes."""
    with_files(text, configuration)
    done = run("place", "work.yaml", "-o", "out.yaml", *options)
    assert (done.exception, done.return_value) == (None, 0), done.exception
    assert run("unplace", "out.yaml").stdout == text
    return list(plain_yaml.load_all(Path("out.yaml").read_text()))


def required(job: Any) -> list[dict[str, Any]]:
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    conditions: list[dict[str, Any]] = term["matchExpressions"]
    return conditions


def found(text: str, configuration: str = "", name: str = "work.yaml") -> dict[str, str]:
    """The findings of lint: their texts by rule."""
    with_files(text, configuration, name)
    done = run("lint", name, "--format", "json")
    assert done.exception is None
    return {one["rule"]: one["text"] for one in json.loads(done.stdout)["findings"]}


def a_job(spec: str = "", container: str = "") -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  backoffLimit: 4\n  template:\n    spec:\n"
        f"      restartPolicy: Never\n{spec}      containers:\n      - {{name: main, image: app:1{container}}}\n"
    )


def test_a_preemptible_pool_is_reached_by_its_own_label() -> None:
    """kubeflow/pipelines, sample preemptible_tpu_gpu; DataBiosphere/toil#3946."""
    pools = f"""\
version: 1
pools:
  regular: {{capacity: on-demand, provider: gke, node: {{cpu: 4}}}}
  old: {{capacity: spot, provider: gke, node: {{cpu: 8}}, {PREEMPTIBLE}}}
policy: {{default: {{spot: require, timeout: 1h}}}}
"""
    [job] = placed(a_job(), pools)
    assert required(job) == [{"key": "cloud.google.com/gke-preemptible", "operator": "In", "values": ["true"]}]


def test_a_workflow_of_kfp_1_for_preemptible_nodes_is_told_of_gke_alone() -> None:
    """A Workflow as the SDK 1.8 compiled use_preemptible_nodepool."""
    text = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: flip-, labels: {pipelines.kubeflow.org/kfp_sdk_version: 1.8.22}}
spec:
  entrypoint: flip
  templates:
  - name: flip
    nodeSelector: {cloud.google.com/gke-preemptible: "true"}
    tolerations: [{key: preemptible, operator: Equal, value: "true", effect: NoSchedule}]
    container: {image: "app:1", command: [flip]}
"""
    pools = f"""\
version: 1
pools:
  old: {{capacity: spot, provider: gke, node: {{cpu: 8}}, {PREEMPTIBLE}, taints: ["preemptible=true:NoSchedule"]}}
  regular: {{capacity: on-demand, provider: gke, node: {{cpu: 8}}}}
policy: {{default: {{spot: prefer}}}}
"""
    [workflow] = placed(text, pools)
    assert "gke-spot" not in str(workflow["spec"]["templates"][0]["affinity"])
    with_files(text, pools)
    assert "azure" not in run("lint", "work.yaml").stdout


def test_nothing_is_required_beside_a_selector_in_a_patch_that_a_parameter_decides() -> None:
    """argoproj/argo-workflows#2091, #6180."""
    text = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: pools-}
spec:
  entrypoint: step
  templates:
  - name: step
    inputs: {parameters: [{name: pool, value: spot}]}
    podSpecPatch: '{"nodeSelector": {"cloud.google.com/gke-nodepool": "{{inputs.parameters.pool}}"}}'
    container: {image: "app:1", command: [train]}
"""
    [workflow] = placed(text, GKE)
    step = workflow["spec"]["templates"][0]
    assert list(step["affinity"]["nodeAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert "affinity" not in step["podSpecPatch"]
    assert "no condition is required beside it" in run("place", "work.yaml").stderr


def test_parameters_of_a_compiled_pipeline_are_values_of_a_run(tmp_path: Path) -> None:
    """kubeflow/pipelines, add_toleration_json with an optional input."""
    compiled = """\
components:
  comp-step: {executorLabel: exec-step, inputDefinitions: {parameters: {tolerate: {parameterType: STRUCT}}}}
deploymentSpec: {executors: {exec-step: {container: {image: "python:3.12", command: [step]}}}}
pipelineInfo: {name: parameters}
root:
  dag:
    tasks:
      step:
        componentRef: {name: comp-step}
        inputs: {parameters: {tolerate: {componentInputParameter: tolerate}}}
        taskInfo: {name: step}
  inputDefinitions: {parameters: {tolerate: {parameterType: STRUCT}}}
schemaVersion: 2.1.0
sdkVersion: kfp-2.17.0
---
platforms:
  kubernetes:
    deploymentSpec:
      executors:
        exec-step:
          nodeSelector: {nodeSelectorJson: {componentInputParameter: select}}
          tolerations: [{tolerationJson: {componentInputParameter: tolerate}}]
"""
    assert found(compiled, GKE) == {}


def test_work_that_one_pool_admits_is_not_told_of_the_taint_of_another() -> None:
    """everycure-org/matrix#1771."""
    text = a_job('      nodeSelector: {cloud.google.com/gke-spot: "true"}\n').replace(
        "metadata: {name: train}", "metadata: {name: train, labels: {spotwright.dev/spot: require}}"
    )
    assert "affinity-without-toleration" not in found(text, GKE)
    assert "spot" in run("explain", "work.yaml").stdout


@pytest.mark.parametrize(
    ("provider", "machine", "selector"),
    [
        ("gke", "g2-standard-8", "cloud.google.com/gke-accelerator: nvidia-l4"),
        ("aks", "Standard_NC6s_v3", "agentpool: gpu, kubernetes.azure.com/mode: user, accelerator: nvidia"),
        ("eks", "g5.2xlarge", "topology.kubernetes.io/region: us-east-1, kubernetes.io/arch: amd64"),
        ("karpenter", "g5.2xlarge", "karpenter.k8s.aws/instance-family: g5"),
        ("aks", "", "kubernetes.io/hostname: aks-spot-1234"),
    ],
)
def test_labels_that_nobody_writes_are_no_reason_to_refuse(provider: str, machine: str, selector: str) -> None:
    """MicrosoftDocs/azure-docs#78665, aws/karpenter-provider-aws#1200, #4362, #5406."""
    pool = f"provider: {provider}, node: {{cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}}"
    pool += f", machine: {machine}" if machine else ""
    pools = f"version: 1\npools:\n  gpu: {{capacity: spot, {pool}}}\n  other: {{capacity: on-demand, {pool}}}\n"
    pools += "policy: {default: {spot: prefer}}\n"
    [job] = placed(a_job(f"      nodeSelector: {{{selector}}}\n", ", resources: {limits: {nvidia.com/gpu: 1}}"), pools)
    assert "spotwright.dev/placed" in job["metadata"]["annotations"]


WHOLE = "containers: [{name: pytorch, image: 'app:1'}]"
ENV = "containers: [{{name: pytorch, image: 'app:1', env: {}}}]"


@pytest.mark.parametrize(
    ("master", "worker"),
    [
        (f"&pod {{spec: {{{WHOLE}}}}}", "*pod"),
        (f"{{spec: {{{ENV.format('&env [{name: A, value: b}]')}}}}}", f"{{spec: {{{ENV.format('*env')}}}}}"),
    ],
)
def test_roles_that_share_an_anchor_are_placed_by_their_own_policies(master: str, worker: str) -> None:
    """elastic/cloud-on-k8s#4318."""
    text = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: ddp}\nspec:\n  pytorchReplicaSpecs:\n"
        f"    Master: {{replicas: 1, restartPolicy: OnFailure, template: {master}}}\n"
        f"    Worker: {{replicas: 3, restartPolicy: OnFailure, template: {worker}}}\n"
    )
    [job] = placed(text, AKS)
    for name, role in job["spec"]["pytorchReplicaSpecs"].items():
        env = role["template"]["spec"]["containers"][0]["env"]
        assert [one["value"] for one in env if one["name"] == "SPOTWRIGHT_TASK"] == [f"ddp/{name.lower()}"]


def test_a_template_that_is_merged_from_another_is_placed() -> None:
    """An Argo template with a merge key, as guides on YAML write it."""
    text = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: merged-}
spec:
  entrypoint: small
  templates:
  - &small
    name: small
    container: &code {image: "app:1", command: [train], resources: {requests: {cpu: 1}}}
  - <<: *small
    name: large
    container:
      <<: *code
      resources: {limits: {nvidia.com/gpu: 1}}
"""
    [workflow] = placed(text, AKS)
    small, large = workflow["spec"]["templates"]
    assert [one["key"] for one in small["tolerations"]] == ["kubernetes.azure.com/scalesetpriority"]
    assert {one["key"] for one in large["tolerations"]} == {"kubernetes.azure.com/scalesetpriority", "sku"}


@pytest.mark.parametrize(
    ("selector", "rule"),
    [
        ("kubernetes.azure.com/scalesetpriority: Spot", "label-no-node-has"),
        ("eks.amazonaws.com/capacityType: spot", "label-no-node-has"),
        ("eks.amazonaws.com/capacity-type: SPOT", "label-no-node-has"),
        ("karpenter.sh/capacity-type: SPOT", "label-no-node-has"),
        ("karpenter.sh/capacityType: spot", "label-no-node-has"),
        ('cloud.google.com/gke-spot: "yes"', "label-no-node-has"),
        ("karpenter.sh/provisioner-name: gpu", "label-no-node-has"),
        ('cloud.google.com/gke-spot: "true", eks.amazonaws.com/capacityType: SPOT', "labels-of-several-clouds"),
    ],
)
def test_a_selector_that_nothing_can_meet_is_found_without_a_configuration(selector: str, rule: str) -> None:
    """aws/karpenter-provider-aws#4362, and pods that ask for three clouds at once."""
    assert rule in found(a_job(f"      nodeSelector: {{{selector}}}\n"))


@pytest.mark.parametrize(("key", "effect"), [("scaleSetPriority", "NoSchedule"), ("scalesetpriority", "NoExecute")])
def test_a_toleration_that_misses_the_taint_is_found(key: str, effect: str) -> None:
    toleration = f"{{key: kubernetes.azure.com/{key}, operator: Equal, value: spot, effect: {effect}}}"
    text = a_job(f"      tolerations: [{toleration}]\n")
    assert "toleration-matches-no-taint" in found(text)


def test_what_place_refuses_is_a_finding_of_lint() -> None:
    """kubeflow/spark-operator#1006: tolerations in the spec of an application."""
    text = """\
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: pi}
spec:
  type: Python
  mode: cluster
  image: spark:3
  mainApplicationFile: local:///pi.py
  sparkVersion: 3.5.0
  tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}]
  driver: {cores: 1, memory: 512m}
  executor: {cores: 1, instances: 1, memory: 512m}
"""
    assert "field-at-wrong-level" in found(text, AKS)
    assert "the API server would drop this field here" in str(run("place", "work.yaml").exception)


@pytest.mark.parametrize(
    ("lines", "rule", "words"),
    [
        ("    retryPolicy: Always\n", "field-at-wrong-level", "retryPolicy"),
        ('    backoff: {duration: "1"}\n', "field-at-wrong-level", "backoff"),
        ("    retryStrategy: {limit: 3, retryOn: Always}\n", "field-unknown", "retryOn"),
        ("    affinity: {nodeAntiAffinity: {}}\n", "field-unknown", "nodeAntiAffinity"),
    ],
)
def test_a_misplaced_or_invented_field_of_a_workflow_is_named(lines: str, rule: str, words: str) -> None:
    """argoproj/argo-workflows#2260."""
    text = (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: a-}\nspec:\n  entrypoint: a\n  templates:\n"
        f"  - name: a\n{lines}    container: {{image: 'app:1'}}\n"
    )
    assert words in found(text)[rule]


def test_a_misspelt_field_of_affinity_is_named() -> None:
    """kubeflow/spark-operator#1381."""
    affinity = (
        "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpression: []}]}}}"
    )
    assert "matchExpression" in found(a_job(f"      affinity: {affinity}\n"))["field-unknown"]


STACKABLE = """\
apiVersion: spark.stackable.tech/v1alpha1
kind: SparkApplication
metadata: {name: etl}
spec:
  executor:
    podOverrides: {spec: {containers: [{name: spark, image: "app:1"}]}}
"""


def test_a_kind_of_another_operator_is_placed_at_the_path_that_is_named() -> None:
    """stackabletech/spark-k8s-operator#240."""
    [application] = placed(STACKABLE, AKS, "--pod-path", "spec.executor.podOverrides.spec")
    assert application["spec"]["executor"]["podOverrides"]["spec"]["tolerations"]
    assert "--pod-path" in run("place", "work.yaml").stderr


def test_a_refusal_for_a_taint_names_the_ladder() -> None:
    """Azure/AKS#4418."""
    with_files(a_job(container=", resources: {limits: {nvidia.com/gpu: 1}}"), AKS.replace("sku=gpu", "type=gpu-spot"))
    refusal = str(run("place", "work.yaml").exception)
    assert 'policy: {tasks: {"train": {ladder: [gpuspot]}}}' in refusal
    Path("spotwright.yaml").write_text(
        AKS.replace("sku=gpu", "type=gpu-spot").replace("policy: {", 'policy: {tasks: {"train": {ladder: [gpuspot]}}, ')
    )
    assert run("place", "work.yaml", "-o", "out.yaml").return_value == 0


def test_work_that_never_uses_spot_asks_for_no_pool_by_name_where_the_provider_makes_pools() -> None:
    """kubeflow/pipelines#3870: GKE node auto-provisioning names its pools itself."""
    pools = """\
version: 1
pools:
  auto: {capacity: on-demand, provider: gke}
  auto-spot: {capacity: spot, provider: gke, taints: ["cloud.google.com/gke-spot=true:NoSchedule"]}
policy: {default: {spot: never}}
"""
    [job] = placed(a_job(), pools)
    assert required(job) == [{"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]}]


def test_kinds_of_karpenter_of_the_past_are_found() -> None:
    text = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: gpu}\nspec: {ttlSecondsAfterEmpty: 30}\n"
    assert "karpenter-past-version" in found(text)


def test_a_command_that_removes_the_saves_before_it_trains_is_found() -> None:
    """GoogleCloudPlatform/ml-auto-solutions#1348."""
    container = ', command: [bash, -c, "rm -rf /saves/run1 && python train.py --out /saves/run1"]'
    container += ", volumeMounts: [{name: saves, mountPath: /saves}]"
    volumes = "      volumes: [{name: saves, persistentVolumeClaim: {claimName: saves}}]\n"
    selector = '      nodeSelector: {cloud.google.com/gke-spot: "true"}\n'
    assert "/saves/run1" in found(a_job(volumes + selector, container))["saves-removed-at-start"]


THREE = "---\n".join(a_job().replace("name: train", f"name: {name}") for name in ("one", "two", "three"))


def messages(*options: str) -> list[str]:
    with_files(THREE, AKS)
    return run("place", "work.yaml", "-o", "out.yaml", *options).stderr.splitlines()


def test_a_message_that_holds_for_several_objects_is_one_line_with_their_places_and_the_last_line_sums_up() -> None:
    *findings, summary = messages()
    warnings = [line for line in findings if "warning: job: the cluster autoscaler" in line]
    assert len(warnings) == 1
    assert warnings[0].endswith("(also line 18, line 29)")
    assert summary.startswith("placed 3 roles in 1 file, 3 of them on spot (")


def test_notes_are_left_out_by_severity_and_everything_by_quiet() -> None:
    assert any(": note: " in line for line in messages())
    assert not any(": note: " in line for line in messages("--severity", "warning"))
    assert messages("--quiet") == []
