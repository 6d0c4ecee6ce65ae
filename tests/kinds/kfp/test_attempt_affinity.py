"""Later attempts of a compiled task require on-demand: the expression in the IR that Argo evaluates for each attempt."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests import plain_yaml
from tests.kfp.builders import component, ir, kubernetes, task
from tests.kinds.kfp.compiled import LABEL, a_retry, executor, one_task, text_of
from tests.placing.placed import Outcome, a_config, place

from spotwright.clouds import providers
from spotwright.model.scheduling_terms import Expression

GUARD = "inputs.parameters['retry-max-count'] == nil || inputs.parameters['cached-decision'] != nil ? nil : "
AFTER_TWO = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, errors: {retries: 1}}}"
KFP_216, KFP_217 = "{kfp: '2.16'}", "{kfp: '2.17'}"


def required(placed: Outcome) -> list[list[dict[str, Any]]]:
    """The required alternatives of the executor's node affinity."""
    entries = executor(placed.documents)["nodeAffinity"]
    return [entry["matchExpressions"] for entry in entries if not entry.get("weight")]


def at_retry(number: int, text: str) -> str:
    """The text that Argo makes of ``{{=... retries in [...] ? A : B ...}}`` in the pod's template."""
    found = re.fullmatch(r"{{=(.*?)\(?retries in \[(.*?)\] \? '(.*?)' : '(.*?)'\)?}}", text)
    if found is None:
        return text
    numbers = [one.strip("'") for one in found[2].split(",")]
    return found[3] if str(number) in numbers else found[4]


def pools_at_retry(number: int, placed: Outcome, policy: str) -> set[str]:
    """The pools whose nodes an attempt may use, by the required affinity alone."""
    pools = a_config(policy).pools
    fitting = set()
    for terms in required(placed):
        conditions = [
            Expression(at_retry(number, one["key"]), at_retry(number, one["operator"]), tuple(one["values"]))
            for one in terms
        ]
        fitting |= {
            name for name, pool in pools.items() if all(one.matches(providers.labels(pool)) for one in conditions)
        }
    return fitting


def test_the_expression_is_guarded_where_drivers_are_retried_too() -> None:
    [[condition]] = required(place(one_task(), AFTER_TWO, target=KFP_217))

    assert condition == {
        "key": f"{{{{={GUARD}(retries in ['0','1'] ? 'spotwright.dev/any-node' : 'kubernetes.azure.com/agentpool')}}}}",
        "operator": f"{{{{={GUARD}(retries in ['0','1'] ? 'NotIn' : 'In')}}}}",
        "values": ["regular"],
    }


def test_the_expression_is_plain_where_drivers_are_not_retried() -> None:
    [[condition]] = required(place(one_task(), AFTER_TWO, target=KFP_216))

    assert condition["operator"] == "{{=retries in ['0','1'] ? 'NotIn' : 'In'}}"


def test_a_pipeline_for_no_known_version_is_written_for_the_newest() -> None:
    [[condition]] = required(place(one_task(), AFTER_TWO))

    assert condition["operator"].startswith(f"{{{{={GUARD}")


@pytest.mark.parametrize("target", [KFP_216, KFP_217])
@pytest.mark.parametrize(("fall_back", "most"), [(1, 9), (2, 3), (3, 3), (9, 10), (10, 10)])
def test_attempts_may_use_spot_until_the_fallback_and_on_demand_only_from_then_on(
    target: str, fall_back: int, most: int
) -> None:
    policy = f"{{default: {{spot: prefer, interruptions: {{max: {most}}}, fall_back_after: {fall_back}}}}}"
    placed = place(one_task(), policy, target=target)

    for number in range(most + 1):
        fitting = pools_at_retry(number, placed, policy)
        assert ("spot" in fitting) is (number < fall_back)
        assert "regular" in fitting


def test_nothing_in_it_is_a_character_that_the_backend_escapes() -> None:
    text = json.dumps(executor(place(one_task(), AFTER_TWO, target=KFP_217).documents)["nodeAffinity"])

    assert not set("<>&") & set(text)


def test_spot_is_still_preferred_by_the_earlier_attempts() -> None:
    entries = executor(place(one_task(), AFTER_TWO, target=KFP_217).documents)["nodeAffinity"]

    assert [entry["weight"] for entry in entries if "weight" in entry] == [100]


