"""Rules on tolerations and affinity: pods that ask for spot have to be admitted there, and must be able to leave it.

Sources: Kubernetes documentation, "Taints and Tolerations", "Assigning Pods to Nodes"; kubernetes/autoscaler FAQ and #8133
(preferred affinity is ignored when a node group is chosen); AKS#4405.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from spotwright.clouds import providers
from spotwright.clouds.provider_records import COMPUTE_CLASS
from spotwright.clouds.providers import below_cut_off
from spotwright.kfp.kfp1 import assigned_calls
from spotwright.kinds.ray import market_type
from spotwright.kube.admission import priority
from spotwright.linter.python_source import PythonFile, calls_named, names_spot_label
from spotwright.linter.rule import (
    AKS_POOLS,
    ON_SPOT,
    PREFERS_SPOT,
    TOLERATION,
    Checks,
    Mend,
    Problem,
    Rule,
    Severity,
    job,
    pod,
)
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import Reach, admits, selects_pool, selects_spot, shuns_spot, tolerates_spot
from spotwright.linter.subjects import KubeObject, Pods, mapping_at, mapping_of
from spotwright.model.pools import Capacity, Pool
from spotwright.model.scheduling_terms import Expression, Taint, is_placeholder
from spotwright.placing.pods import PodRole
from spotwright.placing.retries import PREFERENCE_IGNORED, preference_advice

__all__ = ["RULES"]


_SPOT_REQUIRED = "required_during_scheduling_ignored_during_execution"
_FIX = (
    "Write spot.prefer(task)  (import spotwright as spot), or give a weight; spot.require(task) where waiting is meant."
)


def _required_spot(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Affinities of kfp 1 that require spot nodes. Current ones are checked with their tasks' pods.

    A file that uses Spotwright states its intent by its policy.
    """
    if any(name.partition(".")[0] == "spotwright" for name in file.modules()):
        return
    assigned = assigned_calls(file.tree)
    for call in calls_named(file, "add_affinity"):
        given = _required_part(call, assigned)
        if given is not None and names_spot_label(ast.walk(given)):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            task = owner.id if isinstance(owner, ast.Name) else "a task"
            text = f"{task} may run on spot nodes only, so it waits for ever without one"
            yield Problem((), text, _FIX, line=call.lineno)


def _required_part(call: ast.Call, assigned: dict[str, ast.Call]) -> ast.AST | None:
    """What the call requires of nodes; ``None`` if it only prefers, or the file does not say."""
    given = call.args[0] if call.args else None
    affinity = assigned.get(given.id) if isinstance(given, ast.Name) else given
    if affinity is None:
        return None
    return next(
        (one.value for one in ast.walk(affinity) if isinstance(one, ast.keyword) and one.arg == _SPOT_REQUIRED), None
    )


_AKS_TAINT = Taint("kubernetes.azure.com/scalesetpriority", "spot")
_AKS_LABEL = Expression(_AKS_TAINT.key, "In", (_AKS_TAINT.value,))
_REQUIRED = """\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
"""
_MEANT = (
    "  name: train\n",
    "  name: train\n  labels: {spotwright.dev/spot: require}\n",
)  # in examples: waiting is meant


def _toleration_alone(pods: Pods, settings: Settings) -> Iterator[Problem]:
    if pods.reach is not Reach.TOLERATED or pods.duty is not PodRole.WORKER or pods.is_queued or pods.is_partial:
        return
    if pods.owner and pods.owner.group == "tekton.dev" and ("tolerations",) in pods.where:
        return  # the template of all tasks, which an on-demand task has too: it replaces only the affinity
    if pods.wish == "never" or any(not one.key for one in pods.constraints.tolerations):
        return
    expressions = [one for term in pods.constraints.required for one in term.expressions]
    if any(selects_spot(one, settings) or _tries_spot_first(one) for one in expressions):
        return
    yield Problem(pods.at("tolerations"), f"{pods.label} tolerates the taint of spot nodes and does not prefer them")


def _tries_spot_first(expression: Expression) -> bool:
    """Whether a condition lets Karpenter choose the capacity, which then tries spot first."""
    return (
        expression.key == "karpenter.sh/capacity-type" and expression.operator == "In" and "spot" in expression.values
    )


