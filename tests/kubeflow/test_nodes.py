"""The names of nodes are found again in answers that leave them out."""

from __future__ import annotations

import base64
import gzip
import json
import random

import pytest
from tests.kubeflow.flows import BEGIN, Flow, Try

from spotwright.kube.object_fields import seconds
from spotwright.kubeflow.task_status import nodes_of_details, nodes_of_workflow


def a_flow(*, retried: bool) -> Flow:
    flow = Flow("digits-8mc6p", retried=retried)
    flow.task("train", Try("Failed", "main: Error (exit code 1)"), Try())
    flow.task("env", Try(), place=flow.pipeline("inner"))
    for place in flow.loop("for-loop-2", 11):
        flow.task("env", Try(), Try(), place=place)
    flow.left_out("condition-1")
    return flow


@pytest.mark.parametrize("retried", [True, False])
def test_every_name_that_is_found_is_right_and_none_of_a_task_is_missing(retried: bool) -> None:
    flow = a_flow(retried=retried)
    rows = flow.details()
    random.Random(7).shuffle(rows)  # noqa: S311 - any order
    found = {node.name: node for node in nodes_of_details(rows)}
    real = {node.name: node for node in nodes_of_workflow(flow.workflow())}
    assert found.keys() <= real.keys()
    assert {real[name].kind for name in real.keys() - found.keys()} <= {"Pod"}
    assert all(
        (node.phase, node.started_at) == (real[name].phase, real[name].started_at) for name, node in found.items()
    )


def test_nodes_that_the_controller_compressed_are_read() -> None:
    workflow = a_flow(retried=True).workflow()
    plain = nodes_of_workflow(workflow)
    packed = gzip.compress(json.dumps(workflow["status"].pop("nodes")).encode())
    workflow["status"]["compressedNodes"] = base64.b64encode(packed).decode()
    assert nodes_of_workflow(workflow) == plain


def test_answers_without_nodes_have_none() -> None:
    assert nodes_of_workflow({}) == nodes_of_details([]) == []
    assert nodes_of_details([{"display_name": "digits", "state": "RUNNING"}]) == []


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", None, "", "soon"])
def test_a_moment_to_come_is_none(text: str | None) -> None:
    assert seconds(text) is None


def test_a_moment_is_in_unix_seconds() -> None:
    assert seconds("2026-09-21T14:13:20Z") == BEGIN
