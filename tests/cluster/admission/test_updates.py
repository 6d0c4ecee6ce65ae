"""Updates get no additions, and applying the same file again removes nothing."""

from __future__ import annotations

import copy
from typing import Any

from tests.cluster.admission_objects import KEY, a_config, a_job, admitted
from tests.cluster.json_patches import apply_patch
from tests.placing.placed import at_path

from spotwright import config as configuration
from spotwright.cluster.admit_objects import IGNORE_ANNOTATION, Outcome, Verdict
from spotwright.cluster.admit_updates import Update, restore_object

OWN = {"key": "dedicated", "operator": "Exists"}
TOLERATIONS = "spec.template.spec.tolerations"


def a_placed_job() -> dict[str, Any]:
    """A placed Job whose user set a toleration that ``kubectl apply`` cannot merge with ours."""
    job = a_job()
    job["spec"]["template"]["spec"]["tolerations"] = [OWN]
    placed: dict[str, Any] = admitted(job)[0]
    return placed


def applied_again(placed: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """The update that applying the Job's file again makes; ``pod`` are fields that its user has changed."""
    update = copy.deepcopy(placed)
    update["spec"]["template"]["spec"] |= {"tolerations": [OWN], **pod}
    return update


def restored(update: dict[str, Any], placed: dict[str, Any], policy: str = "{default: {spot: require}}") -> Outcome:
    return restore_object(update, Update(placed), a_config(policy))


def test_the_same_file_applied_again_gets_back_what_the_apply_took_away() -> None:
    placed = a_placed_job()
    assert [one["key"] for one in at_path(placed, TOLERATIONS)] == [KEY, "dedicated"]
    outcome = restored(applied_again(placed), placed)
    assert outcome.verdict == Verdict.RESTORED
    assert apply_patch(applied_again(placed), outcome.patch) == placed


def test_a_changed_pod_is_the_user_s() -> None:
    placed = a_placed_job()
    assert restored(applied_again(placed, priorityClassName="high"), placed).patch == ()


def test_an_update_outside_the_pods_keeps_the_user_s_change() -> None:
    placed = a_placed_job()
    update = applied_again(placed)
    update["spec"]["suspend"] = True
    after = apply_patch(update, restored(update, placed).patch)
    assert (after["spec"]["suspend"], len(at_path(after, TOLERATIONS))) == (True, 2)


def test_under_a_policy_that_has_changed_since_an_update_is_the_user_s() -> None:
    placed = a_placed_job()
    assert restored(applied_again(placed), placed, "{default: {spot: never}}").patch == ()


def test_an_update_of_an_object_that_was_never_placed_adds_nothing() -> None:
    before, after = a_job(), a_job(suspend=True)
    assert restored(after, before).patch == ()


def test_an_update_that_takes_nothing_away_is_not_changed() -> None:
    placed = a_placed_job()
    assert restored(copy.deepcopy(placed), placed).patch == ()


def test_a_changed_template_is_not_placed_by_the_built_in_pools_whose_labels_no_cluster_has() -> None:
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}}
    placed, _ = admitted({**cron, "spec": {"schedule": "0 1 * * *", "jobTemplate": {"spec": a_job()["spec"]}}})
    update = {**placed, "spec": {"schedule": "0 1 * * *", "jobTemplate": {"spec": a_job(parallelism=2)["spec"]}}}
    update["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    assert restore_object(update, Update(placed), a_config()).patch  # it is placed by the pools of the cluster
    without_pools = configuration.parse("version: 1\npolicy: {default: {spot: require}}\n", "team-a")
    assert restore_object(update, Update(placed), without_pools).patch == ()


def test_an_object_that_now_asks_to_be_ignored_is_left_alone() -> None:
    placed = a_placed_job()
    update = applied_again(placed)
    update["metadata"]["annotations"][IGNORE_ANNOTATION] = "true"
    assert restored(update, placed).patch == ()
