"""What a release waits for is no batch work: hooks of Helm and Argo CD stay on on-demand and keep their retries."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import PREFER, Outcome, at_path, place

from spotwright import config
from spotwright.linter.rule import AKS_POOLS, ON_SPOT, job
from spotwright.manifests.files import place_text

ERRORS = "{default: {spot: require, errors: {retries: 3}, timeout: 1h, checkpoint: 'pvc://saves'}}"
HELM = "helm.sh/hook: pre-upgrade"
ARGO_CD = "argocd.argoproj.io/hook: PreSync"


def a_hook(annotation: str = HELM, labels: str = "{}") -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  labels: {labels}\n  annotations: {{{annotation}}}\n"
        "spec:\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n"
        "      - {name: main, image: app}\n"
    )


def a_pod_hook(kind: str, api_version: str, spec: str) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: h, annotations: {{{ARGO_CD}}}}}\nspec:\n{spec}"


def values_of(outcome: Outcome) -> str:
    [expression] = at_path(
        outcome.value,
        "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions",
    )
    return str(expression["values"])


@pytest.mark.parametrize("annotation", [HELM, ARGO_CD, 'helm.sh/hook: "pre-install,pre-upgrade"', "helm.sh/hook: test"])
def test_a_hook_stays_on_on_demand_with_the_retries_of_its_author(annotation: str) -> None:
    outcome = place(a_hook(annotation), ERRORS)

    assert outcome.roles["migrate"].pools == ("regular",)
    assert values_of(outcome) == "['regular']"
    assert set(outcome.value["spec"]) == {"backoffLimit", "template"}
    assert outcome.value["spec"]["backoffLimit"] == 0
    assert set(at_path(outcome.value, "spec.template.spec")) == {"affinity", "containers", "restartPolicy"}
    assert at_path(outcome.value, "spec.template.spec.containers") == [{"name": "main", "image": "app"}]
    assert not outcome.reports("no effect here")


def test_a_note_says_why_and_how_it_is_placed_as_other_work() -> None:
    outcome = place(a_hook(), PREFER)

    assert outcome.reports(
        "note: Job migrate: kept on on-demand: it is a hook of Helm (pre-upgrade)", "spotwright.dev/spot"
    )
    assert outcome.roles["migrate"].on_demand_reason.startswith("it is a hook of Helm (pre-upgrade)")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (a_hook(labels="{spotwright.dev/spot: prefer}"), "{default: {spot: never}}"),
        (a_hook(), "{default: {spot: never}, tasks: {migrate: {spot: prefer}}}"),
    ],
)
def test_a_hook_with_a_policy_of_its_own_is_placed_as_that_says(text: str, policy: str) -> None:
    outcome = place(text, policy)

    assert outcome.roles["migrate"].pools == ("spot", "regular")
    assert not outcome.reports("hook")


def test_a_hook_that_argo_cd_skips_is_none() -> None:
    assert place(a_hook("argocd.argoproj.io/hook: Skip")).roles["migrate"].on_spot


def test_nothing_is_said_of_hooks_where_no_policy_places_other_work() -> None:
    outcome = place(a_hook(), "{tasks: {train: {spot: prefer}}}")

    assert not outcome.messages
    assert outcome.text == a_hook()


def test_a_hook_stays_unchanged_where_no_on_demand_pool_fits_it() -> None:
    only_spot = config.parse(
        "version: 1\npools: {spot: {capacity: spot, provider: aks}}\npolicy: {default: {spot: require}}\n"
    )
    placed = place_text(a_hook(), "work.yaml", only_spot)

    assert placed.text == a_hook()
    [finding] = placed.findings
    assert "no on-demand pool fits it: describe one in spotwright.yaml" in finding.text
    assert placed.roles[0].after_interruption == ""


@pytest.mark.parametrize(
    ("kind", "api_version", "spec", "role"),
    [
        ("Pod", "v1", "  containers: [{name: main, image: app}]\n", "h"),
        (
            "Workflow",
            "argoproj.io/v1alpha1",
            "  entrypoint: a\n  templates: [{name: a, container: {image: app}}]\n",
            "h/a",
        ),
    ],
)
def test_other_kinds_are_hooks_too(kind: str, api_version: str, spec: str, role: str) -> None:
    outcome = place(a_pod_hook(kind, api_version, spec), PREFER)

    assert outcome.roles[role].pools == ("regular",)
    assert "stays on on-demand" in outcome.roles[role].after_interruption


def test_lint_asks_for_no_more_retries_of_a_hook_on_spot_but_to_keep_it_off() -> None:
    text = job(ON_SPOT, spec="backoffLimit: 0\n").replace(
        "  name: train\n", f"  name: train\n  annotations: {{{HELM}}}\n"
    )

    assert [one.rule for one in found_in(text)] == ["hook-on-spot"]
    own = text.replace("  annotations:", "  labels: {spotwright.dev/spot: prefer}\n  annotations:", 1)
    assert [one.rule for one in found_in(own)] == ["no-retries"]


def test_lint_finds_nothing_in_a_hook_that_place_has_kept_off_spot() -> None:
    assert found_in(place(a_hook()).text, AKS_POOLS) == []
