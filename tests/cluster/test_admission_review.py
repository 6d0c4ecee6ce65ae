"""The wire: AdmissionReview in and out, warnings within Kubernetes' limits, and no denial whatever happens."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.admission_objects import a_config, a_job
from tests.cluster.json_patches import apply_patch
from tests.cluster.reviews import a_review

from spotwright.cluster.admission_server import AdmissionRequest, BadReview, answer, parse_review
from spotwright.cluster.admit_objects import MAX_ALL, MAX_EACH, Outcome, admit_object, as_warnings


def place(request: AdmissionRequest) -> Outcome:
    return admit_object(request.data, a_config())


def test_a_created_object_is_answered_with_its_patch() -> None:
    review, _ = answer(parse_review(a_review(a_job())), place)
    response = review["response"]
    patch = json.loads(base64.b64decode(response["patch"]))
    assert (response["uid"], response["allowed"], response["patchType"]) == ("7", True, "JSONPatch")
    assert apply_patch(a_job(), patch)["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("request_of", [{"operation": "DELETE"}, {"operation": "UPDATE"}, {"subResource": "status"}])
def test_what_is_no_whole_object_is_allowed_and_never_changed(request_of: dict[str, Any]) -> None:
    review, _ = answer(parse_review(a_review(a_job(), **request_of)), place)
    assert review["response"] == {"uid": "7", "allowed": True}


def test_a_defect_of_ours_allows_the_object_unchanged_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_request: AdmissionRequest) -> Outcome:
        raise RuntimeError("defect")

    review, _ = answer(parse_review(a_review(a_job())), fail)
    assert review["response"]["allowed"] is True
    assert "patch" not in review["response"]
    assert "Spotwright has failed" in review["response"]["warnings"][0]
    assert "defect" in caplog.text


@pytest.mark.parametrize("path", ["/metadata/annotations/x", "/spec/template/spec/containers/9", "/spec/a/b"])
def test_a_patch_that_an_api_server_would_refuse_is_never_sent(path: str) -> None:
    outcome = Outcome("placed", [{"op": "add", "path": path, "value": "1"}])
    review, _ = answer(parse_review(a_review(a_job())), lambda _: outcome)
    assert (review["response"]["allowed"], "patch" in review["response"]) == (True, False)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"request": {}}', b"\xff"])
def test_a_body_that_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(BadReview):
        parse_review(body)


def test_a_review_of_another_version_is_refused() -> None:
    with pytest.raises(BadReview, match=r"admission\.k8s\.io/v1beta1"):
        parse_review(a_review(a_job()).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"))


def test_the_namespace_of_the_request_counts_where_the_object_has_none() -> None:
    data = a_job()
    del data["metadata"]["namespace"]
    assert parse_review(a_review(data)).data["metadata"]["namespace"] == "team-a"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=900), max_size=30))
def test_warnings_stay_within_the_limits_of_kubernetes(texts: list[str]) -> None:
    warnings = as_warnings(texts)
    assert all(len(text) <= MAX_EACH for text in warnings)
    assert sum(map(len, warnings)) <= MAX_ALL


def test_a_blank_text_is_no_warning() -> None:
    assert as_warnings([" ", "two words"]) == ["spotwright: two words"]


def test_a_long_finding_is_told_in_several_warnings() -> None:
    words = " ".join(f"word{number}" for number in range(60))
    warnings = as_warnings([words])
    assert len(warnings) == 2
    assert " ".join(text.removeprefix("spotwright: ").removeprefix("… ") for text in warnings) == words


def test_warnings_that_do_not_fit_are_counted() -> None:
    warnings = as_warnings([f"{number} {'x' * 230}" for number in range(40)])
    assert "more warnings are cut off here" in warnings[-1]


@pytest.mark.parametrize("field", ["uid", "namespace"])
def test_a_text_that_is_kept_after_the_answer_has_the_length_that_kubernetes_gives_it(field: str) -> None:
    """A pod that reaches the port could fill the memory with namespaces, and the API server with UIDs, of 3 MB each."""
    with pytest.raises(BadReview):
        parse_review(a_review(a_job(), **{field: "x" * 3_000_000}))
    longest = a_review(a_job(), uid="0" * 36, namespace="n" * 63)
    assert parse_review(longest).namespace == "n" * 63
