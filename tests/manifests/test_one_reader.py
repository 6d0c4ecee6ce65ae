"""Every command reads a pod by the rules of the API server: what that refuses, each of them names with the same sentence.

Nobody guesses what was meant, and what was given is left as it is.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests import plain_yaml
from tests.cluster.admission_objects import a_job, admitted
from tests.kinds.kfp.compiled import one_task
from tests.linter.linting import found_in
from tests.manifests.refused_specs import REFUSED, Spec, asks, in_pipeline, requires, tolerates
from tests.placing.placed import PREFER, refusal

from spotwright import config
from spotwright.cli import cli
from spotwright.cluster.admit_objects import admit_object
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.errors import InputError
from spotwright.kfp.task_settings import read_settings
from spotwright.kube.pod import refusals_of
from spotwright.manifests.pod_graph import PodTask, pod_graph
from spotwright.pools.cluster_inventory import Finding, pod_works

TAKEN: dict[str, Spec] = {
    "null": {"nodeSelector": None, "tolerations": None, "affinity": None},
    "a null in each list": requires({"matchExpressions": None}),
    "null as a label": {"nodeSelector": {"disk": None}},
    "every taint": {"tolerations": [{"operator": "Exists"}]},
    "an empty operator": tolerates(operator="", value="x"),
    "a placeholder": {"nodeSelector": {"pool": "{{inputs.parameters.pool}}"}, **tolerates(value="${VALUE}")},
    "a negative bound": asks(operator="Lt", values=["-1"]),
    "a bound that is no whole number": asks(operator="Gt", values=["1.5"]),
    "a preference without a condition": {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
        }
    },
}
"""Odd forms that it takes."""


def a_spec(fields: Spec) -> Spec:
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}], **copy.deepcopy(fields)}


def text_of(fields: Spec) -> str:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    return plain_yaml.dump_all([{**job, "spec": {"template": {"spec": a_spec(fields)}}}])


def by_place(fields: Spec) -> str:
    return refusal(text_of(fields), PREFER)


def by_lint(fields: Spec) -> str:
    return " | ".join(one.text for one in found_in(text_of(fields)) if one.severity == "error")


def whole(warnings: Iterable[str]) -> str:
    """The warnings of a review, of which a long one is in several parts."""
    return " ".join(one.removeprefix("spotwright: ").strip("… ") for one in warnings)


def by_review(fields: Spec) -> str:
    job = a_job()
    job["spec"]["template"]["spec"].update(copy.deepcopy(fields))
    outcome = admit_object(job, CONFIG, ())
    assert not outcome.patch
    return whole(outcome.warnings)


def by_review_of_the_pod(fields: Spec) -> str:
    job = a_job()
    placed, _ = admitted(job, CONFIG)
    template = placed["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    metadata = {**template["metadata"], "generateName": "train-", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **fields}}
    outcome = admit_pod(pod, CONFIG, AdmissionContext(), "refusal:1")
    assert not outcome.patch
    return whole(outcome.warnings)


def by_run(fields: Spec) -> str:
    with pytest.raises(InputError) as error:
        pod_graph("run", [PodTask("Job", "train", a_spec(fields))], CONFIG.pools)
    return str(error.value)


def by_explain(fields: Spec) -> str:
    with tempfile.TemporaryDirectory() as folder:
        job, configuration = Path(folder, "job.yaml"), Path(folder, "spotwright.yaml")
        job.write_text(text_of(fields))
        configuration.write_text(POOLS)
        result = CliRunner().invoke(cli, ["explain", str(job), "--config", str(configuration)], standalone_mode=False)
    return str(result.exception)


def by_pools_check(fields: Spec) -> str:
    [document] = plain_yaml.load_all(text_of(fields))
    [found] = pod_works(document, "work.yaml", CONFIG)
    assert isinstance(found, Finding), found
    return found.text


POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks}
  regular: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer}}
"""
CONFIG = config.parse(POOLS)

