"""The same file applied again changes nothing, for every kind that is placed, whichever way ``kubectl`` sends it.

``kubectl apply`` sends a custom resource's lists as they are in the file, and server-side apply does so with every list that is
``atomic``; lists of built-in kinds, and of CRDs that say so, are merged by the names of their items.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests import plain_yaml
from tests.cluster.admission_objects import a_config as pools
from tests.cluster.admission_objects import a_job, a_jobset, admitted
from tests.cluster.golden_objects import GOLDEN, POLICY, TARGET, documents
from tests.cluster.json_patches import apply_patch
from tests.placing.placed import a_config

from spotwright import config as configuration
from spotwright.cluster.admission_server import admit
from spotwright.cluster.admit_objects import ADMITTED_ANNOTATION, Outcome, Verdict
from spotwright.cluster.admit_updates import Update
from spotwright.cluster.api_defaults import LAST_APPLIED
from spotwright.placing.merging import strategic

Merge = Callable[[Any, Any], Any]
CLIENT = "kubectl-client-side-apply"
TARGETS = {"trainjob-2.2": "{kubernetes: '1.33', trainer: '2.2'}"}


def by_whole_lists(live: Any, file: Any) -> Any:
    """The result of applying to a live object with replaced lists: a JSON merge patch."""
    if not isinstance(live, dict) or not isinstance(file, dict):
        return file
    return {**live, **{key: by_whole_lists(live.get(key), value) for key, value in file.items()}}


def admitted_kinds() -> list[str]:
    """The golden inputs that are one Kubernetes object each, whose policy the configuration gives."""
    inputs = {path.parent.name: documents(path) for path in sorted(GOLDEN.glob("*/in.yaml"))}
    return [name for name, found in inputs.items() if len(found) == 1 and "apiVersion" in found[0]]


def applied_twice(
    case: str, merge: Merge, file: dict[str, Any], manager: str
) -> tuple[dict[str, Any], dict[str, Any], Outcome]:
    """The object after a first apply, what a second one makes of it, and the outcome of its review."""
    config, beside = a_config(POLICY, TARGETS.get(case, TARGET)), documents(GOLDEN / case / "with.yaml")
    live = apply_patch(file, admit(file, config, beside, refusal_image="r").patch)
    update = merge(live, file)
    return live, update, admit(update, config, beside, update=Update(live, manager), refusal_image="r")


def the_file(case: str) -> dict[str, Any]:
    data: dict[str, Any] = plain_yaml.load((GOLDEN / case / "in.yaml").read_text())
    return data


@pytest.mark.parametrize("merge", [by_whole_lists, strategic])
@pytest.mark.parametrize("case", admitted_kinds())
def test_kubectl_apply_twice_leaves_the_object_that_is_there(case: str, merge: Merge) -> None:
    file = the_file(case)
    metadata = file.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), LAST_APPLIED: json.dumps(file)}
    live, update, outcome = applied_twice(case, merge, file, CLIENT)
    assert apply_patch(update, outcome.patch) == live
    assert (outcome.verdict == Verdict.RESTORED) == (update != live)


def applied_fields(value: Any) -> dict[str, Any]:
    """The fields of a server-side apply as the API server lists them, where every list is one value."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": applied_fields(item) for name, item in value.items()}


@pytest.mark.parametrize("merge", [by_whole_lists, strategic])
@pytest.mark.parametrize("case", admitted_kinds())
def test_server_side_apply_twice_leaves_the_object_that_is_there(case: str, merge: Merge) -> None:
    file = the_file(case)
    manager = {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": applied_fields(file["spec"])}}
    file.setdefault("metadata", {})["managedFields"] = [manager]
    live, update, outcome = applied_twice(case, merge, file, "kubectl")
    assert apply_patch(update, outcome.patch) == live
    assert (outcome.verdict == Verdict.RESTORED) == (update != live)


def with_tekton_s_defaults(run: dict[str, Any]) -> dict[str, Any]:
    """A PipelineRun with defaults as Tekton's webhook fills them in, which is asked after ours."""
    spec = json.loads(json.dumps(run["spec"]))
    spec.setdefault("timeouts", {}).setdefault("pipeline", "1h0m0s")
    for task in (*spec["pipelineSpec"]["tasks"], *spec["pipelineSpec"]["finally"]):
        task["taskSpec"] |= {"metadata": {}, "spec": None}
    return {**run, "spec": spec}


def test_a_pipeline_run_has_its_own_specs_of_tasks_and_tekton_s_defaults_after_a_second_server_side_apply() -> None:
    file, config = the_file("pipelinerun"), a_config(POLICY, TARGET)
    file["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": applied_fields(file["spec"])}}
    ]
    live = with_tekton_s_defaults(apply_patch(file, admit(file, config, refusal_image="r").patch))
    update = by_whole_lists(live, file)
    assert update["spec"]["taskRunSpecs"] == file["spec"]["taskRunSpecs"] != live["spec"]["taskRunSpecs"]
    outcome = admit(update, config, update=Update(live, "kubectl"), refusal_image="r")
    assert with_tekton_s_defaults(apply_patch(update, outcome.patch)) == live

    update["spec"]["taskRunSpecs"][0]["podTemplate"]["tolerations"] = []  # what its user changes stays changed
    assert admit(update, config, update=Update(live, "kubectl"), refusal_image="r").patch == ()


