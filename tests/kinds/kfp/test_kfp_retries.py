"""Retries of compiled pipelines: one count for both budgets, and what the backend does with it."""

from __future__ import annotations

import pytest
from tests.kfp.builders import component, ir, task
from tests.kinds.kfp.compiled import a_retry, inner, one_task, task_of, text_of
from tests.placing.placed import PREFER, place

THIRTY_DAYS = "2592000s"
ADMIN_LINE = (
    "kubectl -n kubeflow set env deployment/ml-pipeline COMPILED_PIPELINE_SPEC_PATCH="
    """'{"templateDefaults":{"retryStrategy":{"limit":"0","retryPolicy":"Always"}}}'"""
)


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


@pytest.mark.parametrize(("count", "factor"), [(10**9, 1), (10**9, 2), (50, 900), (1, 900)])
def test_any_number_of_retries_is_written_at_once(count: int, factor: int) -> None:
    policy = f"{{default: {{spot: prefer, interruptions: {{max: {count}, factor: {factor}}}}}}}"
    retry = task_of(place(one_task(), policy).documents)["retryPolicy"]

    assert retry["maxRetryCount"] == count
    assert retry["backoffFactor"] >= 1


def test_a_task_that_stays_on_on_demand_has_its_error_budget_only() -> None:
    policy = "{default: {spot: never, errors: {retries: 2}}}"

    assert task_of(place(one_task(), policy).documents)["retryPolicy"]["maxRetryCount"] == 2


def test_a_task_without_any_budget_gets_no_retries() -> None:
    assert "retryPolicy" not in task_of(place(one_task(), "{default: {spot: never}}").documents)


def test_retries_of_the_user_stay_and_are_named() -> None:
    placed = place(one_task(retryPolicy=a_retry(3)))

    assert task_of(placed.documents)["retryPolicy"] == a_retry(3)
    assert placed.reports("train: its retryPolicy stays: maxRetryCount 3", "the policy allows 10 and 3")


def test_a_warning_reports_that_the_users_window_ends_all_attempts() -> None:
    assert place(one_task(retryPolicy=a_retry(3))).reports("backoffMaxDuration 1h00m is a window over all attempts")


def test_a_factor_that_breaks_the_controller_is_named() -> None:
    assert place(one_task(retryPolicy=a_retry(3, factor=1.5))).reports("backoffFactor 1.5 is not a whole number")


def test_retries_that_are_the_sum_already_are_not_spoken_of() -> None:
    policy = "{default: {spot: prefer}, tasks: {'*': {errors: {retries: 0}}}}"  # set_retry allows as many interruptions

    assert not place(one_task(retryPolicy=a_retry(20, window=THIRTY_DAYS)), policy).reports("its retryPolicy stays")


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


LOST = "a lost node: the same attempt again, not counted, so interruptions.max has no effect there"
TRIED_AGAIN = "a drain or a delete: tried again, at most 10 times, errors counted too"
FAILS = "a drain or a delete: the task fails with exit code 143, whatever its retries"


@pytest.mark.parametrize(
    ("target", "moved", "source"),
    [
        ("{kfp: '2.16'}", TRIED_AGAIN, "(seen on KFP 2.16.1)"),
        ("{kfp: '2.15'}", TRIED_AGAIN, "(seen on KFP 2.16.1; assumed for 2.15 too)"),
        ("{kfp: '2.17'}", FAILS, "(seen on KFP 2.17.0, stock configuration)"),
        ("{kfp: '3.0'}", FAILS, "(seen on KFP 2.17.0, stock configuration; assumed for 3.0 too)"),
        ("{kfp: '2.17', kfp_retries: always}", TRIED_AGAIN, "(seen on KFP 2.17.0, retryPolicy Always)"),
        (
            "{kubernetes: '1.33'}",
            FAILS,
            "(seen on KFP 2.17.0, stock configuration; target.kfp is not set, so 2.17 is assumed)",
        ),
    ],
)
def test_the_report_says_what_each_backend_does_and_where_it_was_seen(target: str, moved: str, source: str) -> None:
    report = place(one_task(), target=target).roles["train"].after_interruption

    assert report.startswith(f"{LOST}; {moved} {source}")