DOORS: list[Callable[[Spec], str]] = [
    by_place,
    by_lint,
    by_explain,
    by_review,
    by_review_of_the_pod,
    by_run,
    by_pools_check,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_api_server_refuses_is_named_with_one_sentence(name: str, door: Callable[[Spec], str]) -> None:
    fields, sentence = REFUSED[name]
    assert sentence in door(fields)


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_what_the_api_server_takes_is_not_refused(name: str) -> None:
    assert list(refusals_of(TAKEN[name])) == []


NOT_IN_PIPELINES = {
    "null as a toleration",  # the backend leaves it out, and affinity without a term
    "no alternatives",
    "required and nothing in it",
    "a mapping of tolerations",  # of another shape there
    "a text as a selector",
}


def run_of_pipeline(settings: dict[str, Any]) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        read_settings({}, settings)
    return str(error.value)


def place_of_pipeline(settings: dict[str, Any]) -> str:
    return refusal(one_task(settings), PREFER)


def lint_of_pipeline(settings: dict[str, Any]) -> str:
    return " | ".join(one.text for one in found_in(one_task(settings)) if one.severity == "error")


@pytest.mark.parametrize("door", [place_of_pipeline, lint_of_pipeline, run_of_pipeline], ids=lambda door: door.__name__)
@pytest.mark.parametrize("name", sorted(REFUSED.keys() - NOT_IN_PIPELINES))
def test_a_task_of_kfp_is_read_as_the_pod_that_the_backend_makes(
    name: str, door: Callable[[dict[str, Any]], str]
) -> None:
    fields, sentence = REFUSED[name]
    assert sentence in door(json.loads(json.dumps(in_pipeline(fields))))


def conditions(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "Exists"} for key in keys]


@pytest.mark.parametrize(
    ("settings", "required", "preferred", "selector"),
    [
        ({"nodeAffinity": [{"matchExpressions": conditions("a"), "weight": 5}]}, 0, 1, {}),
        ({"nodeAffinity": [{"matchExpressions": conditions("a")}, {"matchExpressions": []}]}, 1, 0, {}),
        ({"nodeSelector": {"labels": {"a": "b"}, "nodeSelectorJson": {}}}, 0, 0, {}),
        ({"nodeSelector": {"labels": {"a": "b"}}}, 0, 0, {"a": "b"}),
    ],
)
def test_fields_of_kfp_mean_what_the_backend_makes_of_them(
    settings: dict[str, Any], required: int, preferred: int, selector: dict[str, str]
) -> None:
    found = read_settings({}, settings).constraints
    assert (len(found.required), len(found.preferred), dict(found.selector)) == (required, preferred, selector)


def test_a_weight_of_0_is_a_preference_which_the_api_server_refuses() -> None:
    settings = {"nodeAffinity": [{"matchExpressions": conditions("a"), "weight": 0}]}
    assert "its weight must be 1 to 100, not 0" in place_of_pipeline(settings)


def test_a_task_of_kfp_with_another_shape_is_refused_with_one_line() -> None:
    entries = [{"matchExpressions": conditions("kubernetes.io/os")}, {"matchExpressions": {"key": "a"}}]
    assert "expected a list, found {'key': 'a'}" in refusal(
        one_task({"nodeAffinity": entries}), "{default: {spot: require}}"
    )
    endless = {
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": float("inf")}]
    }
    assert "tolerationSeconds: must be a whole number" in run_of_pipeline(endless)


def test_lint_names_the_boolean_and_not_a_pool_that_is_missing() -> None:
    pools = 'version: 1\npools:\n  a: {capacity: on-demand, labels: {disk: "true"}}\n'
    assert rules(found_in(text_of({"nodeSelector": {"disk": True}}), pools)) == {"wrong-shape"}


def rules(findings: Iterable[Any]) -> set[str]:
    return {one.rule for one in findings}
