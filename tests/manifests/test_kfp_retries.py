"""Retries of compiled pipelines: one count for both budgets, and what the backend makes of it."""

from __future__ import annotations

import pytest
from tests.manifests.compiled import a_retry, inner, one_task, task_of, text_of
from tests.manifests.placing import PREFER, place
from tests.pipelines.builders import component, ir, task

THIRTY_DAYS = "2592000s"


def test_the_count_is_the_sum_of_both_budgets() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 2}}}"

    assert task_of(place(one_task(), policy).documents)["retryPolicy"]["maxRetryCount"] == 6


def test_the_window_over_all_attempts_is_thirty_days() -> None:
    assert task_of(place(one_task()).documents)["retryPolicy"]["backoffMaxDuration"] == THIRTY_DAYS


def test_the_window_is_longer_where_all_attempts_may_take_longer() -> None:
    window = task_of(place(one_task(), "{default: {spot: prefer, timeout: 96h}}").documents)["retryPolicy"]

    assert int(window["backoffMaxDuration"].removesuffix("s")) >= 11 * 96 * 3600


@pytest.mark.parametrize(("factor", "written"), [(1, 1), (1.5, 1), (2, 2), (3.9, 2)])
def test_the_factor_is_whole_and_no_wait_grows_beyond_an_hour(factor: float, written: int) -> None:
    policy = f"{{default: {{spot: prefer, interruptions: {{factor: {factor}}}}}}}"

    assert task_of(place(one_task(), policy).documents)["retryPolicy"]["backoffFactor"] == written


def test_a_task_that_stays_on_on_demand_has_its_error_budget_only() -> None:
    policy = "{default: {spot: never, errors: {retries: 2}}}"

    assert task_of(place(one_task(), policy).documents)["retryPolicy"]["maxRetryCount"] == 2


def test_a_task_without_any_budget_gets_no_retries() -> None:
    assert "retryPolicy" not in task_of(place(one_task(), "{default: {spot: never}}").documents)


def test_retries_of_the_user_stay_and_are_named() -> None:
    placed = place(one_task(retryPolicy=a_retry(3)))

    assert task_of(placed.documents)["retryPolicy"] == a_retry(3)
    assert placed.says("train: its retryPolicy stays: maxRetryCount 3", "the policy allows 10 and 3")


def test_the_window_of_the_user_is_said_to_end_all_attempts() -> None:
    assert place(one_task(retryPolicy=a_retry(3))).says("backoffMaxDuration 1h00m is a window over all attempts")


def test_a_factor_that_breaks_the_controller_is_named() -> None:
    assert place(one_task(retryPolicy=a_retry(3, factor=1.5))).says("backoffFactor 1.5 is no whole number")


def test_retries_that_are_the_sum_already_are_not_spoken_of() -> None:
    policy = "{default: {spot: prefer}, tasks: {'*': {errors: {retries: 0}}}}"  # set_retry allows as many interruptions

    assert not place(one_task(retryPolicy=a_retry(20, window=THIRTY_DAYS)), policy).says("its retryPolicy stays")


def test_retries_of_the_user_are_replaced_when_asked_for() -> None:
    given = a_retry(3, "30s", 1.5)
    placed = place(one_task(retryPolicy=given), replace_retries=True)

    assert task_of(placed.documents)["retryPolicy"] == {
        "maxRetryCount": 13,
        "backoffDuration": "30s",
        "backoffFactor": 1,
        "backoffMaxDuration": THIRTY_DAYS,
    }


def test_a_task_inside_a_pipeline_has_the_retries_of_that_pipeline_in_its_sum() -> None:
    placed = place(text_of(inner(retryPolicy=a_retry(2))))
    tasks = placed.documents[0]["components"]["comp-inner"]["dag"]["tasks"]

    assert tasks["train"]["retryPolicy"]["maxRetryCount"] == 12
    assert task_of(placed.documents, "inner")["retryPolicy"] == a_retry(2)


@pytest.mark.parametrize(
    ("kfp", "words"),
    [
        ("2.16", "'pod deleted') is not"),
        ("2.17", "a pod that was deleted (its node drained or gone) is started again, 10 times at most"),
        ("3.0", "merge retryPolicy OnError"),
        ("", "set target.kfp"),
    ],
)
def test_what_an_interruption_does_depends_on_the_backend(kfp: str, words: str) -> None:
    target = f"{{kfp: '{kfp}'}}" if kfp else "{kubernetes: '1.33'}"

    assert words in place(one_task(), target=target).roles["train"].after_interruption


def test_a_task_with_no_retries_left_fails_with_its_first_interruption() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 0}}}"

    assert "nothing starts it again" in place(one_task(), policy).roles["train"].after_interruption


def test_iterations_of_a_loop_are_said_not_to_be_tried_again() -> None:
    components = {"comp-loop": {"dag": {"tasks": {"train": task("train")}}}, "comp-train": component("train")}
    loop = task("loop", parameterIterator={"itemInput": "item", "items": {"raw": "[1]"}})

    placed = place(text_of(ir({"loop": loop}, components)))
    assert "Iterations of a loop are not started again" in placed.roles["loop/train"].after_interruption


def test_the_settings_of_the_admin_are_ready_to_paste() -> None:
    [note] = place(one_task(), PREFER).roles["train"].notes

    assert '"templateDefaults":{"retryStrategy":{"limit":"0","retryPolicy":"Always"}}' in note
    assert '"tolerations":[{"key":"kubernetes.azure.com/scalesetpriority","operator":"Equal","value":"spot"' in note
