"""A review costs bounded work and memory for every object, and is always answered."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.limits.large_objects import GROWING, an_object
from tests.cluster.reviews import a_review

from spotwright.cluster.admission_server import AdmissionRequest, BadReview, admit, answer, parse_review
from spotwright.cluster.admit_objects import MOST_STEPS, Outcome, Verdict, referenced_objects
from spotwright.cluster.admit_updates import Update
from spotwright.placing.patch import Steps, TooMuchWork

CONFIG = a_config()
MEMORY = 8_000_000  # bytes beside the body of the request: 5 MB, and what tracing itself takes


def answered(body: bytes) -> Outcome:
    def decide(request: AdmissionRequest) -> Outcome:
        update = None if request.old is None else Update(request.old, request.manager)
        return admit(request.data, CONFIG, update=update, refusal_image="none", by="one/spotwright")

    request = parse_review(body)
    referenced_objects(request.data)
    return answer(request, decide)[1]


def seconds(work: Callable[[], object]) -> float:
    """CPU time of this thread, the best of three: others on the machine make it longer, never shorter."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(3))


@pytest.fixture(scope="module")
def unit() -> float:
    """The time in which this machine places a Workflow of a hundred templates."""
    body = a_review(GROWING["templates of a workflow"](100))
    assert answered(body).verdict == Verdict.PLACED
    return seconds(lambda: answered(body))


@pytest.mark.parametrize("what", GROWING)
@pytest.mark.parametrize("count", [150, 1_500, 15_000])
def test_an_object_costs_no_more_than_a_large_workflow(what: str, count: int, unit: float) -> None:
    body = a_review(GROWING[what](count))
    outcome = answered(body)
    assert outcome.verdict != "defect"
    assert outcome.patch or outcome.warnings or outcome.verdict == Verdict.NOTHING_TO_DO
    assert seconds(lambda: answered(body)) < 3 * unit + len(body) * 30e-9


@pytest.mark.parametrize("what", GROWING)
def test_an_object_takes_little_memory(what: str) -> None:
    body = a_review(GROWING[what](15_000))
    answered(body)  # modules are imported
    tracemalloc.start()
    try:
        answered(body)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", ["[]", "{}", "0", "[[]]", '{"a":0}', "1e1", '"x"'])
def test_megabytes_of_small_values_are_not_made(part: str) -> None:
    body = a_review(an_object("argoproj.io/v1alpha1", "Workflow", {"x": "HERE"}))
    body = body.replace(b'"HERE"', f"[{','.join([part] * (3_000_000 // (len(part) + 1)))}]".encode())
    tracemalloc.start()
    try:
        outcome = answered(body)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert outcome.verdict == Verdict.TOO_LARGE


def test_an_object_that_is_left_as_it_is_says_why_and_what_to_do() -> None:
    [warning] = answered(a_review(GROWING["templates of a workflow"](400))).warnings
    assert "too large to be placed while it is created; place its file with spotwright place" in warning
    warnings = answered(a_review(GROWING["one long text"](40_000))).warnings
    assert "Spotwright places objects of at most 1024 KiB" in " ".join(warnings)
    assert "more than 20000 values" in " ".join(answered(a_review(GROWING["empty lists"](30_000))).warnings)


def test_commas_and_braces_inside_of_texts_count_for_nothing() -> None:
    job = a_job()
    job["metadata"]["annotations"] = {"note": '{"a": [1, 2, "\\"]}' * 10_000}
    assert answered(a_review(job)).verdict == Verdict.PLACED


def deep(levels: int, *, lists: bool = False) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value] if lists else {"templateRef": value}
    return value


@pytest.mark.parametrize("levels", [60, 150, 400, 900])
@pytest.mark.parametrize("lists", [False, True])
def test_an_object_of_any_depth_is_answered(levels: int, *, lists: bool) -> None:
    outcome = answered(a_review(an_object("argoproj.io/v1alpha1", "Workflow", {"a": deep(levels, lists=lists)})))
    assert outcome.verdict != "defect"
    assert ("nested deeper" in " ".join(outcome.warnings)) is (levels > 100)


