"""Refused pods are admitted and end their workload wherever the pod in their place would be: under each policy of a namespace.

KFP itself is not on the test bed: its runs are Workflows with the shape that its backend makes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
from testbed.building.images import ARGOEXEC, BUSYBOX, PYTHON
from testbed.settings import Settings
from tests.cluster.budget_trials.kfp_shape import a_run
from tests.cluster.budget_trials.trial import configuration_of
from tests.cluster.live.kube import Kube, Object
from tests.cluster.live.replicas import configure, controllers
from tests.cluster.recorder.api import Api
from tests.cluster.recorder.recording import await_account
from tests.cluster.recorder.workloads import Behaviour, workload

pytestmark = pytest.mark.cluster

KINDS = {"job": "job", "jobset": "jobset", "argo": "workflow", "kfp": "workflow"}
POLICIES = ("restricted", "quota", "images", "tolerations")
ENDS = 240.0  # seconds, on a busy machine: a Job waits 10 and 20 seconds before it makes its pods again
QUIET = 15.0  # seconds in which a workload that is over makes no pod
REFUSAL = "no retry is left (errors.retries is 1) (attempts 1, 2)"
SMALL: Mapping[str, Any] = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
ALLOWED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Seen(NamedTuple):
    """One workload after its end: its refused pod, the words of its controller, and the pods that were made after the end."""

    refused: Object
    said: str
    later: int


def the_namespace(policy: str) -> str:
    return f"refused-{policy}-{os.getpid()}"


def policies() -> list[Object]:
    """The administrator's settings for each of the namespaces."""
    amounts = {"requests.cpu": "4", "requests.memory": "4Gi", "limits.cpu": "4", "limits.memory": "4Gi"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "all", "namespace": the_namespace("quota")},
        "spec": {"hard": amounts},
    }
    images = [BUSYBOX, PYTHON, ARGOEXEC]
    own_images = f"variables.all.all(each, each.image in {json.dumps(images)})"
    keys = "!has(object.spec.tolerations) || object.spec.tolerations.all(each, has(each.key))"
    containers = "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
    return [
        quota,
        *admission("images", own_images, [{"name": "all", "expression": containers}]),
        *admission("tolerations", keys, []),
    ]


def admission(policy: str, expression: str, variables: list[Object]) -> list[Object]:
    """A ValidatingAdmissionPolicy for the pods of one namespace."""
    group, name = "admissionregistration.k8s.io/v1", the_namespace(policy)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    matched = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}, "resourceRules": [rule]}
    spec = {"matchConstraints": matched, "variables": variables, "validations": [{"expression": expression}]}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    ]


def allowed(data: Any) -> Any:
    """An object whose containers are allowed in each of the namespaces: small, and not root."""
    if isinstance(data, list):
        return [allowed(each) for each in data]
    if not isinstance(data, dict):
        return data
    made = {key: allowed(value) for key, value in data.items()}
    if "image" in made:
        made |= {"resources": dict(SMALL), "securityContext": dict(ALLOWED)}
    return made


def objects(kind: str) -> list[Object]:
    """A workload whose code always fails."""
    command = ["sh", "-c", "exit 1"]
    if kind == "kfp":
        return [of_argo(allowed(a_run(kind, command, image=BUSYBOX)))]
    made = [allowed(each) for each in workload(kind, kind, Behaviour(command, image=BUSYBOX, cpu="10m"))]
    return [of_argo(each) if kind == "argo" else each for each in made]


