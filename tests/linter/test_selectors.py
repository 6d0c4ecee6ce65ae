"""Conditions that no node meets are found without a configuration; what may be right, or is right on a pool, is left alone."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in, linted, settings

from spotwright.linter.linting import fixed_text
from spotwright.linter.rule import TOLERATION, job, kfp

AKS_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
REQUIRED = """\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
"""
PREFERRED = """\
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 1
      preference: {matchExpressions: [%s]}
"""


def required(*terms: str) -> str:
    return REQUIRED + "".join(f"      - matchExpressions: [{term}]\n" for term in terms)


def texts(text: str, rule: str, configuration: str = "", *, python: bool = False) -> list[str]:
    return [one.text for one in found_in(text, configuration, python=python) if one.rule == rule]


@pytest.mark.parametrize(
    ("selector", "what", "fix"),
    [
        (
            "kubernetes.azure.com/scalesetpriority: Spot",
            "kubernetes.azure.com/scalesetpriority=Spot",
            "Write spot.",
        ),
        ("eks.amazonaws.com/capacityType: spot", "eks.amazonaws.com/capacityType=spot", "Write SPOT."),
        ("karpenter.sh/capacity-type: SPOT", "karpenter.sh/capacity-type=SPOT", "Write spot."),
        ('cloud.google.com/gke-spot: "yes"', "cloud.google.com/gke-spot=yes", 'Write "true".'),
        ('cloud.google.com/gke-spot: "True"', "cloud.google.com/gke-spot=True", 'Write "true".'),
        ("kubernetes.io/arch: x86_64", "kubernetes.io/arch=x86_64", "Write amd64."),
        (
            "karpenter.sh/capacity-type: cheap",
            "karpenter.sh/capacity-type=cheap",
            "The values are spot, on-demand, reserved.",
        ),
        (
            "eks.amazonaws.com/capacity-type: SPOT",
            "the label eks.amazonaws.com/capacity-type",
            "Write eks.amazonaws.com/capacityType: SPOT.",
        ),
        (
            "karpenter.sh/capacityType: SPOT",
            "the label karpenter.sh/capacityType",
            "Write karpenter.sh/capacity-type: spot.",
        ),
        (
            'cloud.google.com/spot: "true"',
            "the label cloud.google.com/spot",
            'Write cloud.google.com/gke-spot: "true".',
        ),
        (
            "karpenter.sh/provisioner-name: gpu",
            "the label karpenter.sh/provisioner-name since Karpenter 0.33",
            "Write karpenter.sh/nodepool, with the name of the pool.",
        ),
    ],
)
def test_a_selector_with_a_wrong_key_or_value_is_found_with_the_right_one(selector: str, what: str, fix: str) -> None:
    [finding] = [one for one in found_in(job(f"nodeSelector: {{{selector}}}\n")) if one.rule == "label-no-node-has"]

    assert finding.text == f"no node has {what}, so Job train stays Pending"
    assert finding.fix == fix


def test_a_bound_that_is_no_whole_number_is_found() -> None:
    said = "no node meets this condition: Gt compares whole numbers, not many"
    assert texts(job(required("{key: a, operator: Gt, values: [many]}")), "condition-refused") == [said]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (
            required("{key: karpenter.sh/capacityType, operator: Exists}"),
            "no node has the label karpenter.sh/capacityType, so Job train stays Pending",
        ),
        (
            required(
                "{key: karpenter.sh/capacity-type, operator: In, values: [Spot, SPOT]}",
                "{key: gpu, operator: Exists}",
            ),
            "no node has karpenter.sh/capacity-type=Spot or SPOT, so this alternative of Job train is never met",
        ),
        (
            PREFERRED % "{key: cloud.google.com/gke-spot, operator: In, values: ['yes']}",
            "no node has cloud.google.com/gke-spot=yes, so this preference of Job train has no effect",
        ),
        (
            required("{key: kubernetes.azure.com/scalesetpriority, operator: NotIn, values: [Spot]}"),
            "no node has kubernetes.azure.com/scalesetpriority=Spot, so it keeps Job train off no node",
        ),
        (
            required("{key: eks.amazonaws.com/capacity-type, operator: DoesNotExist}"),
            "no node has the label eks.amazonaws.com/capacity-type, so it keeps Job train off no node",
        ),
    ],
)
def test_the_finding_says_what_follows(pods: str, said: str) -> None:
    assert texts(job(pods), "label-no-node-has") == [said]


@pytest.mark.parametrize(
    "pods",
    [
        "nodeSelector: {example.com/capacity-type: spot, capacityType: Spot}\n",
        'nodeSelector: {cloud.google.com/gke-spot: "{{inputs.parameters.spot}}"}\n',
        "nodeSelector: {karpenter.sh/capacity-type: $(params.capacity)}\n",
        required("{key: karpenter.sh/capacity-type, operator: In, values: [spot, Spot]}"),
        required("{key: karpenter.sh/capacity-type, operator: NotIn, values: [spot, Spot]}"),
        required("{key: kubernetes.azure.com/scalesetpriority, operator: Exists}"),
        required("{key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ['0']}"),
    ],
)
def test_a_condition_that_some_node_may_meet_is_no_finding(pods: str) -> None:
    assert texts(job(pods), "label-no-node-has") == []


@pytest.mark.parametrize("label", ["karpenter.sh/capacityType: spot", "eks.amazonaws.com/capacityType: spot"])
def test_a_label_that_a_pool_of_the_configuration_has_is_right(label: str) -> None:
    pool = f"version: 1\npools:\n  a: {{capacity: spot, labels: {{{label}}}}}\n"
    pods = job(f"nodeSelector: {{{label}}}\n")

    assert texts(pods, "label-no-node-has")
    assert texts(pods, "label-no-node-has", pool) == []


def test_a_misspelt_topology_key_is_found() -> None:
    rule = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zones, whenUnsatisfiable: DoNotSchedule}"
    anti = "{topologyKey: kubernetes.io/hostName, labelSelector: {matchLabels: {a: b}}}"
    pods = (
        f"topologySpreadConstraints: [{rule}]\n"
        f"affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{anti}]}}}}\n"
    )
    assert set(texts(job(pods), "label-no-node-has")) == {
        "no node has the label kubernetes.io/hostName, so the rule by it holds for none",
        "no node has the label topology.kubernetes.io/zones, so the rule by it holds for none",
    }


def test_the_requirements_of_a_pool_of_karpenter_and_the_labels_of_a_flavor_are_read_too() -> None:
    pool = (
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: gpu}\nspec:\n  template:\n    spec:\n"
        "      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}\n"
        "      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [SPOT]}]\n"
        "  disruption: {consolidateAfter: 5m}\n"
    )
    flavor = (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: spot}\n"
        "spec: {nodeLabels: {cloud.google.com/spot: 'true'}}\n"
    )
    assert texts(pool, "label-no-node-has") == [
        "no node has karpenter.sh/capacity-type=SPOT, so NodePool gpu makes none by it"
    ]
    assert texts(flavor, "label-no-node-has") == [
        "no node has the label cloud.google.com/spot, so pods of ResourceFlavor spot stay Pending"
    ]


PYTHON = """\
from kfp import dsl, kubernetes