def test_a_note_reports_that_lost_nodes_are_not_counted_where_a_task_may_be_on_spot() -> None:
    text = "interruptions.max and fall_back_after have no effect there (seen on KFP 2.16.1)"

    assert place(one_task(), target="{kfp: '2.16'}").reports("note", "node is lost", text)
    assert not place(one_task(), "{default: {spot: never}}", target="{kfp: '2.16'}").reports("node is lost")


@pytest.mark.parametrize("target", ["{kfp: '2.17'}", "{kubernetes: '1.33'}"])
@pytest.mark.parametrize("policy", [PREFER, "{default: {spot: never, errors: {retries: 2}}}"])
def test_a_stock_backend_that_retries_nothing_is_warned_of_with_its_admins_line(target: str, policy: str) -> None:
    placed = place(one_task(), policy, target=target)

    assert placed.reports("warning", "retries neither errors of the code nor drained pods", "for 1 task", ADMIN_LINE)


@pytest.mark.parametrize(
    ("target", "policy"),
    [
        ("{kfp: '2.16'}", PREFER),
        ("{kfp: '2.17', kfp_retries: always}", PREFER),
        ("{kfp: '2.17'}", "{default: {spot: never}}"),
        ("{kfp: '2.17'}", "{tasks: {'*': {timeout: 1h}}}"),
    ],
)
def test_a_backend_that_does_what_the_pipeline_says_is_not_warned_of(target: str, policy: str) -> None:
    assert not place(one_task(), policy, target=target).reports("COMPILED_PIPELINE_SPEC_PATCH")


def test_the_warning_counts_the_tasks_of_the_pipeline_once() -> None:
    components = {"comp-one": component("one"), "comp-two": component("two")}
    placed = place(text_of(ir({"one": task("one"), "two": task("two")}, components)), target="{kfp: '2.17'}")

    assert [text for text in placed.messages if "for 2 tasks" in text and ADMIN_LINE in text]
    assert sum("COMPILED_PIPELINE_SPEC_PATCH" in text for text in placed.messages) == 1


def test_a_task_with_no_retries_left_fails_with_its_first_interruption() -> None:
    policy = "{default: {spot: prefer, interruptions: {max: 0}}}"

    assert "it has no retries" in place(one_task(), policy).roles["train"].after_interruption


def test_iterations_of_a_loop_are_retried_as_other_tasks_are() -> None:
    components = {"comp-loop": {"dag": {"tasks": {"train": task("train")}}}, "comp-train": component("train")}
    loop = task("loop", parameterIterator={"itemInput": "item", "items": {"raw": "[1]"}})

    placed = place(text_of(ir({"loop": loop}, components)), target="{kfp: '2.16'}")
    assert TRIED_AGAIN in placed.roles["loop/train"].after_interruption
    assert "never retried" not in placed.roles["loop/train"].after_interruption


def test_the_settings_of_the_admin_are_ready_to_paste() -> None:
    [note] = place(one_task(), PREFER).roles["train"].notes

    assert '"templateDefaults":{"retryStrategy":{"limit":"0","retryPolicy":"Always"}}' in note
    assert '"tolerations":[{"key":"kubernetes.azure.com/scalesetpriority","operator":"Equal","value":"spot"' in note


@pytest.mark.parametrize("target", ["{kfp: '2.16'}", "{kfp: '2.17', kfp_retries: always}"])
def test_an_admin_is_told_of_retries_only_where_they_need_a_setting(target: str) -> None:
    [note] = place(one_task(), PREFER, target=target).roles["train"].notes

    assert "every ending is retried" not in note
    assert ('"retryPolicy":"Always"' in note) is (
        "always" in target
    )  # the variable holds one patch: tolerations join it