def test_a_task_that_fits_no_pool_under_the_placement_of_all_tasks_is_placed_again_all_the_same() -> None:
    """As on a real API server: the template of all tasks requires the pool without GPUs, and one task asks for GPUs."""
    pools = "{s: {capacity: spot, labels: {p: s}, node: {nvidia.com/gpu: 1}}, d: {capacity: on-demand, labels: {p: d}}}"
    config = configuration.parse(f"version: 1\npools: {pools}\npolicy: {{default: {{spot: prefer}}}}\n", "team-a")
    file = the_file("pipelinerun")
    file["metadata"]["managedFields"] = [{"operation": "Apply", "fieldsV1": {"f:spec": applied_fields(file["spec"])}}]
    live = apply_patch(file, admit(file, config, refusal_image="r").patch)
    update = by_whole_lists(live, file)
    outcome = admit(update, config, update=Update(live, "kubectl"), refusal_image="r")
    assert apply_patch(update, outcome.patch) == live != update


def test_values_that_others_have_changed_since_are_those_of_the_file_again() -> None:
    file = a_job()
    file["spec"]["template"]["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    file["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(file)}
    live, _ = admitted(file)
    scaled = {**live, "spec": {**live["spec"], "parallelism": 3}}
    update = by_whole_lists(scaled, file)
    after = apply_patch(update, admit(update, pools(), update=Update(scaled, CLIENT), refusal_image="r").patch)
    assert after == live


def test_a_changed_file_of_a_template_is_placed_again_and_one_of_a_job_is_the_users() -> None:
    spec = {"schedule": "0 1 * * *", "jobTemplate": {"spec": a_job()["spec"]}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec}
    live, _ = admitted(cron)
    changed = json.loads(json.dumps(cron))
    changed["spec"]["jobTemplate"]["spec"]["template"]["spec"] |= {"priorityClassName": "high"}
    update = by_whole_lists(live, changed)
    after = apply_patch(update, admit(update, pools(), update=Update(live), refusal_image="r").patch)
    assert after["spec"] == admitted(changed)[0]["spec"]
    assert list(after["metadata"]["annotations"]) == [ADMITTED_ANNOTATION]

    job, _ = admitted(a_job())
    update = by_whole_lists(job, a_job())
    update["spec"]["template"]["spec"] |= {"priorityClassName": "high", "tolerations": []}
    assert admit(update, pools(), update=Update(job), refusal_image="r").patch == ()


def test_a_template_that_its_user_edits_in_place_gets_nothing_twice() -> None:
    case = "workflowtemplate"
    file, config = the_file(case), a_config(POLICY, TARGET)
    live = apply_patch(file, admit(file, config, refusal_image="r").patch)
    edited = {**live, "spec": {**live["spec"], "priority": 7}}
    assert admit(edited, config, update=Update(live), refusal_image="r").patch == ()


def test_what_another_webhook_has_added_to_a_list_of_the_file_is_there_again() -> None:
    """JobSet 0.10.1 fills in ``completionMode`` at the creation alone, and refuses an update without it."""
    file = a_jobset()
    job = file["spec"]["replicatedJobs"][0]["template"]["spec"]
    del job["completionMode"]
    file["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(file)}
    live = json.loads(json.dumps(admitted(file)[0]))
    live["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] = "Indexed"
    update = by_whole_lists(live, file)
    after = apply_patch(update, admit(update, pools(), update=Update(live, CLIENT), refusal_image="r").patch)
    assert after == live


def test_what_a_user_removes_with_another_command_stays_away() -> None:
    file = a_job()
    container = file["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"memory": "1Gi"}}
    file["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(file)}
    live, _ = admitted(file)
    edited = json.loads(json.dumps(live))
    edited["spec"]["suspend"] = True
    del edited["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert admit(edited, pools(), update=Update(live, "kubectl-edit"), refusal_image="r").patch == ()


def test_under_a_policy_that_has_changed_since_the_same_file_leaves_the_placement_that_is_there() -> None:
    file = a_job()
    file["spec"]["template"]["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    file["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(file)}
    live, _ = admitted(file)
    update = by_whole_lists(live, file)
    outcome = admit(update, pools("{default: {spot: never}}"), update=Update(live, CLIENT), refusal_image="r")
    assert apply_patch(update, outcome.patch) == live


def test_an_update_of_a_placed_pod_gets_back_its_tolerations() -> None:
    spec = {"containers": [{"name": "main", "image": "i"}], "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    metadata = {"name": "one", "labels": {"spotwright.dev/spot": "require"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    live = apply_patch(pod, admit(pod, pools(), refusal_image="r").patch)
    update = strategic(live, pod)
    assert update != live
    for old in (live, {**live, "metadata": {**live["metadata"], "uid": "1"}}):
        assert (
            apply_patch(update, admit(update, pools(), update=Update(old), refusal_image="r").patch)["spec"]
            == live["spec"]
        )
