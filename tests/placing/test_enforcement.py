"""Who enforces each value of a policy: the table is whole, and what it says of a placed object is in the object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripts.make_kinds import kinds_of
from tests.kinds.kfp.compiled import one_task
from tests.placing.placed import FILE, SHARED, a_config, at_path, place

from spotwright.kinds.kind import all_kinds
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.model.policy import FIELDS
from spotwright.placing.context import PlaceOptions
from spotwright.placing.enforcement import PODS_ONLY, Enforcer, Fact, Mechanism
from spotwright.views.explanation import explanation_json, explanation_text

POD = "spec: {containers: [{name: main, image: python}]}"
JOB = f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: train}}\nspec:\n  template: {{{POD}}}\n"
OWN_LIMIT = JOB.replace("spec:\n", "spec:\n  backoffLimit: 7\n", 1)
JOBSET = (
    "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s}\nspec:\n  replicatedJobs:\n"
    f"  - {{name: workers, template: {{spec: {{template: {{{POD}}}}}}}}}\n"
)
SEPARATE = "failurePolicy.maxRestarts 4, of the whole set; exit codes 137, 143 and 255 count there too"
PAIR = JOBSET.replace("{template: {spec: {cont", "{parallelism: 2, template: {spec: {cont")
PYTORCH = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n  pytorchReplicaSpecs:\n"
    "    Worker: {template: {spec: {containers: [{name: pytorch, image: python}]}}}\n"
)
XGBOOST = (
    "apiVersion: kubeflow.org/v1\nkind: XGBoostJob\nmetadata: {name: b}\nspec:\n  xgbReplicaSpecs:\n"
    "    Worker: {restartPolicy: OnFailure, template: {spec: {containers: [{name: xgboost, image: python}]}}}\n"
)
WORKFLOW = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n"
    "  - {name: main, container: {image: python}}\n"
)
DAEMON = WORKFLOW.replace("name: main, ", "name: main, daemon: true, ")
OWN_RETRIES = WORKFLOW.replace("name: main, ", "name: main, retryStrategy: {limit: 3}, ")
OWN_DEADLINE = WORKFLOW.replace("name: main, ", "name: main, activeDeadlineSeconds: 60, ")
RAY = "{template: {spec: {containers: [{name: ray, image: ray}]}}}"
RAYJOB = (
    f"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {{name: r}}\nspec:\n  rayClusterSpec:\n    headGroupSpec: {RAY}\n"
)
SPARK = (
    "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: s}\n"
    "spec: {sparkVersion: 4.0.4, driver: {cores: 1}, executor: {cores: 1}}\n"
)
DEPLOYMENT = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, labels: {spotwright.dev/role: worker}}\n"
    f"spec: {{template: {{{POD}}}}}\n"
)
UPSTREAM = sorted(
    path for path in (SHARED / "manifests").glob("*.yaml") if "disktype" not in path.read_text(encoding="utf-8")
)  # but the one that selects a label of nodes that these pools have not
SOME = "{default: {spot: prefer, interruptions: {max: 4}, fall_back_after: 2, errors: {retries: 0}}}"
ERRORS = "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 2}}}"
NEVER = "{default: {spot: never}}"
TIMED = "{default: {spot: require, interruptions: {max: 4}, timeout: 1h, errors: {retries: 0}}}"


def explained(text: str, policy: str = SOME, target: str = "{kubernetes: '1.33'}") -> dict[str, dict[str, str]]:
    """The policy of the only role, as ``explain --json`` has it."""
    settings = a_config(policy, target)
    facts = explanation_json({FILE: _placed(text, policy, target)}, settings)
    [role] = facts["files"][FILE]["roles"]
    return dict(role["policy"])


def test_ray_and_spark_count_the_tries_of_the_whole_job() -> None:
    tasks = "{default: {spot: prefer, interruptions: {max: 4}, timeout: 1h}, tasks: {'*/head': {spot: require}}}"
    job = explained(RAYJOB, tasks)
    roles = {role.policy_path: role for role in _placed(SPARK, SOME).roles}

    assert job["interruptions.max"]["enforcement"] == "backoffLimit 4, each on a new RayCluster; errors count there too"
    assert job["timeout"]["enforcement"] == "activeDeadlineSeconds 4200, for each try, with pending_timeout"
    executor = roles["s/executor"].enforcement
    assert (
        executor["interruptions.max"].text
        == "restartPolicy.onFailureRetries 4, of the application; errors count there too"
    )
    assert executor["fall_back_after"].text == "nothing: a new executor has the fields of the old one"


def test_nothing_counts_the_pods_of_a_deployment() -> None:
    policy = explained(DEPLOYMENT)

    assert policy["interruptions.max"]["enforcement"] == "nothing: a Deployment does not count and never ends"


def _placed(text: str, policy: str = SOME, target: str = "{kubernetes: '1.33'}") -> PlacedFile:
    return place_text(text, FILE, a_config(policy, target), options=PlaceOptions(only_explain=True))


EVERY_WAY = list(dict.fromkeys((PODS_ONLY, *(way for kind in all_kinds().values() for way in kind.mechanisms))))


@pytest.mark.parametrize("mechanism", EVERY_WAY)
def test_every_way_to_retry_has_a_fact_for_every_field_of_the_policy(mechanism: Mechanism) -> None:
    rows = {"spot: require", "spot: prefer", "spot: never", *FIELDS} - {"spot"}
    assert rows <= set(mechanism.facts) <= {*rows, "errors.retries: 0"}


@pytest.mark.parametrize("mechanism", EVERY_WAY)
def test_every_fact_that_names_an_enforcer_names_the_field_or_says_how(mechanism: Mechanism) -> None:
    def whole(fact: Fact | None) -> bool:
        if fact is None:
            return True
        if fact.by is Enforcer.OBJECT:
            return ":" in fact.field and whole(fact.absent)
        return not fact.field and (fact.by is not Enforcer.KIND or bool(fact.note))

    assert [row for row, fact in mechanism.facts.items() if not whole(fact)] == []


def test_every_kind_that_is_placed_has_its_ways_to_retry() -> None:
    placed = [kind for kind in all_kinds().values() if kind.is_admitted]
    assert [kind.name for kind in placed if not kind.mechanisms] == [
        "Experiment"
    ]  # its trials are objects of other kinds


def test_the_ways_of_a_kind_that_has_several_have_headings_for_its_page() -> None:
    pages = {kind.page for kind in all_kinds().values() if kind.page}
    several = {page: {way for kind in kinds_of(page) for way in kind.mechanisms} for page in pages}
    untitled = {page: sum(not way.title for way in ways) for page, ways in several.items() if len(ways) > 1}
    assert {page for page, count in untitled.items() if count > 1} == set()


@pytest.mark.parametrize(
    ("text", "policy", "field", "in_force"),
    [
        (JOB, SOME, "interruptions.max", "backoffLimit 4, exit codes 137, 143 and 255 count there too"),
        (JOB, SOME, "errors.retries", "podFailurePolicy, any other exit code ends it"),
        (JOB, ERRORS, "errors.retries", "backoffLimit 6, interruptions count there too"),
        (JOB, TIMED, "interruptions.max", "activeDeadlineSeconds 21015, a time instead of a count"),
        (JOB, TIMED, "errors.retries", "backoffLimit 4, nodes that restart count there too"),
        (OWN_LIMIT, SOME, "interruptions.max", "backoffLimit 7 (yours), errors count there too"),
        (JOBSET, SOME, "interruptions.max", SEPARATE),
        (PAIR, SOME, "interruptions.max", "failurePolicy.maxRestarts 4, of the whole set; errors count there too"),
        (PYTORCH, TIMED, "timeout", "runPolicy.activeDeadlineSeconds 21015, for all attempts together"),
        (PYTORCH, SOME, "errors.retries", "restartPolicy ExitCode, fails the job at exit codes 1 to 127"),
        (WORKFLOW, SOME, "interruptions.max", "retryStrategy.limit 4, errors count there too, lost nodes do not"),
        (WORKFLOW, SOME, "fall_back_after", "podSpecPatch, counts errors too, no lost nodes"),
        (WORKFLOW, TIMED, "timeout", "activeDeadlineSeconds 3600, for each attempt"),
        (OWN_DEADLINE, TIMED, "timeout", "activeDeadlineSeconds 60 (yours), for each attempt"),
        (OWN_RETRIES, SOME, "interruptions.max", "retryStrategy.limit 3 (yours), errors count there too, lost nodes do not"),
        (JOB, SOME, "spot", "preferred node affinity, best effort"),
        (JOB, TIMED, "spot", "required node affinity"),
        (JOB, TIMED, "grace_period", "terminationGracePeriodSeconds 25"),
    ],
)  # fmt: skip
def test_a_value_that_the_object_keeps_is_shown_with_the_field_and_what_stands_there(
    text: str, policy: str, field: str, in_force: str
) -> None:
    value = explained(text, policy)[field]

    assert value["enforced_by"] == "object"
    assert value["enforcement"] == in_force
    assert value["field"]


@pytest.mark.parametrize(
    ("text", "policy", "field", "reason"),
    [
        (JOB, SOME, "fall_back_after", "nothing"),
        (JOB, SOME, "pending_timeout", "nothing"),
        (JOB, TIMED, "pending_timeout", "nothing without the Spotwright controller"),
        (JOB, SOME, "interruptions.backoff", "nothing: the Job controller waits 10s, doubled with each failed pod, at most 10m"),
        (JOBSET, SOME, "fall_back_after", "nothing without the Spotwright controller"),
        (XGBOOST, SOME, "interruptions.max", "nothing: a failed pod fails the job"),
        (PYTORCH, SOME, "interruptions.max", "nothing: pods that are created again are not counted"),
        (WORKFLOW, SOME, "pending_timeout", "nothing without the Spotwright controller"),
        (DAEMON, TIMED, "timeout", "nothing: only code that runs to its end gets it"),
        (JOB, NEVER, "errors.retries", "nothing: the default of Kubernetes, 6 retries, holds"),
    ],
)  # fmt: skip
def test_a_value_that_nothing_keeps_is_shown_as_such(text: str, policy: str, field: str, reason: str) -> None:
    value = explained(text, policy)[field]

    assert value["enforced_by"] == "nothing"
    assert value["enforcement"] == reason
    assert not value["field"]


def test_work_on_on_demand_needs_no_bound_for_interruptions() -> None:
    placed = _placed(JOB, "{default: {spot: never, interruptions: {max: 3}}}")

    assert placed.roles[0].enforcement["interruptions.max"].text == "not needed: it stays on on-demand"
    assert not any("no effect here" in finding.text for finding in placed.findings)


@pytest.mark.parametrize(("version", "kept"), [("2.16", "object"), ("2.17", "nothing")])
def test_a_stock_kfp_2_17_keeps_no_retries_of_a_pipeline(version: str, kept: str) -> None:
    values = explained(one_task({}), "{default: {spot: prefer, errors: {retries: 2}}}", f"{{kfp: '{version}'}}")

    assert values["errors.retries"]["enforced_by"] == kept
    assert values["interruptions.max"]["enforced_by"] == kept


def test_kueue_keeps_a_preference_by_the_order_of_its_flavors() -> None:
    queued = JOB.replace("{name: train}", "{name: train, labels: {kueue.x-k8s.io/queue-name: team}}")
    value = explained(queued)["spot"]

    assert value["enforced_by"] == "kind"
    assert value["enforcement"] == "Kueue, by the order of its flavors"


def test_what_the_user_set_and_nothing_keeps_is_a_warning_with_its_line() -> None:
    expected = "train: fall_back_after (spotwright.yaml:8) has no effect here; see `spotwright explain`"
    assert f"work.yaml:5: warning: {expected}" in place(JOB, SOME).messages


def test_what_is_built_in_and_nothing_keeps_is_no_finding() -> None:
    assert not place(JOB).reports("no effect here")


def test_fifty_objects_with_one_such_value_are_one_group() -> None:
    text = "---\n".join(JOB.replace("name: train", f"name: train-{number}") for number in range(50))
    lost = [f for f in _placed(text).findings if "no effect here" in f.text]

    assert len(lost) == 50
    assert len({finding.group for finding in lost}) == 1


def test_the_table_of_explain_has_columns_and_roles_that_are_alike_stand_together() -> None:
    text = "---\n".join([JOB, JOB.replace("name: train", "name: other")])
    lines = explanation_text({FILE: _placed(text)}, a_config(SOME)).splitlines()
    header = next(line for line in lines if line.startswith("  policy"))
    row = next(line for line in lines if line.startswith("  fall_back_after"))

    assert lines[2:4] == ["work.yaml:5: train (job)", "work.yaml:11: other (job)"]
    assert [row[header.index(title) :].split()[0] for title in ("value", "from", "enforced by")] == [
        "2",
        "spotwright.yaml:8",
        "nothing",
    ]


@pytest.mark.skipif(not UPSTREAM, reason="the upstream manifests are not beside this project")
@pytest.mark.parametrize("policy", [SOME, TIMED])
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: path.stem)
def test_explain_shows_an_enforcer_for_every_value_of_upstream_manifests(path: Path, policy: str) -> None:
    placed = _placed(path.read_text(encoding="utf-8"), policy)
    facts = explanation_json({FILE: placed}, a_config(policy))["files"][FILE]["roles"]

    assert all(value["enforcement"] for role in facts for value in role["policy"].values())
    assert json.loads(json.dumps(facts)) == facts


def test_a_field_that_is_named_is_in_the_placed_object() -> None:
    outcome = place(JOB, TIMED)

    assert at_path(outcome.value, "spec.activeDeadlineSeconds") == 21015
    assert at_path(outcome.value, "spec.template.spec.terminationGracePeriodSeconds") == 25


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_on_a_narrow_terminal_no_line_of_explain_is_wider_and_no_word_is_broken(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = explanation_text({FILE: _placed(JOB)}, a_config(SOME)).splitlines()
    about_the_role = lines[2 : lines.index("for the cluster autoscaler:")]  # what is to be pasted stays as it is

    assert max(map(len, about_the_role)) <= columns
    assert "interruptions.backoff" in " ".join(lines).split()
    assert "terminationGracePeriodSeconds" in " ".join(lines).split()
