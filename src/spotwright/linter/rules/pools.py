"""Rules on the pools of the configuration: labels that no pool has, untolerated taints, GPUs, and outdated forms.

Where ``spotwright.yaml`` names no pools, the rules about them have no findings. Sources: Google Cloud, "Spot VMs in GKE";
Microsoft Learn, "Add an Azure Spot node pool"; the retirement of low-priority VMs and of aks-engine; Karpenter documentation, "v1
Migration".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from spotwright.clouds import providers
from spotwright.kfp.kfp_settings import accelerator_loss
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job, kfp
from spotwright.linter.rules.python import preemptible_flag
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import selects_pool
from spotwright.linter.subjects import KubeObject, Pods, Shape, items_of, mapping_at, mapping_of
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints
from spotwright.placing.documents import Path
from spotwright.scheduling.ladder import has_accelerators

__all__ = ["RULES"]

_POOLS = """\
version: 1
pools:
  gpu-spot: {capacity: spot, provider: aks, labels: {gpu: "true"}, taints: ["sku=gpu:NoSchedule"]}
  gpu: {capacity: on-demand, provider: aks, labels: {gpu: "true"}, taints: ["sku=gpu:NoSchedule"]}
  regular: {capacity: on-demand, provider: aks}
target: {autoscaler: karpenter}
"""
_GPU_LABEL = re.compile(r"(?:^|[./-])(gpu|accelerator|nvidia)", re.IGNORECASE)
_GKE_PREEMPTIBLE = "cloud.google.com/gke-preemptible"
_GPU_CONTAINER = "resources: {limits: {nvidia.com/gpu: 1}}\n"


def _no_pool(pods: Pods, settings: Settings) -> Iterator[Problem]:
    if not settings.pools:
        return
    given = pods.constraints
    if any(selects_pool(given, pool, {}) for pool in settings.pools.values()):
        return
    for key, value in given.selector.items():
        if not any(_has(pool, key, value) for pool in settings.pools.values()):
            yield Problem(pods.selected(key), f"{pods.with_maker(key)} selects {key}={value}, which no pool has")
            return
    path = pods.terms if given.required else pods.selector
    yield Problem(path, f"{pods.with_maker(*given.selector)} selects nodes by labels that no pool has together")


def _has(pool: Pool, key: str, value: str) -> bool:
    return selects_pool(Constraints(selector={key: value}), pool, {})


def _taint_kept_out(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods whose selector leads to pools that all have a taint they do not tolerate."""
    given = pods.constraints
    if not given.selector and not given.required:
        return
    requests = {**dict.fromkeys(_devices(pods), 1), **pods.requests}
    meant = [pool for pool in settings.pools.values() if selects_pool(given, pool, requests)]
    keeping = []
    for pool in meant:
        taints = [
            taint for taint in providers.taints(pool) if not providers.is_tolerated_by_cluster(pool, taint, requests)
        ]
        refused = [one for one in taints if one.effect != "PreferNoSchedule" and not given.tolerates(one)]
        others = [taint for taint in refused if taint.key not in settings.spot_taints]
        if not others:
            return  # another rule names the taint of spot nodes
        keeping += others
    others = list(dict.fromkeys(keeping))
    if others:
        names = ", ".join(pool.name for pool in meant)
        whose = pods.with_maker(*given.selector)
        yield Problem(pods.selector, f"{whose} selects {names} and does not tolerate its taint {others[0]}")


def _devices(pods: Pods) -> set[str]:
    """The extended resources that the containers ask for."""
    found = set()
    for container in pods.containers:
        for kind in ("limits", "requests"):
            found |= {name for name in mapping_at(container.value, "resources", kind) if "/" in name}
        accelerator = mapping_at(container.value, "resources", "accelerator")
        if accelerator:
            found.add("nvidia.com/gpu")
    return found


