"""Unplacing pipelines, also partly changed ones; a placed pipeline runs like the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.kfp.builders import ir, kubernetes, python_container, task
from tests.kinds.kfp.compiled import LABEL, a_retry, executor, inner, one_task, plan_of, task_of, text_of
from tests.placing.placed import FILE, PREFER, a_config, place

from spotwright import config
from spotwright.errors import PipelineError
from spotwright.kfp.compiled_files import read_compiled
from spotwright.manifests.files import place_text, unplace_text
from spotwright.model.policy import Spot
from spotwright.placing.context import PlaceOptions

POLICY = (
    "{default: {spot: require, timeout: 1h, checkpoint: 'pvc://ckpt', image_pull_secrets: [acr]}, "
    "tasks: {'*': {errors: {retries: 1}}}}"
)
SPEC = {"train": task("train", retryPolicy=a_retry(3, "30s"))}
OWN = {
    "nodeAffinity": [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}],
    "activeDeadlineSeconds": "60",
}
NEVER = "{default: {spot: never}}"
CONFIGS = [POLICY, PREFER, NEVER, "{default: {errors: {retries: 1}}}"]


def placed_anew(text: str, policy: str = PREFER) -> list[Any]:
    """The documents of a placed file as a tool would hold them."""
    return list(plain_yaml.load_all(place_text(text, FILE, a_config(policy)).text))


def unplaced(documents: list[Any]) -> tuple[list[Any], list[str]]:
    done = unplace_text(plain_yaml.dump_all(documents), FILE)
    return list(plain_yaml.load_all(done.text)), [str(finding) for finding in done.findings]


def test_a_changed_value_of_one_executor_is_left_and_named_and_the_rest_goes() -> None:
    documents = placed_anew(text_of(ir({"a": task("a"), "b": task("b")})))
    executor(documents, "exec-a")["podMetadata"]["labels"]["team"] = "x"
    left, messages = unplaced(documents)

    assert executor(left, "exec-a")["podMetadata"]["labels"]["team"] == "x"
    assert executor(left, "exec-b") == {}
    assert any("exec-a: was changed since it was placed, so it stays" in text for text in messages)


def test_what_somebody_added_beside_it_stays() -> None:
    documents = placed_anew(one_task())
    documents[1]["platforms"]["kubernetes"]["pipelineConfig"] = {"resourceTtlOnCompletion": 60}
    left, _ = unplaced(documents)

    assert left[1] == {"platforms": {"kubernetes": {"pipelineConfig": {"resourceTtlOnCompletion": 60}}}}


def test_a_retry_that_was_replaced_and_changed_since_is_left() -> None:
    text = one_task(retryPolicy=a_retry(3))
    placed = place_text(text, FILE, a_config(PREFER), options=PlaceOptions(replace_retries=True)).text
    documents = list(plain_yaml.load_all(placed))
    task_of(documents)["retryPolicy"]["maxRetryCount"] = 99
    left, _ = unplaced(documents)

    assert task_of(left)["retryPolicy"] == {**a_retry(3), "maxRetryCount": 99}


def test_a_comment_that_is_changed_outside_does_not_spoil_the_bytes() -> None:
    text = one_task()
    placed = place_text(f"# one\n{text}", FILE, a_config(PREFER)).text.replace("# one", "# two")

    assert unplace_text(placed, FILE).text == f"# two\n{text}"


def test_the_record_names_the_numbers_of_the_user() -> None:
    placed = place(one_task(retryPolicy=a_retry(3)), replace_retries=True)
    record = json.loads(placed.documents[1]["platforms"]["spotwright"]["config"]["placed"])

    assert ["replace", "3"] in [[kind, old] for kind, _, _, _, old, _ in record["edits"]]


@pytest.mark.parametrize("policy", CONFIGS)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_of_a_placed_file_is_planned_as_before(tmp_path: Path, policy: str, replaced: bool) -> None:
    text, settings = text_of(ir(SPEC), kubernetes(LABEL, **OWN)), a_config(policy)
    placed = place_text(text, FILE, settings, options=PlaceOptions(replace_retries=replaced)).text

    before, after = (plan_of(tmp_path / "p.yaml", each, settings) for each in (text, placed))
    assert before == after


def test_a_run_of_a_placed_file_has_the_retries_of_the_pipeline_around_a_task(tmp_path: Path) -> None:
    text, settings = text_of(inner(retryPolicy=a_retry(2))), a_config(POLICY)
    placed = place_text(text, FILE, settings).text

    assert plan_of(tmp_path / "p.yaml", text, settings) == plan_of(tmp_path / "p.yaml", placed, settings)


def test_the_policy_that_places_is_the_policy_that_runs(tmp_path: Path) -> None:
    text = text_of(ir(SPEC), kubernetes(LABEL, **OWN))
    role = place(text, POLICY).roles["train"]
    planned = plan_of(tmp_path / "p.yaml", text, a_config(POLICY))["train"]

    assert role.policy == planned.policy
    assert role.pools == tuple(pool for rung in planned.ladder.rungs for pool in rung.pools)


def test_where_there_is_no_configuration_that_of_the_file_counts(tmp_path: Path) -> None:
    placed = place_text(one_task(), FILE, a_config(POLICY)).text
    policy = plan_of(tmp_path / "p.yaml", placed, config.built_in())["train"].policy

    assert (policy.spot, policy.retries, policy.timeout) == (Spot.REQUIRE, 1, 3600.0)
    assert policy.sources["spot"] == "the configuration it was placed with"


def test_a_configuration_that_is_there_counts_more_than_that_of_the_file(tmp_path: Path) -> None:
    placed = place_text(one_task(), FILE, a_config(POLICY)).text

    assert plan_of(tmp_path / "p.yaml", placed, a_config(PREFER))["train"].policy.spot is Spot.PREFER


@pytest.mark.parametrize(
    ("record", "message"),
    [("{}", "not a record of spotwright"), ('{"v": 99}', "newer version of spotwright"), ("no", "not a record")],
)
def test_a_record_that_cannot_be_read_stops_a_run(tmp_path: Path, record: str, message: str) -> None:
    documents = placed_anew(one_task())
    documents[1]["platforms"]["spotwright"]["config"]["placed"] = record
    (tmp_path / "p.yaml").write_text(plain_yaml.dump_all(documents))
    with pytest.raises(PipelineError, match=message):
        read_compiled(tmp_path / "p.yaml")


names = st.sampled_from(["a", "b", "zone", "disk"])
expressions = st.fixed_dictionaries({"key": names, "operator": st.just("DoesNotExist")})
entries = st.fixed_dictionaries(
    {"matchExpressions": st.lists(expressions, min_size=1, max_size=2)}, optional={"weight": st.integers(1, 99)}
)
executors = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.lists(entries, max_size=3),
        "tolerations": st.lists(st.fixed_dictionaries({"key": names, "operator": st.just("Exists")}), max_size=2),
        "podMetadata": st.fixed_dictionaries({}, optional={"labels": st.dictionaries(names, names, max_size=2)}),
        "activeDeadlineSeconds": st.just("60"),
        "nodeSelector": st.just({"labels": {}}),
    },
)
retries = st.none() | st.builds(
    a_retry, st.integers(0, 20), st.sampled_from(["0s", "30s"]), st.sampled_from([1.5, 2.0])
)


@given(
    platforms=st.none() | st.just({}) | st.lists(executors, min_size=2, max_size=2),
    messages=st.lists(retries, min_size=2, max_size=2),
    policy=st.sampled_from([*CONFIGS, "{default: {spot: prefer, ladder: [spot, regular]}}"]),
    flow=st.booleans(),
    replaced=st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_pipeline_comes_out_again_and_is_placed_once(
    platforms: Any, messages: list[Any], policy: str, flow: bool, replaced: bool
) -> None:
    tasks = {
        name: task(name, **({} if retry is None else {"retryPolicy": retry}))
        for name, retry in zip("ab", messages, strict=True)
    }
    containers = {f"exec-{name}": python_container() for name in "ab"}
    documents: list[Any] = [ir(tasks, containers=containers)]
    if platforms is not None:
        labels = {f"exec-{name}": given for name, given in zip("ab", platforms, strict=False)} if platforms else {}
        documents.append({"platforms": {"kubernetes": {"deploymentSpec": {"executors": labels}}}})
    plain = json.loads(json.dumps(documents))
    text = plain_yaml.dump_all(plain, default_flow_style=True if flow else None)

    place(text, policy, replace_retries=replaced)  # which tries every way back