def _not_tolerated(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods that ask for AKS spot nodes, or for spot pools that the configuration taints, without tolerating the taint."""
    if pods.reach < Reach.PREFERRED or pods.is_partial:
        return
    taints = [_AKS_TAINT] if _AKS_LABEL in pods.conditions else []
    if pods.reach is Reach.REQUIRED:
        meant = [pool for pool in settings.pools.values() if selects_pool(pods.constraints, pool, pods.requests)]
        if any(admits(pool, pods.constraints) for pool in meant):
            return
        taints = taints if not meant else [taint for pool in meant for taint in providers.taints(pool)]
    for taint in dict.fromkeys(taints):
        if taint.key in settings.spot_taints and not pods.constraints.tolerates(taint):
            mend = Mend("extend", pods.at("tolerations"), [taint.toleration_fields])
            how = "stays Pending" if pods.reach is Reach.REQUIRED else "never gets there"
            whose = pods.with_maker(*(one.key for one in pods.constraints.pairs if selects_spot(one, settings)))
            text = f"{whose} asks for spot nodes without tolerating their taint {taint}, so it {how}"
            path = pods.selector if pods.constraints.selector else pods.at("affinity")
            yield Problem(path, text, mends=(mend,) if pods.form != "K" else ())
            return


def _no_fallback(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.reach is not Reach.REQUIRED or pods.wish == "require" or pods.is_queued or not pods.is_work:
        return
    path = pods.selector if not pods.constraints.required else pods.terms
    yield Problem(path, f"{pods.label} may run on spot nodes only, so it waits for ever without one")


def _ignored_preference(pods: Pods, settings: Settings) -> Iterator[Problem]:
    if pods.reach is not Reach.PREFERRED or pods.is_queued:
        return
    if any(one.key == COMPUTE_CLASS for one in pods.conditions):  # it defines the order
        return
    every = list(settings.pools.values())
    used = [
        one for one in every if selects_pool(pods.constraints, one, pods.requests) and admits(one, pods.constraints)
    ]
    advice = preference_advice(used or every, settings.target)
    if advice:
        yield Problem(pods.at("affinity"), f"{pods.label}: {PREFERENCE_IGNORED}", f"Use {advice}.")


def _alternatives(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Of several required terms, which are alternatives, some ask for spot and others do not."""
    terms = pods.constraints.required
    if len(terms) < 2 or pods.form == "K":  # a rule of compiled pipelines says it for each call
        return
    asking = [any(selects_spot(one, settings) for one in term.expressions) for term in terms]
    shunning = [any(map(shuns_spot, term.expressions)) for term in terms]
    if any(asking) and not all(asking) and not any(shunning):
        index = asking.index(False)
        text = f"{pods.label} has terms for spot and one without that condition; terms are alternatives, so the "
        text += "latter is enough"
        yield Problem((*pods.terms, index), text)


_HOSTNAME = "kubernetes.io/hostname"


def _bound_to_node(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    is_scheduled = pods.owner is not None and pods.owner.is_live
    if pods.value.get("nodeName") and pods.form in ("T", "S") and not is_scheduled:
        yield Problem(pods.at("nodeName"), f"{pods.label} names its node, so tolerations and affinity have no effect")
    name = pods.constraints.selector.get(_HOSTNAME, "")
    if name and pods.is_work and not is_scheduled and not is_placeholder(name):
        text = f"{pods.with_maker(_HOSTNAME)} selects the node {name}, and no other node gets its name after it is reclaimed"
        yield Problem(pods.selected(_HOSTNAME), text, "Remove it, and select nodes by the labels of their pool.")


def _tolerates_everything(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.duty is PodRole.SYSTEM:
        return
    for index, given in enumerate(pods.constraints.tolerations):
        if given.operator == "Exists" and not given.key and given.effect in ("", "NoSchedule"):
            yield Problem(
                pods.at("tolerations", index),
                f"{pods.label} tolerates every taint, also that of nodes that are going down",
            )


def _wrong_toleration(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for one in pods.refusals:
        if one.field == "tolerations":
            yield Problem(pods.at(*one.path), one.text)


def _bound_daemons(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.duty is PodRole.SYSTEM and pods.reach is Reach.REQUIRED and mapping_of(pods.value.get("nodeSelector")):
        yield Problem(pods.selector, f"{pods.label} runs on spot nodes only, so other nodes lack it")


def _wrong_market(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A Ray group whose market type, by which Ray assigns tasks, differs from that of its nodes."""
    if pods.owner is None or pods.owner.group != "ray.io" or pods.is_queued:
        return
    group = pods.spec[:-2]
    market, where = market_type(mapping_at(pods.document.get(()), *group))
    if market == "spot" and pods.reach <= Reach.OPEN:
        fix = (
            "Correct the label: spotwright place keeps the head on on-demand nodes." if "headGroupSpec" in group else ""
        )
        yield Problem((*group, *where), f"{pods.label} says that its nodes are spot, and asks for no spot nodes", fix)
    if market == "on-demand" and pods.asks_for_spot:
        yield Problem((*group, *where), f"{pods.label} says that its nodes are on-demand, and asks for spot nodes")


def _tolerated_by_flavor(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    if not subject.record.is_of_nodes:
        return
    for index, one in enumerate(subject.items("spec", "tolerations")):
        given = mapping_of(one)
        if tolerates_spot(str(given.get("key") or ""), str(given.get("operator") or "Equal"), settings):
            text = f"{subject.label} gives its toleration of spot nodes to every pod that gets this flavor"
            yield Problem(subject.at("spec", "tolerations", index), text)


_FLAVOR = (
    "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: spot}}\nspec:\n"
    "  nodeLabels: {{kubernetes.azure.com/scalesetpriority: spot}}\n"
    "  {field}: [{{key: kubernetes.azure.com/scalesetpriority, {how}, effect: NoSchedule}}]\n"
)

_RAY_CLUSTER = (
    "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata:\n  name: tune\nspec:\n  headGroupSpec: {{template: {{spec: {{containers: "
    "[{{name: head, image: ray}}]}}}}}}\n  workerGroupSpecs:\n  - groupName: cheap\n    labels: {{ray.io/market-type: spot}}\n"
    "    template:\n      metadata: {{annotations: {{cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'}}}}\n"
    "      spec:\n{lines}        containers: [{{name: worker, image: ray}}]\n"
)


def _below_cut_off(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Pods whose priority is too low for the cluster autoscaler to add nodes."""
    found = priority(pods.value, _none_beside if pods.owner is None else pods.owner.beside.of_kind)
    pools = settings.pools.values() or _ASSUMED
    text = "" if found is None else below_cut_off(found.value, found.maker, pools, settings.target)
    if found is not None and text:
        field = "priorityClassName" if pods.value.get("priorityClassName") else "priority"
        yield Problem(pods.at(field), f"{pods.label}: {text if settings.pools else text.partition(' (')[0]}")


def _none_beside(_kind: str) -> tuple[()]:
    return ()


_LOW = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: low}}\nvalue: {}\n"
_ASSUMED = (
    Pool("nodes", Capacity.SPOT),
)  # without a configuration: nodes of a group that the cluster autoscaler grows


RULES = (
    Rule(
        id="priority-below-cutoff",
        severity=Severity.WARNING,
        title="A priority for which the cluster autoscaler makes no nodes",
        why="The cluster autoscaler counts pods below its cut-off, -10 by default, as fillers: it makes no node for them, and "
        "removes nodes under them. On pools that start at 0 nodes they wait for ever.",
        fix="Give the PriorityClass a value of -10 or more; preemptionPolicy: Never keeps its pods from preempting others.",
        fails=_LOW.format(-20) + "---\n" + job(ON_SPOT + "priorityClassName: low\n"),
        passes=_LOW.format(-10) + "---\n" + job(ON_SPOT + "priorityClassName: low\n"),
        checks=Checks(pods=_below_cut_off),
        place_says=True,
        source="kubernetes/autoscaler, FAQ, expendable-pods-priority-cutoff",
    ),
    Rule(
        id="toleration-without-affinity",
        severity=Severity.WARNING,
        title="Tolerates spot nodes without preferring them",
        why="A toleration admits pods to spot nodes; it does not lead them there. Where they run is up to the "
        "scheduler, and they usually stay on on-demand nodes, which have room.",
        fix="Add node affinity for spot nodes, preferred or required; spotwright place writes both.",
        fails=job(TOLERATION),
        passes=job(ON_SPOT),
        checks=Checks(pods=_toleration_alone),
    ),
    Rule(
        id="affinity-without-toleration",
        severity=Severity.ERROR,
        title="Asks for spot nodes without tolerating their taint",
        why="AKS taints every spot node, and so do most people on GKE. Pods that select these nodes without a "
        "toleration are never admitted there.",
        fix="Add the toleration beside the selector.",
        fails=job(PREFERS_SPOT),
        passes=job(ON_SPOT),
        checks=Checks(pods=_not_tolerated),
        mends=True,
    ),
    Rule(
        id="no-fallback",
        severity=Severity.WARNING,
        title="Requires spot nodes, with no way to on-demand",
        why="Spot capacity can be missing for hours. Pods that require it wait in silence, and a deadline passes.",
        fix="Prefer spot nodes instead, or say that waiting is meant: the label spotwright.dev/spot: require.",
        fails=job(TOLERATION + _REQUIRED),
        passes=job(ON_SPOT),
        checks=Checks(pods=_no_fallback, python=_required_spot),
    ),
    Rule(
        id="preference-ignored",
        severity=Severity.WARNING,
        title="Prefers spot nodes, which the cluster autoscaler does not read",
        why="The cluster autoscaler ignores preferred affinity when it chooses a pool to grow, so it may add on-demand "
        "nodes while spot nodes are to be had.",
        fix="Use the priority expander, with spot pools first.",
        fails=job(ON_SPOT),
        passes=job(TOLERATION + _REQUIRED).replace(*_MEANT),
        checks=Checks(pods=_ignored_preference),
        config=AKS_POOLS,
        source="kubernetes/autoscaler#8133, AKS#5136",
    ),
    Rule(
        id="affinity-terms-are-alternatives",
        severity=Severity.WARNING,
        title="Node selector terms of which one asks for spot and another does not",
        why="Terms are alternatives: a node that meets one of them is enough. A condition that has to hold belongs in "
        "every term.",
        fix="Write the conditions into one term, as its matchExpressions.",
        fails=job(
            TOLERATION + _REQUIRED + "      - matchExpressions:\n        - {key: gpu, operator: In, values: [a100]}\n"
        ),
        passes=job(
            TOLERATION + _REQUIRED + "        - {key: gpu, operator: In, values: [a100]}\n",
        ).replace(*_MEANT),
        checks=Checks(pods=_alternatives),
        place_says=True,
        source='Kubernetes documentation, "Assigning Pods to Nodes"',
    ),
    Rule(
        id="ray-market-type",
        severity=Severity.WARNING,
        title="A group of Ray whose market type is not that of its nodes",
        why="Ray gives tasks to a group by its label ray.io/market-type, which does not place the group's pods: tasks that "
        "ask for on-demand nodes may run on spot, and those that ask for spot at the price of on-demand.",
        fix="Ask for such nodes in the group's template (spotwright place does), or correct the label.",
        fails=_RAY_CLUSTER.format(lines=""),
        passes=_RAY_CLUSTER.format(lines="".join(f"        {line}\n" for line in ON_SPOT.splitlines())),
        checks=Checks(pods=_wrong_market),
        place_says=True,
        source='Ray documentation, "KubeRay label-based scheduling"',
    ),
    Rule(
        id="flavor-tolerates-spot",
        severity=Severity.WARNING,
        title="A flavor of Kueue that tolerates the taint of its spot nodes",
        why="Kueue adds the tolerations of a flavor to every pod that gets it. Work that was never meant for spot is admitted "
        "there, and in a TrainJob they replace the tolerations of the pods.",
        fix="Write the taint under nodeTaints, and remove the toleration: spotwright place writes tolerations into the work.",
        fails=_FLAVOR.format(field="tolerations", how="operator: Exists"),
        passes=_FLAVOR.format(field="nodeTaints", how="value: spot"),
        checks=Checks(objects=_tolerated_by_flavor),
        place_says=True,
        source="kubernetes-sigs/kueue, apis/kueue/v1beta2/resourceflavor_types.go",
    ),
    Rule(
        id="node-name-set",
        severity=Severity.WARNING,
        title="Names its node",
        why="nodeName bypasses the scheduler: tolerations and affinity have no effect. By it, or by a selector of "
        "kubernetes.io/hostname, pods of a reclaimed node are never placed on another one.",
        fix="Remove nodeName, and select nodes by their labels.",
        fails=job("nodeName: aks-spot-000001\n"),
        passes=job(ON_SPOT),
        checks=Checks(pods=_bound_to_node),
    ),
    Rule(
        id="tolerates-everything",
        severity=Severity.WARNING,
        title="Tolerates every taint",
        why="A toleration without a key also admits pods to nodes that are being drained or deleted, to GPU nodes and "
        "to the control plane; it is meant for DaemonSets.",
        fix="Name the taint of the spot nodes.",
        fails=job("tolerations:\n- {operator: Exists}\n"),
        passes=job(ON_SPOT),
        checks=Checks(pods=_tolerates_everything),
    ),
    Rule(
        id="toleration-refused",
        severity=Severity.ERROR,
        title="A toleration that the API server refuses",
        why="The whole object is refused.",
        fix="Write key, operator Equal, value and effect; or key, operator Exists and effect.",
        fails=job(TOLERATION.replace("Equal", "Exists") + PREFERS_SPOT),
        passes=job(ON_SPOT),
        checks=Checks(pods=_wrong_toleration),
        source="kubernetes, pkg/apis/core/validation, ValidateTolerations",
    ),
    Rule(
        id="daemonset-selects-spot",
        severity=Severity.WARNING,
        title="A DaemonSet that runs on spot nodes only",
        why="Device plugins, drivers and log collectors are needed on every node. A DaemonSet needs a toleration of "
        "the spot taint, and no selector.",
        fix="Remove the node selector and keep the toleration.",
        fails=pod(TOLERATION + "nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}\n", kind="DaemonSet"),
        passes=pod(TOLERATION, kind="DaemonSet"),
        checks=Checks(pods=_bound_daemons),
    ),
)
"""The rules of this module."""
