"""The mistakes of the guides that users start from, in words of our own, each found by its rule."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

SPOT_TAINT = (
    "tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}]"
)
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  template:
    spec:
      restartPolicy: Never
      %s
      containers: [{name: a, image: a}]
"""
TRIAL = """\
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: a}
spec:
  trialTemplate:
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        containers: [{name: train, image: a}]
        nodeSelector: {a: b}
"""
TRAINING = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {generateName: tfjob}
spec:
  tfReplicaSpecs:
    Worker:
      %s
"""
PIPELINE = "import kfp\nfrom kfp import dsl\n\n@dsl.pipeline\ndef main():\n    a = op()\n"
SDK = "from kubeflow.training import *\nc = V1Container()\n"

YAML = {
    "a selector of spot nodes without a toleration": (
        JOB % "nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}",
        "affinity-without-toleration",
    ),
    "a role without a template": (
        TRAINING % "spec: {containers: [{name: tensorflow, image: a}]}",
        "field-at-wrong-level",
    ),
    "affinity in a role": (TRAINING % "affinity: {nodeAffinity: {}}", "field-at-wrong-level"),
    "a container with a name of its own": (
        TRAINING % "template: {spec: {containers: [{name: my-process, image: a}]}}",
        "operator-container-name",
    ),
    "a trial without a template": (TRIAL, "field-at-wrong-level"),
    "a trial that may not restart": (
        TRIAL.replace("        containers: [{name: train, image: a}]\n        nodeSelector: {a: b}\n", "").replace(
            "      spec:\n", "      spec:\n        template:\n          spec: {containers: [{name: train, image: a}]}\n"
        ),
        "job-restart-policy",
    ),
    "a grace period in the spec of a Job": (
        JOB.replace("  template:\n", "  terminationGracePeriodSeconds: 25\n  template:\n", 1) % "hostNetwork: false",
        "field-at-wrong-level",
    ),
    "no retries of a training job": (
        TRAINING % f"template: {{spec: {{{SPOT_TAINT}, containers: [{{name: tensorflow, image: a}}]}}}}",
        "role-never-restarts",
    ),
    "required affinity as a way to survive": (
        JOB % f"nodeSelector: {{kubernetes.azure.com/scalesetpriority: spot}}\n      {SPOT_TAINT}",
        "no-fallback",
    ),
    "a toleration as a preference": (JOB % SPOT_TAINT, "toleration-without-affinity"),
    "quotes of a word processor": (JOB % "nodeSelector: {gpu: \u201ctrue\u201d}", "typographic-quotes"),
    "a truth value as a label": (JOB % "nodeSelector: {gpu: true}", "wrong-shape"),
    "a dash of a word processor": (JOB % "imagePullSecrets:\n        \u2014 name: acr", "typographic-quotes"),
    "a selector of GPUs without a GPU": (JOB % 'nodeSelector: {gpu: "true"}', "gpu-not-requested"),
    "the API model of aks-engine": (
        "apiVersion: vlabs\nproperties: {agentPoolProfiles: [{name: a, scaleSetPriority: Low}]}\n",
        "aks-engine-model",
    ),
    "preemptible machines": (
        JOB % "nodeSelector: {cloud.google.com/gke-preemptible: 'true'}",
        "retired-capacity-label",
    ),
}
PYTHON = {
    "ContainerOp": (PIPELINE + "    dsl.ContainerOp(name='a', image='b')\n", "kfp1-component"),
    "two arguments of a selector": (PIPELINE + "    a.add_node_selector_constraint('a', 'b')\n", "kfp1-task-setting"),
    "a GPU limit": (PIPELINE + "    a.set_gpu_limit(1)\n", "kfp1-outdated"),
    "a toleration as a method": (PIPELINE + "    a.add_toleration(t)\n", "kfp1-task-setting"),
    "affinity as a method": (PIPELINE + "    a.add_affinity(t)\n", "kfp1-task-setting"),
    "required affinity in a pipeline": (
        PIPELINE
        + "    aff = V1Affinity(node_affinity=V1NodeAffinity(required_during_scheduling_ignored_during_execution=V1NodeSelector("
        "node_selector_terms=[V1NodeSelectorTerm(match_expressions=[V1NodeSelectorRequirement("
        "key='kubernetes.azure.com/scalesetpriority', operator='In', values=['spot'])])])))\n    a.add_affinity(aff)\n",
        "no-fallback",
    ),
    "a required selector in a pipeline": (
        PIPELINE + "    kubernetes.add_node_selector(a, 'cloud.google.com/gke-spot', 'true')\n",
        "no-fallback",
    ),
    "a misspelt argument": (PIPELINE + "    a.set_retry(num_retries=5, backoff_dureation='5m')\n", "unknown-argument"),
    "kfp.gcp": ("import kfp.gcp as gcp\n", "kfp1-module"),
    "a preemptible pool": (PIPELINE + "    a.apply(gcp.use_preemptible_nodepool())\n", "kfp1-task-setting"),
    "retries for an hour": (
        PIPELINE + "    a.apply(gcp.use_preemptible_nodepool()).set_retry(5)\n",
        "kfp-retry-window",
    ),
    "a constant that is not there": (PIPELINE + "    b = op(action=COPY_ACTION)\n", "undefined-name"),
    "a name of the training SDK": (SDK + "V1ReplicaSpec(replicas=1)\n", "training-sdk-name"),
    "a spec without a template": (SDK + "KubeflowOrgV1ReplicaSpec(spec=V1PodSpec())\n", "training-sdk-argument"),
    "affinity at the replica spec": (
        SDK + "KubeflowOrgV1ReplicaSpec(affinity=V1Affinity())\n",
        "training-sdk-argument",
    ),
    "node affinity at the pod": (SDK + "V1PodSpec(node_affinity=V1NodeAffinity())\n", "training-sdk-argument"),
    "a clean-up policy at the job": (
        SDK + "KubeflowOrgV1TFJobSpec(clean_pod_policy='None')\n",
        "training-sdk-argument",
    ),
    "one container": (SDK + "V1PodSpec(containers=c)\n", "containers-no-list"),
}


@pytest.mark.parametrize(("text", "rule"), YAML.values(), ids=list(YAML))
def test_a_mistake_in_a_manifest_is_found(text: str, rule: str) -> None:
    assert rule in {finding.rule for finding in found_in(text)}


@pytest.mark.parametrize(("text", "rule"), PYTHON.values(), ids=list(PYTHON))
def test_a_mistake_in_python_is_found(text: str, rule: str) -> None:
    assert rule in {finding.rule for finding in found_in(text, python=True)}
