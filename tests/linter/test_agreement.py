"""Lint and place agree: what place refuses is an error of lint, and lint has no error about what place wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.placing.placed import a_config

from spotwright import config
from spotwright.config import Config
from spotwright.errors import ConfigError
from spotwright.linter.linting import RULES, lint_text
from spotwright.linter.rule import Severity
from spotwright.linter.settings import settings_of
from spotwright.manifests.files import place_text
from spotwright.manifests.record import ANNOTATION
from spotwright.placing.documents import ManifestError

GOLDEN = sorted((Path(__file__).parents[1] / "kinds" / "golden").glob("*/in.yaml"))
TEXTS = [
    *((path.parent.name, path.read_text()) for path in GOLDEN),
    *(
        (f"{rule.id}-{name}", text)
        for rule in RULES
        if not rule.is_python
        for name, text in (("fails", rule.fails), ("passes", rule.passes))
    ),
]
ABOUT_POOLS = {"selector-matches-no-pool", "taint-not-tolerated", "affinity-without-toleration"}
POLICIES = (
    "{default: {spot: prefer, grace_period: 10s}}",
    "{default: {spot: require, timeout: 1h}}",
    "{default: {spot: never}}",
)

KEYS = {
    "kubernetes.azure.com/scalesetpriority": ("spot", "Spot", "low"),
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "cloud.google.com/gke-provisioning": ("spot", "standard", "preemptible"),
    "cloud.google.com/gke-nodepool": ("a", "b", "none"),
    "cloud.google.com/gke-accelerator": ("nvidia-l4", "nvidia-tesla-t4"),
    "eks.amazonaws.com/capacityType": ("SPOT", "ON_DEMAND", "spot"),
    "karpenter.sh/capacity-type": ("spot", "on-demand"),
    "karpenter.k8s.aws/instance-family": ("g5", "m5"),
    "agentpool": ("a", "b"),
    "kubernetes.io/arch": ("amd64", "arm64"),
    "kubernetes.io/hostname": ("n1",),
    "topology.kubernetes.io/zone": ("us-central1-a", "eastus-1"),
    "team": ("a", "{{inputs.parameters.team}}"),
}
TAINTS = (
    "kubernetes.azure.com/scalesetpriority=spot",
    "cloud.google.com/gke-spot=true",
    "sku=gpu",
    "team=a",
    "spot=true",
)
MACHINES = {
    "aks": "Standard_NC6s_v3",
    "gke": "g2-standard-8",
    "eks": "g5.2xlarge",
    "karpenter": "g5.2xlarge",
}


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    cloud = draw(st.sampled_from([*MACHINES, "generic"]))
    lines = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True)):
        fields = [f"capacity: {draw(st.sampled_from(['spot', 'on-demand']))}", f"provider: {cloud}"]
        size = draw(st.sampled_from(["", "node: {cpu: 4}", "node: {cpu: 8, nvidia.com/gpu: 1}"]))
        machine = draw(st.sampled_from(["", f"machine: {MACHINES[cloud]}"])) if cloud in MACHINES else ""
        taints = draw(st.lists(st.sampled_from(TAINTS), max_size=2, unique=True))
        listed = ", ".join(f'"{taint}:NoSchedule"' for taint in taints)
        fields += [
            one for one in (size, machine, f"taints: [{listed}]" if taints else "", f"labels: {{team: {name}}}") if one
        ]
        lines.append(f"  {name}: {{{', '.join(fields)}}}\n")
    policy = draw(st.sampled_from(POLICIES))
    kinds = {kind for kind in ("spot", "on-demand") if any(f"capacity: {kind}," in line for line in lines)}
    assume(not {POLICIES[1]: {"spot"}, POLICIES[2]: {"on-demand"}}.get(policy, set()) - kinds)
    return config.parse(f"version: 1\npools:\n{''.join(lines)}policy: {policy}\n")


@st.composite
def jobs(draw: st.DrawFn) -> str:
    pairs = draw(st.dictionaries(st.sampled_from(sorted(KEYS)), st.integers(0, 2), max_size=2))
    selector = ", ".join(f'{key}: "{KEYS[key][index % len(KEYS[key])]}"' for key, index in pairs.items())
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=2))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
    values = "" if operator in ("Exists", "DoesNotExist") else ", values: [{}]"
    terms = [
        f"{{matchExpressions: [{{key: {key}, operator: {operator}{values.format(KEYS[key][0])}}}]}}"
        for key in keys
        if key != "team"
    ]
    tolerated = [one.partition("=") for one in draw(st.lists(st.sampled_from(TAINTS), max_size=2, unique=True))]
    tolerations = ", ".join(
        f'{{key: {key}, operator: Equal, value: "{value}", effect: NoSchedule}}' for key, _, value in tolerated
    )
    limits = draw(st.sampled_from(["{}", "{limits: {nvidia.com/gpu: 1}}", "{requests: {cpu: 6}}"]))
    affinity = (
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        f"{{nodeSelectorTerms: [{', '.join(terms)}]}}}}}}\n"
    )
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: drawn}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n"
        f"      nodeSelector: {{{selector}}}\n      tolerations: [{tolerations}]\n{affinity if terms else ''}"
        f"      containers: [{{name: main, image: i, resources: {limits}}}]\n"
    )


def errors(text: str, given: Config) -> set[str]:
    found = lint_text(text, "work.yaml", settings_of(given)).findings
    return {one.rule for one in found if one.severity is Severity.ERROR}


def unshielded(text: str, given: Config) -> list[str]:
    found = lint_text(text, "work.yaml", settings_of(given)).findings
    return [one.text for one in found if one.rule == "churn-not-shielded"]


def agrees(text: str, given: Config) -> None:
    before = errors(text, given)
    try:
        placed = place_text(text, "work.yaml", given).text
    except (ManifestError, ConfigError):
        placed = ""
    assert before or placed, "lint is silent where place refuses"
    assert errors(placed or text, given) <= before
    assert not placed or "place-refuses" not in before
    assert not placed or unshielded(placed, given) == []
    never = given.policy_default is not None and given.policy_default.values["spot"] == "never"
    if ANNOTATION in placed and not never:  # what is kept off spot may ask for it in vain
        assert not errors(placed, given) & ABOUT_POOLS


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("text", [text for _, text in TEXTS], ids=[name for name, _ in TEXTS])
def test_lint_and_place_agree_about_the_objects_of_the_tests(text: str, policy: str) -> None:
    agrees(text, config.parse(a_config(policy).text))


@given(jobs(), configurations())
@settings(max_examples=60, deadline=None)
def test_lint_and_place_agree_about_drawn_jobs_and_pools(text: str, given: Config) -> None:
    agrees(text, given)
