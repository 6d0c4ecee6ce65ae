"""The retries of a TrainJob: a copy of its runtime with a failure policy is added, and removed without a trace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.schemas import load, strange
from tests.placing.placed import FILE, PREFER, SHARED, Outcome, a_config, assert_unplaces, at_path, place

from spotwright.config import Config
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import ManifestError, References, parse

CRDS = SHARED / "crds"
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: mnist, namespace: team}
spec:
  runtimeRef: {name: torch}  # ours
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: torch
  uid: 4b1c
  resourceVersion: "12"
  labels: {trainer.kubeflow.org/framework: torch, app.kubernetes.io/managed-by: Helm}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: torch}]}}}
"""
FAILURES = "failurePolicy: {maxRestarts: 3}"
SETTLED = RUNTIME.replace("      replicatedJobs:", f"      {FAILURES}\n      replicatedJobs:")


def placed(text: str = JOB, *, runtime: str = RUNTIME, trainer: str = "2.3", **more: Any) -> Outcome:
    return place(text, target=f"{{kubernetes: '1.33', trainer: '{trainer}'}}", beside=runtime, **more)


def only(outcome: Outcome) -> Any:
    [added] = outcome.added
    return added


def settings() -> Config:
    return a_config(PREFER, "{kubernetes: '1.33', trainer: '2.3'}")


def test_the_job_refers_to_a_copy_of_its_runtime_in_its_own_namespace() -> None:
    outcome = placed()

    assert outcome.value["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": "mnist-torch"}
    assert only(outcome)["kind"] == "TrainingRuntime"
    assert only(outcome)["metadata"]["name"] == "mnist-torch"
    assert only(outcome)["metadata"]["namespace"] == "team"


def test_the_copy_says_what_the_runtime_says_and_has_a_failure_policy() -> None:
    spec = only(placed())["spec"]
    original = plain_yaml.load(RUNTIME)["spec"]
    job = at_path(spec, "template.spec.replicatedJobs.0.template.spec")

    assert spec["mlPolicy"] == original["mlPolicy"]
    assert at_path(spec, "template.spec.failurePolicy.maxRestarts") == 10
    assert at_path(spec, "template.spec.failurePolicy.rules.0.action") == "RestartJobSet"
    assert job["backoffLimit"] == 0
    assert at_path(job, "podFailurePolicy.rules.0.action") == "FailJob"
    assert at_path(job, "template.spec.containers") == [{"name": "node", "image": "torch"}]


def test_the_copy_takes_no_more_of_the_metadata_than_the_trainers_own_labels() -> None:
    metadata = only(placed())["metadata"]

    assert metadata["labels"] == {"trainer.kubeflow.org/framework": "torch"}
    assert set(metadata) == {"name", "namespace", "labels", "annotations"}


def test_the_copy_stands_in_front_because_a_job_without_its_runtime_is_refused() -> None:
    kinds = [document["kind"] for document in placed().documents]

    assert kinds == ["TrainingRuntime", "TrainJob"]


def test_findings_and_the_report_name_the_copy_of_the_runtime() -> None:
    outcome = placed()

    assert outcome.reports(
        "TrainingRuntime mnist-torch, a copy of ClusterTrainingRuntime torch", "added in front of this TrainJob"
    )
    assert outcome.roles["mnist/node"].after_interruption == (
        "the whole set restarts, counted against maxRestarts 10; an error of the code fails it at once "
        "(by the added TrainingRuntime mnist-torch)"
    )
    assert "spec.runtimeRef" in outcome.roles["mnist/node"].frozen


@pytest.mark.parametrize(
    ("job", "runtime", "actions"),
    [
        (JOB, RUNTIME, ["RestartJobSet", "FailJobSet"]),
        (JOB, RUNTIME.replace("numNodes: 1", "numNodes: 2"), ["RestartJobSet"]),
        (f"{JOB}  trainer: {{numNodes: 2}}\n", RUNTIME, ["RestartJobSet"]),
        (
            f"{JOB}  trainer: {{numNodes: 1}}\n",
            RUNTIME.replace("numNodes: 1", "numNodes: 2"),
            ["RestartJobSet", "FailJobSet"],
        ),
    ],
)
def test_errors_are_kept_apart_where_the_trainer_makes_a_single_pod(job: str, runtime: str, actions: list[str]) -> None:
    rules = at_path(only(placed(job, runtime=runtime)), "spec.template.spec.failurePolicy.rules")

    assert [rule["action"] for rule in rules] == actions


