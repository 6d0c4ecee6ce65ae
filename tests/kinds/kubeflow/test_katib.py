"""Katib: trials are placed by their own kinds, in the Experiment or in the ConfigMap that holds their template."""

from __future__ import annotations

from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import PREFER, REQUIRE, a_config, at_path, place, refusal

from spotwright.manifests import files
from spotwright.manifests.files import unplace_text
from spotwright.manifests.record import AT

JOB = """\
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: training   # the primary container
        image: mnist
        command: ["python3", "mnist.py", "--lr=${trialParameters.learningRate}"]
"""
WORKERS = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: mnist}]}}}
    Worker:
      replicas: ${trialParameters.workers}
      template: {spec: {containers: [{name: pytorch, image: mnist}]}}
"""


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" for line in text.splitlines(keepends=True))


def an_experiment(trial: str = JOB, more: str = "", metadata: str = "{name: grid, namespace: team}") -> str:
    return f"""\
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {metadata}
spec:
  maxTrialCount: 4{more}
  trialTemplate:
    primaryContainerName: training
    trialSpec:
{indented(trial, 6)}"""


def in_a_config_map(text: str = JOB, style: str = "|", key: str = "trial.yaml") -> str:
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: templates, namespace: team}}
data:
  notes: |
    no: yaml: this is
  {key}: {style}
{indented(text, 4)}"""


def using(name: str = "grid", key: str = "trial.yaml", metadata: str = "") -> str:
    return f"""\
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {{name: {name}, namespace: team{metadata}}}
spec:
  trialTemplate:
    configMap: {{configMapName: templates, configMapNamespace: team, templatePath: {key}}}
"""


def trial(value: Any) -> Any:
    return at_path(value, "spec.trialTemplate.trialSpec")


def test_a_trial_is_placed_by_its_own_kind_and_recorded_in_the_experiment() -> None:
    outcome = place(an_experiment(), REQUIRE)

    job = trial(outcome.value)
    assert at_path(job, "spec.podFailurePolicy.rules.0.action") == "Ignore"
    assert at_path(job, "spec.template.spec.tolerations.0.value") == "spot"
    assert list(job["metadata"]) == ["annotations"]
    assert list(job["metadata"]["annotations"]) == ["spotwright.dev/placed"]


def test_the_metadata_that_katib_copies_to_its_suggestion_stay_as_they_are() -> None:
    metadata = "{name: grid, labels: {team: a}, annotations: {note: mine}}"
    outcome = place(an_experiment(metadata=metadata), REQUIRE)

    assert outcome.value["metadata"] == {"name": "grid", "labels": {"team": "a"}, "annotations": {"note": "mine"}}


def test_a_record_that_an_older_version_wrote_into_the_metadata_of_an_experiment_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "annotations_at", lambda _: AT[:-1])
    old = place(an_experiment(), REQUIRE)
    assert "spotwright.dev/placed" in old.value["metadata"]["annotations"]
    monkeypatch.undo()

    assert unplace_text(old.text, "work.yaml").text == an_experiment()
    assert files.place_text(old.text, "work.yaml", a_config(REQUIRE)).text == place(an_experiment(), REQUIRE).text


def test_the_job_of_a_trial_has_the_record_and_is_undone_as_a_job() -> None:
    job = {"metadata": {"name": "grid-x7"}, **trial(place(an_experiment(), REQUIRE).value)}
    job["metadata"] |= {"name": "grid-x7"}

    undone = unplace_text(plain_yaml.dump(job), "job.yaml")

    assert plain_yaml.load(undone.text) == {**plain_yaml.load(JOB), "metadata": {"name": "grid-x7"}}


def test_labels_that_a_user_gave_the_trial_since_stay_when_its_record_goes() -> None:
    placed = place(an_experiment(), REQUIRE).value
    trial(placed)["metadata"]["labels"] = {"team": "a"}

    undone = plain_yaml.load(unplace_text(plain_yaml.dump(placed), "work.yaml").text)

    assert trial(undone) == {**plain_yaml.load(JOB), "metadata": {"labels": {"team": "a"}}}


def test_a_trial_is_known_by_the_name_of_its_experiment() -> None:
    policy = "{default: {spot: never}, tasks: {grid: {spot: require}}}"

    assert place(an_experiment(), policy).roles["grid"].pools == ("spot",)


def test_the_roles_of_a_trial_are_known_by_experiment_and_role() -> None:
    assert set(place(an_experiment(WORKERS)).roles) == {"grid/master", "grid/worker"}