def test_a_text_that_is_json_of_any_depth_is_answered() -> None:
    text = "[" * 50_000
    for key in ("spotwright.dev/policy", "spotwright.dev/admitted"):
        assert answered(a_review(a_job() | {"metadata": {"name": "x", "annotations": {key: text}}})).verdict != "defect"
    workflow = GROWING["tasks of KFP"](3)
    for parameter in workflow["spec"]["arguments"]["parameters"]:
        parameter["value"] = text
    outcome = answered(a_review(workflow))
    assert outcome.verdict == Verdict.UNPLACEABLE


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"request":' * 50_000,
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"null",
        b"7",
        b'{"apiVersion":"admission.k8s.io/v1","request":null}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":7,"operation":"CREATE"}}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"\xff","operation":"CREATE"}}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"7","operation":"CREATE","object":NaN}}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"7","operation":"CREATE","object":{"a":"\\ud800"}}}',
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"7","operation":"CREATE","object":' + b"[" * 100_000,
    ],
)
def test_what_is_no_review_is_told_so(body: bytes) -> None:
    with pytest.raises(BadReview):
        parse_review(body)


@pytest.mark.parametrize(
    "data",
    [
        b"5",
        b'"text"',
        b"[]",
        b"{}",
        b'{"metadata":5}',
        b'{"metadata":{"labels":7}}',
        b'{"metadata":{"labels":{"a":7}}}',
        b'{"metadata":{"annotations":{"a":null}}}',
        b'{"metadata":{"ownerReferences":[5]}}',
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{},"spec":' + b"9" * 6_000 + b"}",
        b'{"metadata":{},"spec":1e999}',
    ],
)
def test_what_is_no_object_is_allowed_unchanged(data: bytes) -> None:
    body = a_review({"HERE": 0}).replace(b'{"HERE": 0}', data)
    outcome = answered(body)
    assert (outcome.verdict, outcome.patch) == (Verdict.MISSHAPEN, ())
    assert outcome.warnings


ODD: list[Any] = [5, "x", [], {}, None, [5], [None], [[]], {"a": 5}, True, 1.5, "{{x}}"]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("what", ["templates of a workflow", "tasks of KFP", "tasks of a DAG"])
def test_a_workflow_with_any_value_anywhere_is_answered(what: str, value: Any) -> None:
    """Its schema in the cluster lets every type through."""
    whole = GROWING[what](2)
    for path in paths(whole["spec"]):
        changed = json.loads(json.dumps(whole))
        at = changed["spec"]
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        assert answered(a_review(changed)).verdict != "defect", path
    whole["spec"] = value
    assert answered(a_review(whole)).verdict != "defect"


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in inside for path in ((*at, key), *paths(item, (*at, key)))]


def test_steps_are_counted_and_not_timed() -> None:
    steps = Steps(MOST_STEPS)
    steps.charge(MOST_STEPS)
    with pytest.raises(TooMuchWork):
        steps.charge(1)


def test_an_update_with_thousands_of_managed_fields_costs_little(unit: float) -> None:
    old = a_job() | {"metadata": {"name": "x", "annotations": {"spotwright.dev/admitted": "{}"}}}
    keys: dict[str, Any] = {f'k:{{"name":"c{number}"}}': {"f:image": {}} for number in range(1_500)}
    fields = [{"manager": "m", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": keys}}}}}]
    new = GROWING["containers"](1_500)
    new["metadata"] |= {"managedFields": fields, "annotations": old["metadata"]["annotations"]}
    body = a_review(new, operation="UPDATE", oldObject=old)
    assert answered(body).verdict != "defect"
    assert seconds(lambda: answered(body)) < 3 * unit + len(body) * 30e-9