def of_argo(workflow: Object) -> Object:
    """A Workflow whose containers of Argo are allowed as well, as an ``executor`` in Argo's configuration makes them.

    A driver that is not root writes into a volume.
    """
    given = {"resources": dict(SMALL), "securityContext": dict(ALLOWED)}
    patch = {"containers": [{"name": "wait", **given}], "initContainers": [{"name": "init", **given}]}
    workflow["spec"]["podSpecPatch"] = json.dumps(patch)
    workflow["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for template in workflow["spec"]["templates"]:
        if template["name"] == "system-container-driver":
            template["volumes"] = [{"name": "outputs", "emptyDir": {}}]
            template["container"]["volumeMounts"] = [{"name": "outputs", "mountPath": "/outputs"}]
    return workflow


@pytest.fixture(scope="module")
def seen(bed: Settings, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Seen]]:
    """Every kind in every namespace, after its end."""
    for crd in ("workflows.argoproj.io", "jobsets.jobset.x-k8s.io"):
        if reason := kube.lacks(crd):
            pytest.skip(reason)
    names = [the_namespace(policy) for policy in POLICIES]
    api = Api(bed.kubeconfig)
    cluster_wide = [each for each in policies() if each["kind"] != "ResourceQuota"]
    with controllers(bed, kube, tmp_path_factory.mktemp("refusals")):
        try:
            for name in names:
                kube.run("create", "namespace", name)
                await_account(api, name)
                configure(kube, name, configuration_of(2, 1))
            level = "pod-security.kubernetes.io/enforce=restricted"
            kube.run("label", "namespace", the_namespace("restricted"), level)
            kube.apply(*policies())
            time.sleep(2)  # a new policy is in force a moment later
            for name in names:
                for kind in KINDS:
                    for each in objects(kind):
                        kube.run("create", "-n", name, "-f", "-", text=json.dumps(each))
            pairs = [(policy, kind) for policy in POLICIES for kind in KINDS]
            ended = {pair: kube.wait(partial(end_of, kube, *pair), f"{pair} has ended", ENDS) for pair in pairs}
            time.sleep(QUIET)
            yield {pair: now(kube, *pair, *ended[pair]) for pair in pairs}
        finally:
            kube.run("delete", "namespace", *names, "--wait=false", "--ignore-not-found")
            for each in cluster_wide:
                kube.run("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


def end_of(kube: Kube, policy: str, kind: str) -> tuple[str, int] | None:
    """The final status of a workload's controller, and the number of pods; None before the end."""
    status = (kube.get(KINDS[kind], kind, the_namespace(policy)) or {}).get("status") or {}
    conditions = [
        each for each in status.get("conditions") or () if each["type"] == "Failed" and each["status"] == "True"
    ]
    if status.get("phase") in ("Failed", "Error"):
        return f"{status['phase']}: {status.get('message', '')}", len(pods_of(kube, policy, kind))
    return (conditions[0].get("message", ""), len(pods_of(kube, policy, kind))) if conditions else None


def pods_of(kube: Kube, policy: str, kind: str) -> list[Object]:
    labels = ("workflows.argoproj.io/workflow", "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name")
    return [
        pod
        for pod in kube.list("pods", the_namespace(policy))
        if kind == next((pod["metadata"]["labels"][each] for each in labels if each in pod["metadata"]["labels"]), "")
    ]


def now(kube: Kube, policy: str, kind: str, said: str, before: int) -> Seen:
    pods = pods_of(kube, policy, kind)
    refused = [pod for pod in pods if "spotwright.dev/refused" in pod["metadata"]["annotations"]]
    return Seen(refused[0] if refused else {}, said, len(pods) - before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_refused_pod_is_admitted_and_ends_its_workload(
    seen: dict[tuple[str, str], Seen], policy: str, kind: str
) -> None:
    found = seen[policy, kind]
    assert found.refused, found.said
    statuses = {each["name"]: each["state"] for each in found.refused["status"]["containerStatuses"]}
    [ended] = [state["terminated"] for name, state in statuses.items() if name != "wait"]
    assert (ended["exitCode"], ended["message"]) == (86, REFUSAL)
    assert found.later == 0
    image = next(each["image"] for each in found.refused["spec"]["containers"] if each["name"] != "wait")
    assert image == BUSYBOX


def test_the_quota_counts_what_a_refused_pod_requests(seen: dict[tuple[str, str], Seen]) -> None:
    for kind in KINDS:
        spec = seen["quota", kind].refused["spec"]
        for each in (*spec["containers"], *spec.get("initContainers", ())):
            assert set(each["resources"]["limits"]) >= {"cpu", "memory"}