@dsl.component
def train(): ...


@dsl.pipeline
def main():
    task = train()
    %s
"""


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ('kubernetes.add_node_selector(task, "eks.amazonaws.com/capacityType", "spot")', 1),
        ('kubernetes.add_node_selector(task, label_key="cloud.google.com/spot", label_value="true")', 1),
        ('kubernetes.add_node_selector(task, "eks.amazonaws.com/capacityType", "SPOT")', 0),
        ('kubernetes.add_node_selector(task, "eks.amazonaws.com/capacityType", choice)', 0),
        (
            'add_node_affinity(task, [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["SPOT"]}])',
            1,
        ),
        ('V1NodeSelectorRequirement(key="kubernetes.io/arch", operator="In", values=["x86_64"])', 1),
        ('V1NodeSelectorRequirement(key="kubernetes.io/arch", operator="In", values=["x86_64", "amd64"])', 0),
    ],
)
def test_a_pipeline_in_python_has_the_same_findings(call: str, count: int) -> None:
    assert len(texts(PYTHON % call, "label-no-node-has", python=True)) == count


def test_a_compiled_pipeline_has_the_same_findings() -> None:
    text = kfp(platform="nodeSelector: {labels: {eks.amazonaws.com/capacityType: spot}}\n")

    assert texts(text, "label-no-node-has") == [
        "no node has eks.amazonaws.com/capacityType=spot, so executor exec-train stays Pending"
    ]


def test_fix_writes_the_value_that_nodes_have() -> None:
    text = job(
        "nodeSelector: {kubernetes.azure.com/scalesetpriority: Spot}  # ours\n"
        "tolerations:\n- {key: kubernetes.azure.com/scalesetpriority, value: Spot, effect: NoSchedule}\n"
    )
    fixed = fixed_text(text, linted(text), settings())

    assert "nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}  # ours\n" in fixed
    assert "value: spot, effect: NoSchedule}" in fixed
    assert texts(fixed, "label-no-node-has") == texts(fixed, "toleration-matches-no-taint") == []


GKE, EKS, AKS = (
    'cloud.google.com/gke-preemptible: "true"',
    "eks.amazonaws.com/capacityType: SPOT",
    "kubernetes.azure.com/scalesetpriority: spot",
)


@pytest.mark.parametrize(
    "pods",
    [
        f"nodeSelector: {{{GKE}, {EKS}, {AKS}}}\n",
        f"nodeSelector: {{{GKE}, node.kubernetes.io/instance-type: p3.2xlarge}}\n",
        "nodeSelector: {karpenter.sh/capacity-type: spot, eks.amazonaws.com/capacityType: SPOT}\n",
        f"nodeSelector: {{{GKE}}}\n" + required("{key: kubernetes.azure.com/mode, operator: In, values: [user]}"),
        PREFERRED
        % "{key: cloud.google.com/gke-spot, operator: Exists}, {key: karpenter.k8s.aws/instance-cpu, operator: Exists}",
    ],
)
def test_labels_of_several_clouds_in_one_place_are_found(pods: str) -> None:
    assert len(texts(job(pods), "labels-of-several-clouds")) == 1


@pytest.mark.parametrize(
    "pods",
    [
        "nodeSelector: {karpenter.sh/capacity-type: spot, kubernetes.azure.com/mode: user}\n",  # node auto-provisioning
        "nodeSelector: {karpenter.sh/capacity-type: spot, eks.amazonaws.com/compute-type: auto}\n",  # EKS Auto Mode
        required(
            "{key: cloud.google.com/gke-spot, operator: Exists}",
            "{key: eks.amazonaws.com/capacityType, operator: In, values: [SPOT]}",
        ),
        required(
            "{key: cloud.google.com/gke-spot, operator: DoesNotExist}, "
            "{key: eks.amazonaws.com/capacityType, operator: NotIn, values: [SPOT]}"
        ),
        f"nodeSelector: {{{GKE}}}\n" + PREFERRED % "{key: kubernetes.azure.com/mode, operator: Exists}",
    ],
)
def test_labels_that_one_maker_sets_and_alternatives_are_no_mixture(pods: str) -> None:
    assert texts(job(pods), "labels-of-several-clouds") == []


def test_a_pool_that_has_labels_of_two_clouds_is_believed() -> None:
    pool = f"version: 1\npools:\n  a: {{capacity: spot, labels: {{{GKE}, {EKS}}}}}\n"
    assert texts(job(f"nodeSelector: {{{GKE}, {EKS}}}\n"), "labels-of-several-clouds", pool) == []


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (
            "nodeSelector: {pool: a}\n" + required("{key: pool, operator: In, values: [b, c]}"),
            "pool=a and for pool In b, c",
        ),
        (
            "nodeSelector: {gpu: 'true'}\n" + required("{key: gpu, operator: DoesNotExist}"),
            "gpu=true and for gpu DoesNotExist",
        ),
        (
            required("{key: n, operator: Gt, values: ['4']}, {key: n, operator: Lt, values: ['5']}"),
            "n Gt 4 and for n Lt 5",
        ),
        (
            required("{key: n, operator: Gt, values: ['4']}, {key: n, operator: DoesNotExist}"),
            "n Gt 4 and for n DoesNotExist",
        ),
        (
            "nodeSelector: {karpenter.sh/capacity-type: spot}\n"
            + required("{key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}"),
            "karpenter.sh/capacity-type=spot and for karpenter.sh/capacity-type NotIn spot",
        ),
        (
            "nodeSelector: {cloud.google.com/gke-spot: 'true', cloud.google.com/gke-provisioning: standard}\n",
            "cloud.google.com/gke-spot=true and for cloud.google.com/gke-provisioning=standard",
        ),
        (
            "nodeSelector: {topology.kubernetes.io/zone: us-east-1a, topology.kubernetes.io/region: us-west-2}\n",
            "topology.kubernetes.io/zone=us-east-1a and for topology.kubernetes.io/region=us-west-2",
        ),
        (
            required("{key: a, operator: In, values: [x]}, {key: a, operator: In, values: [y]}"),
            "a=x and for a=y",
        ),
    ],
)
def test_conditions_that_exclude_each_other_are_named(pods: str, said: str) -> None:
    assert texts(job(pods), "placement-contradiction") == [f"Job train asks for {said} at once, so no node fits"]


@pytest.mark.parametrize(
    "pods",
    [
        "nodeSelector: {pool: a}\n" + required("{key: pool, operator: In, values: [b, a]}"),
        "nodeSelector: {pool: a}\n"
        + required("{key: pool, operator: In, values: [b]}", "{key: gpu, operator: Exists}"),
        "nodeSelector: {pool: '{{workflow.parameters.pool}}'}\n" + required("{key: pool, operator: In, values: [b]}"),
        "nodeSelector: {topology.kubernetes.io/zone: us-east-1a, topology.kubernetes.io/region: us-east-1}\n",
        "nodeSelector: {topology.kubernetes.io/zone: rack-4, topology.kubernetes.io/region: west}\n",
        "nodeSelector: {topology.kubernetes.io/zone: eastus-1, topology.kubernetes.io/region: dc1}\n",
        "nodeSelector: {cloud.google.com/gke-spot: 'true'}\n"
        + required("{key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}"),
        required("{key: n, operator: Gt, values: ['4']}, {key: n, operator: Lt, values: ['9']}"),
    ],
)
def test_conditions_that_one_node_can_meet_contradict_nothing(pods: str) -> None:
    assert texts(job(pods), "placement-contradiction") == []


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            "{key: a, operator: Equals, values: [b]}",
            "the operator is In, NotIn, Exists, DoesNotExist, Gt or Lt, not Equals",
        ),
        ("{key: a, operator: in, values: [b]}", "the operator is In, NotIn, Exists, DoesNotExist, Gt or Lt, not in"),
        ("{key: a, operator: In, values: []}", "the operator In needs values"),
        ("{key: a, operator: NotIn}", "the operator NotIn needs values"),
        ("{key: a, operator: Exists, values: [b]}", "with the operator Exists it has no values"),
        ("{key: a, operator: Lt, values: ['1', '2']}", "the operator Lt needs one value"),
        ("{key: a/b/c, operator: Exists}", "'a/b/c' is not a valid label key"),
        ("{key: a, operator: In, values: [a b]}", "'a b' is not a valid label value"),
    ],
)
def test_what_the_api_server_refuses_in_a_condition_is_found(condition: str, said: str) -> None:
    assert texts(job(required(condition)), "condition-refused") == [f"the API server refuses this condition: {said}"]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (
            REQUIRED.rstrip() + " []\n",
            "the API server refuses required node affinity without a term: add a term, or remove it",
        ),
        (REQUIRED + "      - {}\n", "a term without a condition matches no node, for Job train"),
        (
            (PREFERRED % "{key: a, operator: Exists}").replace("weight: 1", "weight: 0"),
            "the API server refuses this preference: its weight must be 1 to 100, not 0",
        ),
        (
            (PREFERRED % "{key: a, operator: Exists}").replace("- weight: 1\n      preference", "- preference"),
            "the API server refuses this preference: its weight (1 to 100) is missing",
        ),
    ],
)
def test_terms_and_weights_that_cannot_be_are_found(pods: str, said: str) -> None:
    assert texts(job(pods), "condition-refused") == [said]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("beta.kubernetes.io/os: linux", "Write kubernetes.io/os."),
        ("beta.kubernetes.io/instance-type: p3.2xlarge", "Write node.kubernetes.io/instance-type."),
        ("failure-domain.beta.kubernetes.io/zone: us-east-1a", "Write topology.kubernetes.io/zone."),
    ],
)
def test_a_deprecated_label_is_noted_with_that_of_today(old: str, new: str) -> None:
    [finding] = found_in(job(f"nodeSelector: {{{old}}}\n"))
    assert (finding.rule, finding.fix) == ("deprecated-label", new)


@pytest.mark.parametrize(
    ("toleration", "said"),
    [
        (
            "{key: cloud.google.com/gke-spot, operator: Equal, value: 'true', effect: NoExecute}",
            "the effect of the taint is NoSchedule, not NoExecute",
        ),
        (
            "{key: kubernetes.azure.com/scaleSetPriority, operator: Equal, value: spot, effect: NoSchedule}",
            "the key of the taint is kubernetes.azure.com/scalesetpriority, not kubernetes.azure.com/scaleSetPriority",
        ),
        (
            "{key: kubernetes.azure.com/scalesetpriority, value: Spot, effect: NoSchedule}",
            "the value of the taint is spot, not Spot",
        ),
        (
            "{key: kubernetes.azure.com/scalesetpriority, effect: NoSchedule}",
            f"without a value it needs the operator Exists, and the taint is {AKS_TAINT}",
        ),
    ],
)
def test_a_toleration_that_misses_the_taint_of_spot_nodes_is_found(toleration: str, said: str) -> None:
    text = job(f"tolerations:\n- {toleration}\n")

    assert texts(text, "toleration-matches-no-taint") == [f"Job train tolerates no taint of spot nodes by this: {said}"]
    assert texts(fixed_text(text, linted(text), settings()), "toleration-matches-no-taint") == []


@pytest.mark.parametrize(
    "tolerations",
    [
        "- {key: kubernetes.azure.com/scalesetpriority, operator: Exists}\n",
        "- {key: eks.amazonaws.com/capacity-type, value: spot, effect: NoSchedule}\n",  # EKS sets none: people name theirs
        "- {key: nvidia.com/gpu, value: 'true', effect: NoSchedule}\n",
        TOLERATION.partition("\n")[2]
        + "- {key: kubernetes.azure.com/scalesetpriority, value: spot, effect: NoExecute}\n",
    ],
)
def test_a_toleration_of_a_taint_that_people_set_is_left_alone(tolerations: str) -> None:
    assert texts(job(f"tolerations:\n{tolerations}"), "toleration-matches-no-taint") == []


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ('add_toleration(task, key="cloud.google.com/gke-spot", operator="Exists", effect="NoExecute")', 1),
        ('add_toleration(task, "kubernetes.azure.com/scalesetpriority", "Equal", "Spot", "NoSchedule")', 1),
        ('V1Toleration(key="kubernetes.azure.com/scalesetpriority", effect="NoSchedule")', 1),
        ('V1Toleration(key="kubernetes.azure.com/scalesetpriority", value=wanted, effect="NoSchedule")', 0),
        ('add_toleration(task, "kubernetes.azure.com/scalesetpriority", "Equal", "spot", "NoSchedule")', 0),
        ('add_toleration(task, key="nvidia.com/gpu", operator="Exists", effect="NoExecute")', 0),
    ],
)
def test_a_toleration_in_python_that_misses_the_taint_is_found(call: str, count: int) -> None:
    prefix = "kubernetes." if call.startswith("add") else "client."
    assert len(texts(PYTHON % (prefix + call), "toleration-matches-no-taint", python=True)) == count


def test_a_toleration_of_a_taint_of_the_configuration_is_right() -> None:
    pool = "version: 1\npools:\n  a: {capacity: spot, provider: gke, taints: ['cloud.google.com/gke-spot=true:NoExecute']}\n"
    pods = "tolerations:\n- {key: cloud.google.com/gke-spot, operator: Equal, value: 'true', effect: NoExecute}\n"

    assert texts(job(pods), "toleration-matches-no-taint")
    assert texts(job(pods), "toleration-matches-no-taint", pool) == []


NODE_POOL = """\
apiVersion: karpenter.sh/%s
kind: NodePool
metadata: {name: train}
spec:
  template: {spec: {nodeClassRef: %s, requirements: []%s}}
  disruption: {consolidationPolicy: %s, consolidateAfter: 5m%s}
  %s
