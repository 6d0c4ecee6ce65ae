"""Every order of endings, through the journal, admission and models of the controllers; the models against real controllers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scripts.make_budgets_page import RESULTS, decided, every_order, page
from tests.cluster.admission_objects import admitted, owned_by
from tests.cluster.budget_trials.kfp_shape import a_run
from tests.cluster.budget_trials.trial import KINDS, configuration_of
from tests.cluster.budgets.controller_models import ArgoModel, Ended, JobModel, JobSetModel
from tests.cluster.folder_records import FolderHistories
from tests.cluster.recorder.workloads import Behaviour, workload
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

from spotwright import config as configuration
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.config import Config
from spotwright.engine.attempt_history import past_of
from spotwright.kinds.job import REFUSED
from spotwright.records.state_folder import StateFolder

WRITTEN: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
REAL = {(each["kind"], each["interruptions"], each["errors"], each["endings"]): each for each in WRITTEN["results"]}
BUDGETS = [(2, 1), (2, 0), (0, 1), (0, 0)]
Model = JobModel | JobSetModel | ArgoModel


def a_model(kind: str, interruptions: int, errors: int) -> Model:
    """The controller of a workload that admission has placed."""
    config = configuration.parse(configuration_of(interruptions, errors), "team-a")
    if kind == "kfp":
        placed, _ = admitted(a_run("kfp", ["true"], image="busybox:1"), config)
        templates = placed["spec"]["templates"]
        return ArgoModel(
            next(
                each["retryStrategy"] for each in templates if each["name"].endswith("impl") and "retryStrategy" in each
            )
        )
    placed, _ = admitted(
        the_set(config) if kind == "trainjob" else of_team(workload(kind, kind, Behaviour(["true"]))[-1]), config
    )
    if kind == "argo":
        return ArgoModel(placed["spec"]["templates"][0]["retryStrategy"])
    return JobModel(placed["spec"]) if kind == "job" else JobSetModel(placed["spec"])


def of_team(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "metadata": {"namespace": "team-a", **item["metadata"]}}


def the_set(config: Config) -> dict[str, Any]:
    """The JobSet that Trainer makes of a TrainJob and of its runtime, which was placed before."""
    runtime, _ = admitted(of_team(workload("trainjob", "train", Behaviour(["true"]))[0]), config)
    made = {**runtime["spec"]["template"], "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return owned_by(
        of_team({"metadata": {"name": "train"}, **made}), "trainer.kubeflow.org/v1alpha1", "TrainJob", "train"
    )


def ended(kind: str, letter: str) -> Ended:
    """How the pod of an attempt ended, as the controller of its kind sees it."""
    if letter in "im":
        return Ended(None, is_marked=True)
    if letter == "o":  # the shell of the trial lives on without its child; behind KFP's launcher it does not
        return Ended(137 if kind == "kfp" else 99, message="OOMKilled (exit code 99)")
    if letter == "c":
        return Ended(1 if kind == "kfp" else 64 if kind == "argo" else 128)
    code = {"s": 0, "e": 1, "k": 137}[letter]
    return Ended(1 if kind == "kfp" and code else code)


def follow(kind: str, interruptions: int, errors: int, endings: str) -> tuple[int, str, str]:
    """The attempts that run, the text of a refusal, and the message of the controller's model."""
    model, refusal, ran = a_model(kind, interruptions, errors), "", 0
    errors_of = {"k": "e", "o": "e", "c": "e"}
    while not model.said:
        past = "".join(errors_of.get(letter, letter) for letter in endings[:ran])
        refusal = decided(past, interruptions, errors).refusal
        if refusal:
            model.end(Ended(REFUSED))
            break
        model.end(ended(kind, endings[ran]))
        ran += 1
    return ran, refusal, model.said


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_do_what_the_real_controllers_did(kind: str) -> None:
    for (of, interruptions, errors, endings), real in REAL.items():
        if of != kind:
            continue
        ran, refusal, said = follow(kind, interruptions, errors, endings)
        assert ran == len(real["causes"]), (endings, real)
        assert bool(refusal) is bool(real["refusal"]), (endings, real)
        assert said in real["said"] or (said == "PodFailurePolicy" and "FailJobSet" in real["said"]), (endings, real)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_ends_at_the_ending_that_spends_a_budget_and_not_before(kind: str) -> None:
    for interruptions, errors in BUDGETS:
        for order in every_order(interruptions, errors):
            ran, _, said = follow(kind, interruptions, errors, order)
            assert (ran, said not in ("", "Complete", "Succeeded")) == (len(order), True), order
            good = follow(kind, interruptions, errors, order[:-1] + "s")
            assert (good[0], good[2]) in [(len(order), word) for word in ("Complete", "Succeeded")], order


def test_what_real_controllers_ended_is_what_the_decisions_say() -> None:
    for (*_, endings), real in REAL.items():
        assert real["end"] == ("succeeded" if endings.endswith("s") else "failed"), real
        assert len(real["causes"]) == len(endings), real
        assert real["later"] == 0, real


def test_every_order_is_refused_alike_through_the_journal(tmp_path: Path) -> None:
    interruptions, errors = 2, 1
    config = configuration.parse(configuration_of(interruptions, errors), "team-a")
    for number, order in enumerate(every_order(interruptions, errors)):
        cluster = Cluster(tmp_path / f"state-{number}")
        train = job()
        pods: list[dict[str, Any]] = []
        histories = FolderHistories(StateFolder.open(cluster.folder))
        for letter in order:
            assert refusal_of(config, histories, train) == ""
            pods.append(pod_that_ended(letter, len(pods), train))
            cluster.look(train, *pods)
        assert refusal_of(config, histories, train) == decided(order, interruptions, errors).refusal
        cluster.store.close()


def pod_that_ended(letter: str, number: int, owner: dict[str, Any]) -> dict[str, Any]:
    made = pod(
        f"p{number}", owner, made=20.0 * number, node="n1", phase="Failed", exit_code=1 if letter == "e" else 137
    )
    if letter == "i":
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        made["status"]["conditions"].append(condition)
    return made


def refusal_of(config: Any, histories: FolderHistories, root: dict[str, Any]) -> str:
    """The webhook's refusal of the next pod; empty if it may run."""
    policy = json.dumps({"spot": "prefer", **json.loads(budgets_of(config))})
    metadata = {"name": "p", "annotations": {"spotwright.dev/policy": policy}}
    new = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }
    recorded = histories.of(root).tasks
    history = [past_of(attempt) for attempt in recorded["train"].attempts] if recorded else ()
    outcome = admit_pod(new, config, AdmissionContext(history), "busybox:1")
    marks = {
        each["path"].rpartition("~1")[2]: each["value"] for each in outcome.patch if "annotations/" in each["path"]
    }
    return str(marks["why"]) if marks.get("refused") else ""


def budgets_of(config: Any) -> str:
    values = config.policy_default.values
    return json.dumps(
        {"interruptions": {"max": values["interruptions.max"]}, "errors": {"retries": values["errors.retries"]}}
    )


def test_the_page_has_every_order_and_every_budget_that_was_tried() -> None:
    made, tried = page(), json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    orders = made.partition("## Every order")[2].partition("| --- | --- |\n")[2].splitlines()

    assert len(orders) == len(every_order(2, 1))
    for each in tried:
        assert f"### `interruptions.max: {each['interruptions']}`, `errors.retries: {each['errors']}`" in made