def test_what_the_experiment_says_of_itself_counts_for_its_trials() -> None:
    metadata = "{name: grid, labels: {spotwright.dev/spot: require}}"

    assert place(an_experiment(metadata=metadata)).roles["grid"].pools == ("spot",)


def test_placeholders_stay_as_they_are_also_in_integer_fields() -> None:
    outcome = place(an_experiment(WORKERS))

    assert at_path(trial(outcome.value), "spec.pytorchReplicaSpecs.Worker.replicas") == "${trialParameters.workers}"
    assert "replicas: ${trialParameters.workers}\n" in outcome.text


def test_each_trial_has_its_own_place_for_checkpoints() -> None:
    outcome = place(an_experiment(), "{default: {spot: prefer, checkpoint: 'gs://b'}}")
    env = {item["name"]: item for item in at_path(trial(outcome.value), "spec.template.spec.containers.0.env")}

    assert env["SPOTWRIGHT_CHECKPOINT"]["value"] == "gs://b/$(SPOTWRIGHT_RUN)/grid"
    assert "job-name" in str(env["SPOTWRIGHT_RUN"]), "which is the trial's name"


def test_a_note_reports_that_katib_never_retries_trials_and_what_failures_count_for() -> None:
    limited, unlimited = place(an_experiment(more="\n  maxFailedTrialCount: 3")), place(an_experiment())

    assert limited.reports("work.yaml:6: note", "never retries a trial", "maxFailedTrialCount 3")
    assert unlimited.reports("never retries a trial", "maxFailedTrialCount is not set")


def test_a_note_reports_that_suggestions_are_not_placed() -> None:
    assert place(an_experiment()).reports("suggestion and early stopping", "the Experiment cannot place them")


COLLECTORS = {
    "": "Checkpoint.print of spotwright.checkpoint does, or",
    "{kind: StdOut}": "Checkpoint.print of spotwright.checkpoint does, or",
    "{kind: File}": "Checkpoint.print of spotwright.checkpoint does with print_to='/work/m.log', or",
    "{kind: TensorFlowEvent}": "put the earlier files back",
}


def with_collector(collector: str) -> str:
    source = "    source: {fileSystemPath: {path: /work/m.log, kind: File}}\n"
    given = f"\n  metricsCollectorSpec:\n    collector: {collector}\n{source}" if collector else ""
    return an_experiment(more=given.rstrip("\n"))


@pytest.mark.parametrize("collector", COLLECTORS)
@pytest.mark.parametrize(("checkpoint", "level"), [("pvc://ckpt", "warning"), ("", "note")])
def test_what_katib_reads_of_a_trial_that_resumes_is_said_with_the_remedy(
    collector: str, checkpoint: str, level: str
) -> None:
    policy = f"{{default: {{spot: prefer{f', checkpoint: {chr(39)}{checkpoint}{chr(39)}' if checkpoint else ''}}}}}"
    outcome = place(with_collector(collector), policy)

    assert outcome.reports(
        f": {level}: ", "the last attempt of a trial", COLLECTORS[collector], "the best trial may be wrong"
    )
    assert outcome.reports(f": {level}: ", "passes no SIGTERM on", "SPOTWRIGHT_NOTICE_URL", "docs/kinds/katib.md")


@pytest.mark.parametrize(
    ("collector", "policy"), [("{kind: Push}", PREFER), ("{kind: StdOut}", "{default: {spot: never}}")]
)
def test_nothing_is_said_of_metrics_that_are_sent_at_once_or_of_trials_that_nobody_interrupts(
    collector: str, policy: str
) -> None:
    outcome = place(with_collector(collector), policy)

    assert not outcome.reports("last attempt")
    assert not outcome.reports("SIGTERM")


def test_a_trial_of_a_kind_that_is_not_placed_passes_through() -> None:
    text = an_experiment("apiVersion: example.com/v1\nkind: Trial\nspec: {}\n")
    outcome = place(text)

    assert outcome.text == text
    assert outcome.reports("trials are Trial (example.com/v1)")


def test_a_trial_with_a_name_of_its_own_is_named() -> None:
    named = JOB.replace("kind: Job\n", "kind: Job\nmetadata: {name: mine}\n")

    assert place(an_experiment(named)).reports("Katib refuses a trialSpec with a name")