@pytest.mark.parametrize(
    "text",
    [
        JOB,
        f"---\n{JOB}",
        f"# a header\n\n---\n# of the job\n{JOB}",
        f"--- # all of it\n{JOB}---\n",
        f"\ufeff{JOB}",
        JOB.replace("\n", "\r\n"),
        f"---\n{JOB}".replace("\n", "\r\n"),
        JOB.rstrip("\n"),
        f"{JOB}...\n---\n{JOB.replace('mnist', 'other')}",
        f"{JOB}---\n{JOB.replace('mnist', 'other')}",
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a}, spec: {runtimeRef: {name: torch}}}",
        f"kind: ConfigMap\napiVersion: v1\nmetadata: {{name: a}}\n---\n{JOB}---\nkind: Secret\napiVersion: v1\n",
    ],
)
def test_the_copy_goes_again_to_the_last_byte(text: str) -> None:
    outcome = placed(text)

    assert len(outcome.added) == text.count("kind: TrainJob")


def test_a_job_in_a_list_has_its_copy_in_front_of_the_list() -> None:
    item = "\n".join(f"  {line}" for line in JOB.splitlines()).replace("  apiVersion", "- apiVersion", 1)
    outcome = placed(f"apiVersion: v1\nkind: List\nitems:\n{item}\n")

    assert [document["kind"] for document in outcome.documents] == ["TrainingRuntime", "List"]
    assert at_path(outcome.value, "items.0.spec.runtimeRef.name") == "mnist-torch"


def test_a_copy_that_became_an_item_of_a_list_goes_too() -> None:
    documents = placed().documents
    for document in documents:
        document["metadata"]["uid"] = "4711"
    text = plain_yaml.dump({"apiVersion": "v1", "kind": "List", "items": documents})
    back = plain_yaml.load(unplace_text(text, FILE).text)

    assert [item["kind"] for item in back["items"]] == ["TrainJob"]
    assert back["items"][0]["spec"] == plain_yaml.load(JOB)["spec"]


def test_a_copy_that_somebody_changed_stays_and_is_named() -> None:
    changed = placed().text.replace("maxRestarts: 10", "maxRestarts: 7")
    back = unplace_text(changed, FILE)
    runtime, job = plain_yaml.load_all(back.text)

    assert runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 7
    assert "annotations" not in runtime["metadata"]
    assert job == plain_yaml.load(JOB)
    assert any(
        "TrainingRuntime mnist-torch was changed since it was added, so it stays" in str(f) for f in back.findings
    )


def test_a_runtime_that_has_the_name_already_is_refused() -> None:
    other = RUNTIME.replace("ClusterTrainingRuntime", "TrainingRuntime").replace("name: torch", "name: mnist-torch", 1)
    with pytest.raises(
        ManifestError, match=r"work.yaml:5: spec.runtimeRef: .*mnist-torch, which exists already \(beside.yaml"
    ):
        placed(runtime=f"{RUNTIME}---\n{other}")


def test_two_jobs_of_one_name_that_need_different_copies_are_refused() -> None:
    other = RUNTIME.replace("name: torch\n", "name: jax\n").replace("image: torch", "image: jax")
    text = JOB.replace("name: mnist,", "name: a-b,").replace("name: torch}", "name: c}")
    twin = JOB.replace("name: mnist,", "name: a,").replace("name: torch}", "name: b-c}")
    runtimes = [
        other.replace("name: jax\n", f"name: {name}\n").replace("image: jax", f"image: {name}") for name in ("c", "b-c")
    ]
    with pytest.raises(ManifestError, match="a different copy of its runtime"):
        placed(f"{text}---\n{twin}", runtime="---\n".join(runtimes))


def test_jobs_that_need_one_copy_share_it() -> None:
    outcome = placed(f"{JOB}---\n{JOB}")

    assert len(outcome.added) == 1


def test_a_failure_policy_of_the_runtime_stays_and_needs_no_copy() -> None:
    outcome = placed(runtime=SETTLED)

    assert outcome.added == []
    assert outcome.value["spec"]["runtimeRef"] == {"name": "torch"}
    assert (
        "the failure policy of ClusterTrainingRuntime torch decides" in outcome.roles["mnist/node"].after_interruption
    )


def test_a_runtime_whose_pods_restart_in_place_is_named_so() -> None:
    in_place = SETTLED.replace("maxRestarts:", "restartStrategy: InPlaceRestart, maxRestarts:")
    assert in_place != SETTLED
    said = placed(runtime=in_place).roles["mnist/node"].after_interruption
    assert "decides (InPlaceRestart: the pods that are not lost stay" in said


def test_a_failure_policy_of_the_runtime_is_replaced_in_a_copy_when_that_is_asked_for() -> None:
    outcome = placed(runtime=SETTLED, replace_retries=True)

    assert at_path(only(outcome), "spec.template.spec.failurePolicy.maxRestarts") == 10


