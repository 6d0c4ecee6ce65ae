"""Drawn pods at two doors: whichever way a pod comes, the same is read, added, pinned and taken out again.

The ways are a file, the review of its object, the review of its pod, a compiled pipeline, a run of its template and the journal.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.cluster.admission_objects import a_job
from tests.cluster.json_patches import apply_patch
from tests.kinds.kfp.compiled import executor, one_task
from tests.linter.linting import found_in
from tests.manifests.refused_specs import REFUSED, in_pipeline
from tests.placing.drawn_pods import PREFERRED, REQUIRED, Pod, configs, specs
from tests.placing.placed import FILE

from spotwright.cluster.admit_objects import admit_object
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.cluster.workloads import template_of_pod
from spotwright.config import Config
from spotwright.errors import InputError, SpotwrightError
from spotwright.kfp.kfp_settings import pod_fields
from spotwright.kube.pod import refusals_of
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.manifests.pod_graph import PodTask, pod_graph
from spotwright.model.attempts import Cause
from spotwright.model.policy import resolve
from spotwright.placing.documents import ManifestError, References, parse
from spotwright.scheduling.ladder import PodRequirements, build
from spotwright.scheduling.next_attempt import PastAttempt

QUICK = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
Canonical = tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]


def canonical(pod: Mapping[str, Any]) -> Canonical:
    """What a pod asks of its nodes, whatever the order: tolerations, selector, alternatives, preferences."""
    nodes = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [a_term(one) for one in (nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or () if not is_later(one)]
    wishes = [[one["weight"], a_term(one["preference"])] for one in nodes.get(PREFERRED) or ()]
    taints = [{key: value for key, value in one.items() if value} for one in pod.get("tolerations") or ()]
    return texts(taints), texts((pod.get("nodeSelector") or {}).items()), texts(terms), texts(wishes)


def a_term(term: Mapping[str, Any]) -> list[str]:
    """The conditions of a term, without those that hold from some attempt on alone."""
    some = [json.dumps(one, sort_keys=True) for one in term.get("matchExpressions") or ()]
    return sorted({one for one in some if "{{=" not in one})


def is_later(term: Mapping[str, Any]) -> bool:
    """Whether all conditions of a term hold from some attempt on alone."""
    some = [json.dumps(one) for one in term.get("matchExpressions") or ()]
    return bool(some) and all("{{=" in one for one in some)


def texts(values: Iterable[Any]) -> frozenset[str]:
    return frozenset(json.dumps(one, sort_keys=True) for one in values)


def job_of(pod: Pod) -> dict[str, Any]:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    return {**job, "spec": {"template": {"spec": {"restartPolicy": "Never", **copy.deepcopy(pod)}}}}


def placed(text: str, config: Config) -> PlacedFile | None:
    """The placed file; None where it is refused."""
    try:
        return place_text(text, FILE, config, References(parse("", "beside.yaml")))
    except SpotwrightError:
        return None


def placed_pod(pod: Pod, config: Config) -> dict[str, Any] | None:
    file = placed(json.dumps(job_of(pod)), config)
    if file is None:
        return None
    [document] = (one for one in plain_yaml.load_all(file.text) if one is not None)
    template: dict[str, Any] = document["spec"]["template"]
    return template


def reviewed(pod: Pod, config: Config) -> dict[str, Any]:
    """The template of a Job that a review has placed."""
    job = {**a_job(), **job_of(pod)}
    outcome = admit_object(job, config, ())
    template: dict[str, Any] = apply_patch(job, outcome.patch)["spec"]["template"]
    return template


@QUICK
@given(config=configs(), pod=specs())
def test_a_file_and_the_review_of_its_object_add_the_same(config: Config, pod: Pod) -> None:
    by_file = placed_pod(pod, config)
    found = reviewed(pod, config)["spec"]
    assert canonical(found) == canonical(pod if by_file is None else by_file["spec"])
    if by_file is not None:
        assert found.get("terminationGracePeriodSeconds") == by_file["spec"].get("terminationGracePeriodSeconds")


@QUICK
@given(config=configs(), pod=specs())
def test_a_compiled_task_becomes_the_pod_that_a_placed_job_has(config: Config, pod: Pod) -> None:
    by_file = placed_pod(pod, config)
    settings = in_pipeline(
        {key: value for key, value in pod.items() if key in ("affinity", "nodeSelector", "tolerations") and value}
    )
    requests = pod["containers"][0]["resources"]["limits"]
    gpus = (
        {"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}}
        if "nvidia.com/gpu" in requests
        else {}
    )
    text = one_task(settings)
    documents = list(plain_yaml.load_all(text))
    container = documents[0]["deploymentSpec"]["executors"]["exec-train"]["container"]
    container["resources"] = {"resourceCpuLimit": "1", **gpus}
    file = placed(plain_yaml.dump_all(documents), config)
    assert (file is None) is (by_file is None)
    assume(file is not None and by_file is not None)
    assert file is not None
    assert by_file is not None
    spec = pod_fields(executor(list(plain_yaml.load_all(file.text)))).spec
    assert canonical(spec) == canonical(by_file["spec"])


def a_pod_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """A pod as the Job's controller makes it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    metadata = {**template.get("metadata", {}), "generateName": "train-", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(dict(template["spec"]))}