def _gpu_unused(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods that select GPU nodes and ask for no GPU: the node is paid for and its GPUs stay idle."""
    if not pods.containers or any(providers.is_accelerator(name) for name in _devices(pods)) or pods.form == "H":
        return
    for key, value in pods.constraints.selector.items():
        if (
            _GPU_LABEL.search(key)
            and value.lower() not in ("false", "none", "no")
            and not _is_of_plain_pool(key, value, settings)
        ):
            text = f"{pods.with_maker(key)} selects GPU nodes by {key} and asks for no GPU"
            yield Problem(pods.selected(key), text)
            return


def _is_of_plain_pool(key: str, value: str, settings: Settings) -> bool:
    return any(providers.labels(pool).get(key) == value and _is_plain(pool) for pool in settings.pools.values())


def _is_plain(pool: Pool) -> bool:
    return pool.node is not None and not has_accelerators(pool.node)


def _limits_missing(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.form == "K":
        return
    for container in pods.containers:
        limits = mapping_at(container.value, "resources", "limits")
        for name in mapping_at(container.value, "resources", "requests"):
            if providers.is_accelerator(name) and name not in limits:
                text = f"{pods.label} requests {name} without a limit of it"
                yield Problem((*container.path, "resources", "requests", name), text)


def _accelerator(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Accelerators that KFP's backend does not give a task."""
    for container in pods.containers if pods.form == "K" else ():
        resources = mapping_at(container.value, "resources")
        if loss := accelerator_loss(resources):
            fix = _accelerator_advice(mapping_of(resources.get("accelerator")))
            yield Problem((*container.path, "resources", "accelerator"), f"{pods.label} {loss}", fix)


def _accelerator_advice(accelerator: Shape) -> str:
    """The calls that request the task's accelerator; empty, for the rule's advice, if it is not NVIDIA's."""
    kind = str(accelerator.get("type") or accelerator.get("resourceType") or "").lower().replace("_", "-")
    count = str(accelerator.get("count") or accelerator.get("resourceCount") or "1")
    if not kind.startswith("nvidia-"):
        return ""
    return (
        f"Write task.set_accelerator_type('nvidia.com/gpu').set_accelerator_limit({count}), and select the model by its label "
        f"(on GKE: kubernetes.add_node_selector(task, 'cloud.google.com/gke-accelerator', '{kind}'))."
    )


def _old_labels(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    keys = {one.key for one in pods.conditions if one.operator in ("In", "Exists") and "false" not in one.values}
    other = bool(keys & {"cloud.google.com/gke-spot", "cloud.google.com/gke-provisioning"}) or len(keys) > 2
    if _GKE_PREEMPTIBLE in keys and not other:
        path = pods.selector if _GKE_PREEMPTIBLE in pods.constraints.selector else pods.at("affinity")
        fix = "Make a pool of Spot VMs and select its label cloud.google.com/gke-spot=true."
        yield Problem(
            path, f"{pods.with_maker(_GKE_PREEMPTIBLE)} selects preemptible VMs, which live a day at most", fix
        )
    for one in pods.conditions:
        if one.key == "kubernetes.azure.com/scalesetpriority" and "low" in (value.lower() for value in one.values):
            text = f"{pods.with_maker(one.key)} selects low-priority VMs, which Azure has retired"
            fix = f"Make a pool of Spot VMs and select its label {one.key}=spot."
            yield Problem(pods.selector if pods.constraints.selector else pods.at("affinity"), text, fix)


def _old_api_model(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """The input of aks-engine, or a part of it: agent pools with a priority."""
    profiles = subject.get("properties", "agentPoolProfiles", default=subject.get("agentPoolProfiles"))
    if subject.kind or not isinstance(profiles, list):
        return
    base = ("properties", "agentPoolProfiles") if "properties" in subject.value else ("agentPoolProfiles",)
    for index, profile in enumerate(items_of(profiles)):
        priority = str(mapping_of(profile).get("scaleSetPriority") or "")
        if priority:
            name = mapping_of(profile).get("name") or index
            text = f"the pool {name} is made by aks-engine with scaleSetPriority {priority}, and aks-engine is "
            text += "retired"
            yield Problem(subject.at(*base, index, "scaleSetPriority"), text)


_KARPENTER_KINDS = {
    ("karpenter.sh", "Provisioner"): "a NodePool of karpenter.sh/v1",
    ("karpenter.sh", "Machine"): "a NodeClaim of karpenter.sh/v1",
    ("karpenter.k8s.aws", "AWSNodeTemplate"): "an EC2NodeClass of karpenter.k8s.aws/v1",
}
_KARPENTER_TODAY = {
    ("karpenter.sh", "NodePool"): "karpenter.sh/v1",
    ("karpenter.sh", "NodeClaim"): "karpenter.sh/v1",
    ("karpenter.k8s.aws", "EC2NodeClass"): "karpenter.k8s.aws/v1",
}
_OF_NODE_POOLS: Mapping[str, str] = {
    "annotations": "spec.template.metadata.annotations",
    "consolidation": "spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized",
    "expireAfter": "spec.template.spec.expireAfter",
    "kubelet": "spec.kubelet of its node class",
    "labels": "spec.template.metadata.labels",
    "nodeClassRef": "spec.template.spec.nodeClassRef",
    "provider": "an EC2NodeClass, named by spec.template.spec.nodeClassRef",
    "providerRef": "spec.template.spec.nodeClassRef",
    "requirements": "spec.template.spec.requirements",
    "startupTaints": "spec.template.spec.startupTaints",
    "taints": "spec.template.spec.taints",
    "terminationGracePeriod": "spec.template.spec.terminationGracePeriod",
    "ttlSecondsAfterEmpty": "spec.disruption.consolidateAfter",
    "ttlSecondsUntilExpired": "spec.template.spec.expireAfter",
}
"""Fields of the spec of a Provisioner, or of the template of a NodePool, that a NodePool does not have at its spec."""

_SHIELDS_OF_THE_PAST = ("karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate")


def _old_karpenter(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Kinds, versions and fields of Karpenter that current releases do not serve."""
    key = (subject.group, subject.kind)
    if key in _KARPENTER_KINDS:
        text = f"Karpenter 0.33 and later have no {subject.kind}, so {subject.label} makes no node"
        yield Problem(subject.at("kind"), text, f"Write it as {_KARPENTER_KINDS[key]}.")
        return
    today = _KARPENTER_TODAY.get(key)
    if today is None:
        return
    if subject.api_version != today:
        text = f"Karpenter 1.1 and later do not serve {subject.api_version}, so {subject.label} is refused"
        yield Problem(subject.at("apiVersion"), text, f"Write {today}.")
    if subject.kind == "NodePool":
        for path, text, fix in _old_fields(subject):
            yield Problem(subject.at("spec", *path), f"{subject.label} {text}", fix)


def _old_fields(subject: KubeObject) -> Iterator[tuple[Path, str, str]]:
    """NodePool fields that ``karpenter.sh/v1`` lacks or has elsewhere: the path in the spec, the text and the fix."""
    for name in subject.mapping("spec"):
        if name in _OF_NODE_POOLS:
            yield (name,), f"has {name} in its spec, which karpenter.sh/v1 drops", f"Write {_OF_NODE_POOLS[name]}."
    disruption, inner = subject.mapping("spec", "disruption"), subject.mapping("spec", "template", "spec")
    if disruption.get("consolidationPolicy") == "WhenUnderutilized":
        text = "has the consolidationPolicy WhenUnderutilized, which karpenter.sh/v1 refuses"
        yield ("disruption", "consolidationPolicy"), text, "Write WhenEmptyOrUnderutilized."
    for name in ("expireAfter", "terminationGracePeriod"):
        if name in disruption:
            text = f"has {name} in its disruption, which karpenter.sh/v1 drops"
            yield ("disruption", name), text, f"Write it as spec.template.spec.{name}."
    if "kubelet" in inner:
        text = "has kubelet in its template, which karpenter.sh/v1 drops"
        yield ("template", "spec", "kubelet"), text, "Write it as spec.kubelet of its node class."
    reference = mapping_of(inner.get("nodeClassRef"))
    if reference and not {"group", "kind", "name"} <= reference.keys():
        text = "has a nodeClassRef without group, kind and name, which karpenter.sh/v1 refuses"
        group = str(reference.get("apiVersion") or "karpenter.k8s.aws").partition("/")[0]
        kind = reference.get("kind") or ("AKSNodeClass" if "azure" in group else "EC2NodeClass")
        fix = f"Write group: {group}, kind: {kind} and the name, and no apiVersion."
        yield ("template", "spec", "nodeClassRef"), text, fix
    if "resources" in subject.mapping("spec", "limits"):
        yield (
            ("limits", "resources"),
            "has limits.resources, which is not a resource",
            "Write its pairs under spec.limits.",
        )


def _old_shield(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for name in _SHIELDS_OF_THE_PAST:
        if name in pods.annotations:
            text = f"{pods.label} has the annotation {name}, which Karpenter 1.0 and later do not read"
            path = (*pods.spec[:-1], "metadata", "annotations", name) if pods.form == "T" else pods.spec
            yield Problem(path, text, 'Write karpenter.sh/do-not-disrupt: "true".')


def _old_flag(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for container in pods.containers:
        if any(re.search(r"(?<!\S)--preemptible(?!\S)", word) for word in container.words) and any(
            "gcloud" in word for word in (*container.words, str(container.value.get("image")))
        ):
            text = f"{pods.label} makes nodes with gcloud --preemptible, which live a day at most"
            yield Problem(container.path, text)


def _old_script(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """A shell script, which YAML reads as a string."""
    whole = subject.document.get((), None)
    if isinstance(whole, str) and re.search(r"\bgcloud\b.*\s--preemptible(?!\S)", whole, re.DOTALL):
        yield Problem(subject.base, "this makes nodes with gcloud --preemptible, which live a day at most")


_NODE_POOL = """\
apiVersion: karpenter.sh/{version}
kind: NodePool
metadata: {{name: train}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      requirements:
      - {{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}}
  disruption: {{consolidationPolicy: {policy}, consolidateAfter: 5m}}
"""

RULES = (
    Rule(
        id="selector-matches-no-pool",
        severity=Severity.ERROR,
        title="Selects a label that no pool of the configuration has",
        why="No node fits, so the pods stay Pending, and no autoscaler adds a node for them.",
        fix="Correct the label, or add it under the pool's labels: in spotwright.yaml if its nodes have it.",
        fails=job('nodeSelector: {gpu: "yes"}\n', container=_GPU_CONTAINER),
        passes=job(
            'nodeSelector: {gpu: "true"}\n'
            + ON_SPOT.replace("tolerations:\n", "tolerations:\n- {key: sku, value: gpu}\n"),
            container=_GPU_CONTAINER,
        ),
        checks=Checks(pods=_no_pool),
        config=_POOLS,
    ),
    Rule(
        id="taint-not-tolerated",
        severity=Severity.ERROR,
        title="Selects a pool whose taint it does not tolerate",
        why="The selector leads to the pool and the taint keeps the pods out, so they stay Pending.",
        fix="Add a toleration of the taint.",
        fails=job('nodeSelector: {gpu: "true"}\n' + ON_SPOT, container=_GPU_CONTAINER),
        passes=job(
            'nodeSelector: {gpu: "true"}\n'
            + ON_SPOT.replace("tolerations:\n", "tolerations:\n- {key: sku, value: gpu}\n"),
            container=_GPU_CONTAINER,
        ),
        checks=Checks(pods=_taint_kept_out),
        config=_POOLS,
    ),
    Rule(
        id="gpu-not-requested",
        severity=Severity.WARNING,
        title="Selects GPU nodes and asks for no GPU",
        why="The most expensive nodes are started and their GPUs stay idle: without a request the device plugin gives "
        "the container none.",
        fix="Add resources.limits with the number of GPUs (task.set_accelerator_type and set_accelerator_limit in "
        "KFP).",
        fails=job("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}\n"),
        passes=job("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}\n", container=_GPU_CONTAINER),
        checks=Checks(pods=_gpu_unused),
    ),
    Rule(
        id="gpu-without-limit",
        severity=Severity.ERROR,
        title="Requests a GPU without a limit",
        why="The API server refuses the pod: a resource of a device plugin needs a limit, which is its request too.",
        fix="Write the GPU under resources.limits.",
        fails=job(container="resources: {requests: {nvidia.com/gpu: 1}}\n"),
        passes=job(container=_GPU_CONTAINER),
        checks=Checks(pods=_limits_missing),
        source='Kubernetes documentation, "Schedule GPUs"',
    ),
    Rule(
        id="accelerator-without-nodes",
        severity=Severity.ERROR,
        title="An accelerator of a KFP task that no node offers",
        why="KFP's backend writes the type into the pod as the name of a resource. Names of Vertex AI (NVIDIA_TESLA_T4) and of "
        "GKE's label (nvidia-l4) are not resources, so the pod stays Pending or is refused; without a type, or without a "
        "number, the pod gets no accelerator.",
        fix="Write task.set_accelerator_type('nvidia.com/gpu').set_accelerator_limit(1), and select the model by its label "
        "(kubernetes.add_node_selector(task, 'cloud.google.com/gke-accelerator', 'nvidia-l4')).",
        fails=kfp(executor="resources: {accelerator: {type: NVIDIA_TESLA_T4, count: '1'}}\n"),
        passes=kfp(executor="resources: {accelerator: {type: nvidia.com/gpu, count: '1'}}\n"),
        checks=Checks(pods=_accelerator),
        source="kubeflow/pipelines, backend/src/v2/driver/driver.go, initPodSpecPatch",
    ),
    Rule(
        id="retired-capacity-label",
        severity=Severity.WARNING,
        title="Selects a form of spot capacity of the past",
        why="Preemptible VMs end after a day and cost the same as Spot VMs, which do not; Azure has retired "
        "low-priority VMs. New pools have other labels, so the selector finds no node there.",
        fix="Make a pool of Spot VMs and select the label of its nodes.",
        fails=job("nodeSelector: {cloud.google.com/gke-preemptible: 'true'}\n").replace(
            "  name: train\n", "  name: train\n  labels: {spotwright.dev/spot: require}\n"
        ),
        passes=job("nodeSelector: {cloud.google.com/gke-spot: 'true'}\n").replace(
            "  name: train\n", "  name: train\n  labels: {spotwright.dev/spot: require}\n"
        ),
        checks=Checks(pods=_old_labels),
    ),
    Rule(
        id="aks-engine-model",
        severity=Severity.ERROR,
        title="An API model of aks-engine",
        why="aks-engine and its low-priority scale sets are retired; no tool makes a cluster of this file any more.",
        fix="Use AKS: spotwright pools describes the pool, az aks nodepool add --priority Spot makes it.",
        fails="apiVersion: vlabs\nproperties:\n  agentPoolProfiles:\n  - {name: gpulow, vmSize: Standard_NC6s_v3, "
        "scaleSetPriority: Low}\n",
        passes=job(ON_SPOT),
        checks=Checks(objects=_old_api_model),
    ),
    Rule(
        id="karpenter-past-version",
        severity=Severity.ERROR,
        title="An object, a field or an annotation of Karpenter that today's versions do not have",
        why="Karpenter 0.33 dropped Provisioner, Machine and AWSNodeTemplate, 1.0 the old annotations, and 1.1 v1beta1: the "
        "API server refuses the object, or drops the field, and the pool makes no nodes or other ones.",
        fix="Write it as karpenter.sh/v1 has it.",
        fails=_NODE_POOL.format(version="v1", policy="WhenUnderutilized"),
        passes=_NODE_POOL.format(version="v1", policy="WhenEmptyOrUnderutilized"),
        checks=Checks(objects=_old_karpenter, pods=_old_shield),
        source='Karpenter documentation, "v1 Migration", "v1beta1 Migration", "Upgrade Guide"',
    ),
    Rule(
        id="preemptible-flag",
        severity=Severity.WARNING,
        title="Makes preemptible nodes with gcloud",
        why="Preemptible VMs end after a day; Spot VMs cost the same and do not.",
        fix="Write --spot instead of --preemptible, and --node-taints=cloud.google.com/gke-spot=true:NoSchedule.",
        fails=job(container="command: [gcloud, container, node-pools, create, spot, --cluster=c, --preemptible]\n"),
        passes=job(container="command: [gcloud, container, node-pools, create, spot, --cluster=c, --spot]\n"),
        checks=Checks(pods=_old_flag, objects=_old_script, python=preemptible_flag),
    ),
)
"""The rules of this module."""