def test_a_runtime_that_says_all_of_it_needs_no_copy() -> None:
    settled = plain_yaml.dump({**only(placed()), "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}})
    outcome = placed(runtime=settled, replace_retries=True)

    assert outcome.added == []


def test_a_runtime_of_the_same_input_is_placed_itself() -> None:
    outcome = placed(f"{RUNTIME}---\n{JOB}", runtime="")

    assert outcome.added == []
    assert outcome.documents[0]["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 10


def test_a_runtime_of_another_file_of_the_command_is_placed_itself() -> None:
    references = References(parse(RUNTIME, "runtime.yaml"), frozenset({"runtime.yaml"}))
    result = place_text(JOB, FILE, settings(), references)

    assert len(list(plain_yaml.load_all(result.text))) == 1
    assert "torch (runtime.yaml) decides" in result.roles[0].after_interruption


def test_the_grace_period_that_a_job_of_2_2_cannot_set_is_in_the_copy() -> None:
    outcome = placed(trainer="2.2", policy="{default: {spot: require, grace_period: 9s, image_pull_secrets: [acr]}}")
    pod = at_path(only(outcome), "spec.template.spec.replicatedJobs.0.template.spec.template.spec")

    assert pod.keys() == {"containers", "restartPolicy", "terminationGracePeriodSeconds"}
    assert pod["terminationGracePeriodSeconds"] == 9
    assert "terminationGracePeriodSeconds" not in str(outcome.value["spec"])
    assert not outcome.reports("cannot set")


def test_trials_of_an_experiment_share_a_copy_in_its_namespace() -> None:
    spec = "\n".join(f"      {line}" for line in JOB.splitlines() if "metadata" not in line)
    text = (
        "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: search, namespace: team}\nspec:\n"
        f"  trialTemplate:\n    trialSpec:\n{spec}\n"
    )
    outcome = placed(text)

    assert only(outcome)["metadata"]["namespace"] == "team"
    assert at_path(outcome.value, "spec.trialTemplate.trialSpec.spec.runtimeRef.name") == "search-torch"


def test_nothing_is_added_to_a_file_of_json_or_with_a_directive() -> None:
    data = plain_yaml.load(JOB)
    texts = [(plain_yaml.dump(data), "job.json"), (json.dumps(data, indent=2), FILE), (f"%YAML 1.2\n---\n{JOB}", FILE)]
    for text, name in texts:
        result = place_text(text, name, settings(), References(parse(RUNTIME, "beside.yaml")))
        assert any("copy it as a TrainingRuntime" in str(finding) for finding in result.findings)
        assert "TrainingRuntime\n" not in result.text.replace("ClusterTrainingRuntime", "")
        assert unplace_text(result.text, name).text == text


def test_nothing_is_added_where_only_on_demand_is_used() -> None:
    assert placed(policy="{default: {spot: never}}").added == []


@pytest.mark.parametrize("trainer", ["2.2", "2.3"])
@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
def test_the_copy_is_known_to_the_schema_of_its_release(trainer: str) -> None:
    schema = load(CRDS / f"trainer-v{trainer}.0" / "trainingruntime.json.gz", "v1alpha1")

    assert list(strange(schema, only(placed(trainer=trainer)))) == []


def test_placing_again_with_the_placed_file_as_a_reference_changes_nothing() -> None:
    text = placed().text
    references = References([*parse(RUNTIME, "runtime.yaml"), *parse(unplace_text(text, FILE).text, FILE)])

    assert place_text(text, FILE, settings(), references, PlaceOptions()).text == text
    assert_unplaces(JOB, text)


def test_what_is_written_into_the_runtime_is_no_lost_promise_of_the_trainjob() -> None:
    """The runtime keeps the budgets and, where the TrainJob cannot, the grace period."""
    policy = "{default: {spot: require, interruptions: {max: 1}, errors: {retries: 1}}}"
    outcome = place(f"{RUNTIME}---\n{JOB}", policy, target="{kubernetes: '1.33', trainer: '2.2'}")
    job = outcome.roles["mnist/node"]

    job.settle(["interruptions.max", "errors.retries"])
    assert {job.enforcement[name].text for name in ("interruptions.max", "errors.retries")} == {
        "the runtime, as its own policy says"
    }
    assert not outcome.reports("no effect here")
    assert outcome.reports(
        "note: node: a TrainJob of trainer 2.2 cannot set terminationGracePeriodSeconds: that of its"
    )
    assert not outcome.reports("place the runtime instead")