@QUICK
@given(config=configs(), pod=specs(), lost=st.integers(0, 3))
def test_the_journal_reads_a_pinned_pod_as_its_placed_template(config: Config, pod: Pod, lost: int) -> None:
    template = placed_pod(pod, config)
    assume(template is not None)
    assert template is not None
    new = a_pod_of(template)
    names = list(config.pools)
    past = [PastAttempt(Cause.INTERRUPTED, (names[0],), names[0])] * lost

    outcome = admit_pod(new, config, AdmissionContext(past, has_begun=True), "refusal:1")
    assume(outcome.verdict == "pod is admitted")
    pinned = apply_patch(new, outcome.patch)
    assert outcome.kept is not None

    found = template_of_pod("train", pinned, (), outcome.kept.pinned).spec
    assert canonical(found)[2] == canonical(template["spec"])[2]
    ladders = [ladder_of(spec, config) for spec in (found, template["spec"])]
    assert ladders[0] == ladders[1]


def ladder_of(spec: Mapping[str, Any], config: Config) -> list[tuple[str, ...]]:
    graph = pod_graph("run", [PodTask("Job", "train", dict(spec))], config.pools)
    task = graph.root.tasks["train"]
    assert config.policy_default is not None
    ladder = build(PodRequirements(task.requests, task.constraints), resolve([config.policy_default]), config.pools)
    return [rung.pools for rung in ladder.rungs]


@QUICK
@given(config=configs(), pod=specs())
def test_a_run_of_the_template_has_the_pools_of_its_placement(config: Config, pod: Pod) -> None:
    file = placed(json.dumps(job_of(pod)), config)
    assume(file is not None)
    assert file is not None
    [role] = file.roles
    assert tuple(name for rung in ladder_of(pod, config) for name in rung) == role.pools


@QUICK
@given(config=configs(), pod=specs())
def test_a_refused_pod_keeps_what_its_author_requires_and_stays_off_gpus(config: Config, pod: Pod) -> None:
    template = placed_pod(pod, config)
    assume(template is not None)
    assert template is not None
    many = [PastAttempt(Cause.FAILED, (), "")] * 20
    new = a_pod_of(template)
    outcome = admit_pod(new, config, AdmissionContext(many), "refusal:1")
    assume(outcome.verdict == "pod is refused")

    found = [json.loads(term) for term in canonical(apply_patch(new, outcome.patch)["spec"])[2]]
    own = [json.loads(term) for term in canonical(pod)[2]]
    authors = {condition for term in own for condition in term}
    left = [[one for one in term if one in authors or json.loads(one)["operator"] != "NotIn"] for term in found]
    assert sorted(filter(None, left)) == sorted(filter(None, own))


odd = st.lists(st.sampled_from(sorted(REFUSED)), min_size=1, max_size=2, unique=True)


@QUICK
@given(names=odd, config=configs())
def test_what_place_refuses_is_a_finding_of_lint_and_a_run_refuses_it_too(names: list[str], config: Config) -> None:
    fields: Pod = {}
    for name in names:
        fields |= copy.deepcopy(REFUSED[name][0])
    pod = {"containers": [{"name": "main", "image": "i"}], **fields}
    text = json.dumps(job_of(pod))
    sentences = [REFUSED[name][1] for name in names]  # which of two comes first is the door's
    assert list(refusals_of(pod))
    for door in (
        lambda: place_text(text, FILE, config, References(parse("", "beside.yaml"))),
        lambda: pod_graph("run", [PodTask("Job", "train", pod)], config.pools),
    ):
        try:
            door()
        except (ManifestError, InputError) as error:
            assert any(one in str(error) for one in sentences)  # noqa: PT017 (two doors raise errors of their own)
        else:
            raise AssertionError("it was taken")
    errors = [one.text for one in found_in(text, config.text) if one.severity == "error"]
    assert any(sentence in one for sentence in sentences for one in errors)