def test_the_condition_is_joined_to_every_alternative_of_the_user() -> None:
    own = [{"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": [kind]}]} for kind in ("hdd", "tape")]
    [first, second] = required(place(one_task({"nodeAffinity": own}), AFTER_TWO, target=KFP_217))

    assert first[0] == second[0]
    assert first[0]["values"] == ["regular"]
    assert [terms[1]["values"] for terms in (first, second)] == [["hdd"], ["tape"]]


def test_the_report_says_when_on_demand_is_required_and_what_counts() -> None:
    text = place(one_task(), AFTER_TWO, target=KFP_216).roles["train"].after_interruption

    assert "from retry 2 on, it requires on-demand: errors of the code count as well" in text
    assert "after lost nodes it stays on spot" in text


def test_on_a_stock_backend_the_report_says_that_only_errors_of_argo_count() -> None:
    text = place(one_task(), AFTER_TWO, target=KFP_217).roles["train"].after_interruption

    assert "from retry 2 on, it requires on-demand: only endings that Argo calls Error count here" in text


@pytest.mark.parametrize(
    ("policy", "more"),
    [
        ("{default: {spot: require}}", {}),
        ("{default: {spot: never, errors: {retries: 2}}}", {}),
        ("{default: {spot: prefer, interruptions: {max: 0}}}", {}),
        ("{default: {spot: prefer, ladder: [spot]}}", {}),
    ],
)
def test_only_a_preference_with_retries_depends_on_the_attempt(policy: str, more: dict[str, Any]) -> None:
    placed = place(one_task(**more), policy, target=KFP_217)

    assert "retries in" not in placed.text
    assert "from retry" not in placed.roles["train"].after_interruption


def test_under_kueue_no_attempt_gets_an_affinity() -> None:
    settings = {"podMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}}

    assert "retries in" not in place(one_task(settings), AFTER_TWO, target=KFP_217).text


def test_the_last_retry_of_the_users_own_is_on_on_demand_if_no_policy_sets_the_fallback() -> None:
    policy = "{default: {spot: prefer}}"
    placed = place(one_task(retryPolicy=a_retry(3)), policy, target=KFP_217)

    assert [("spot" in pools_at_retry(number, placed, policy)) for number in range(4)] == [True, True, True, False]


def test_a_fallback_that_the_users_own_retries_never_reach_is_reported() -> None:
    policy = "{default: {spot: prefer, fall_back_after: 5}}"
    placed = place(one_task(retryPolicy=a_retry(3)), policy, target=KFP_217)

    assert placed.reports("warning", "train: with 3 retries, the fallback to on-demand after 5 is never reached")
    assert "retries in" not in placed.text


def test_before_2_15_a_warning_reports_that_no_attempt_falls_back() -> None:
    placed = place(one_task(), AFTER_TWO, target="{kfp: '2.14'}")

    assert placed.reports("warning", "KFP before 2.15", "none requires on-demand")
    assert "retries in" not in placed.text


def test_tasks_that_share_an_executor_fall_back_with_the_fewest_retries_of_them() -> None:
    tasks = {
        "one": {**task("train"), "taskInfo": {"name": "one"}, "retryPolicy": a_retry(2)},
        "two": {**task("train"), "taskInfo": {"name": "two"}, "retryPolicy": a_retry(4)},
    }
    policy = "{default: {spot: prefer}, tasks: {'*': {errors: {retries: 0}, interruptions: {max: 4, backoff: 1s}}}}"
    placed = place(text_of(ir(tasks, {"comp-train": component("train")}), kubernetes(LABEL)), policy, target=KFP_217)

    assert [("spot" in pools_at_retry(number, placed, policy)) for number in range(4)] == [True, True, False, False]


def test_the_messages_of_kfp_kubernetes_know_what_is_written() -> None:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as messages

    settings = executor(place(one_task(), AFTER_TWO, target=KFP_217).documents)
    parsed = json_format.MessageToDict(json_format.ParseDict(settings, messages.KubernetesExecutorConfig()))

    assert parsed["nodeAffinity"][0] == settings["nodeAffinity"][0]


def test_a_tool_that_reformats_the_file_keeps_the_expression_whole() -> None:
    placed = place(one_task(), AFTER_TWO, target=KFP_217)
    again = plain_yaml.load(plain_yaml.dump(executor(placed.documents), width=40))

    assert again == executor(placed.documents)