def test_a_field_at_the_wrong_level_of_a_trial_is_refused_as_in_the_tutorial() -> None:
    wrong = "apiVersion: batch/v1\nkind: Job\nspec:\n  containers: []\n  nodeSelector: {a: b}\n"

    assert refusal(an_experiment(wrong)).endswith("under spec.trialTemplate.trialSpec.spec.template.spec.containers")


@pytest.mark.parametrize("more", ["\n  nodeSelector: {a: b}", "\n  tolerations: []"])
def test_a_field_of_the_pod_in_the_experiment_is_refused(more: str) -> None:
    assert "under spec.trialTemplate.trialSpec.spec.template.spec." in refusal(an_experiment(more=more))


def test_an_experiment_without_a_trial_is_refused() -> None:
    text = "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: a}\nspec: {trialTemplate: {}}\n"

    assert "expected a trialSpec, or a configMap" in refusal(text)


def test_another_version_is_named_and_left_alone() -> None:
    text = an_experiment().replace("v1beta1", "v1alpha3")
    outcome = place(text)

    assert outcome.text == text
    assert outcome.reports("write kubeflow.org/v1beta1")


def placed_template(outcome: Any, key: str = "trial.yaml") -> Any:
    return plain_yaml.load(outcome.documents[0]["data"][key])


@pytest.mark.parametrize("style", ["|", "|-", "|+", ">+"])
def test_a_template_in_a_config_map_is_placed_where_it_stands(style: str) -> None:
    text = in_a_config_map(JOB if style != ">+" else JOB.replace("\n", "\n\n"), style) + "---\n" + using()
    outcome = place(text, REQUIRE)

    assert at_path(placed_template(outcome), "spec.podFailurePolicy.rules.0.action") == "Ignore"
    assert "spotwright.dev/placed" in outcome.documents[0]["metadata"]["annotations"]
    assert "annotations" not in outcome.documents[1]["metadata"]
    assert outcome.roles["grid"].pools == ("spot",)


def test_what_is_not_new_in_a_template_keeps_its_bytes() -> None:
    outcome = place(in_a_config_map() + "---\n" + using())

    assert all(line in outcome.text.splitlines() for line in in_a_config_map().splitlines() if "metadata" not in line)


def test_findings_name_the_line_of_the_file_that_the_template_stands_in() -> None:
    wrong = JOB.replace("spec:\n  template", "spec:\n  tolerations: []\n  template", 1)
    text = in_a_config_map(wrong) + "---\n" + using()
    line = text.splitlines().index("      tolerations: []") + 1

    assert refusal(text).startswith(f"work.yaml:{line}: spec.tolerations: ")


def test_a_config_map_that_no_experiment_takes_a_template_from_is_left_alone() -> None:
    text = in_a_config_map()

    assert place(text).text == text


def test_the_experiment_may_be_beside_the_input() -> None:
    outcome = place(in_a_config_map(), beside=using())

    assert at_path(placed_template(outcome), "spec.template.spec.tolerations.0.value") == "spot"


def test_a_template_that_is_not_here_leaves_the_experiment_alone_and_says_what_to_give() -> None:
    outcome = place(using())

    assert outcome.text == using()
    assert outcome.reports("work.yaml:6: warning", "ConfigMap templates, which was not given", "pass its file too")


def test_a_key_that_the_config_map_does_not_have_is_refused() -> None:
    message = refusal(using(key="missing.yaml"), beside=in_a_config_map())

    assert message.startswith("work.yaml:6: spec.trialTemplate.configMap.templatePath: beside.yaml:")
    assert message.endswith("ConfigMap templates has no missing.yaml")


def test_what_the_experiment_says_of_itself_counts_for_a_template_as_well() -> None:
    text = in_a_config_map() + "---\n" + using(metadata=", labels: {spotwright.dev/spot: require}")

    assert place(text, PREFER).roles["grid"].pools == ("spot",)


def test_a_template_that_two_experiments_share_is_placed_once_with_a_warning() -> None:
    outcome = place(in_a_config_map() + "---\n" + using("first") + "---\n" + using("second"))

    assert set(outcome.roles) == {"first"}
    assert outcome.reports("placed by the policy of first", "second use it too")


def test_a_template_that_is_no_yaml_is_refused_with_the_line_in_the_file() -> None:
    text = (
        in_a_config_map(JOB.replace("      restartPolicy: Never\n", "      restartPolicy: [Never\n"))
        + "---\n"
        + using()
    )

    assert "not valid YAML" in refusal(text)
    assert int(refusal(text).split(":")[1]) > 8