"""
REFERENCE = "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}"


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        (NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", "", ""), []),
        (NODE_POOL % ("v1", REFERENCE, ", expireAfter: 24h", "Balanced", "", "limits: {cpu: 8}"), []),
        (NODE_POOL % ("v1beta1", REFERENCE, "", "WhenEmpty", "", ""), ["Write karpenter.sh/v1."]),
        (NODE_POOL % ("v1", REFERENCE, "", "WhenUnderutilized", "", ""), ["Write WhenEmptyOrUnderutilized."]),
        (
            NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", ", expireAfter: 24h", ""),
            ["Write it as spec.template.spec.expireAfter."],
        ),
        (
            NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", ", terminationGracePeriod: 2m", ""),
            ["Write it as spec.template.spec.terminationGracePeriod."],
        ),
        (
            NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", "", "terminationGracePeriod: 2m"),
            ["Write spec.template.spec.terminationGracePeriod."],
        ),
        (
            NODE_POOL % ("v1", "{name: a}", "", "WhenEmpty", "", ""),
            ["Write group: karpenter.k8s.aws, kind: EC2NodeClass and the name, and no apiVersion."],
        ),
        (
            NODE_POOL % ("v1", "{apiVersion: karpenter.azure.com/v1beta1, name: a}", "", "WhenEmpty", "", ""),
            ["Write group: karpenter.azure.com, kind: AKSNodeClass and the name, and no apiVersion."],
        ),
        (
            NODE_POOL % ("v1", REFERENCE, ", kubelet: {maxPods: 9}", "WhenEmpty", "", ""),
            ["Write it as spec.kubelet of its node class."],
        ),
        (
            NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", "", "requirements: []"),
            ["Write spec.template.spec.requirements."],
        ),
        (
            NODE_POOL % ("v1", REFERENCE, "", "WhenEmpty", "", "limits: {resources: {cpu: 8}}"),
            ["Write its pairs under spec.limits."],
        ),
        (
            "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec: {ttlSecondsAfterEmpty: 30}\n",
            ["Write it as a NodePool of karpenter.sh/v1."],
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}\nspec: {}\n",
            ["Write it as an EC2NodeClass of karpenter.k8s.aws/v1."],
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec: {}\n",
            ["Write karpenter.k8s.aws/v1."],
        ),
        (
            job().replace("annotations: {", 'annotations: {karpenter.sh/do-not-evict: "true", '),
            ['Write karpenter.sh/do-not-disrupt: "true".'],
        ),
    ],
)
def test_what_karpenter_of_today_does_not_have_is_found(text: str, fixes: list[str]) -> None:
    assert [one.fix for one in found_in(text) if one.rule == "karpenter-past-version"] == fixes


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (job("nodeSelector: {kubernetes.io/hostname: aks-spot-1234}\n"), True),
        (job("nodeSelector: {kubernetes.io/hostname: '{{workflow.parameters.node}}'}\n"), False),
        (job("topologySpreadConstraints: [{topologyKey: kubernetes.io/hostname}]\n"), False),
    ],
)
def test_work_that_selects_one_node_by_its_name_is_found(text: str, is_found: object) -> None:
    assert bool(texts(text, "node-name-set")) is is_found
