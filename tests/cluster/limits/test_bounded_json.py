"""An object of the API server takes bounded memory, whoever wrote it; real ones of any size are read."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import msgspec
import pytest
from tests.cluster.limits.large_objects import GROWING

from spotwright.cluster.bounded_json import MOST_MEMORY, TooManyValues, is_large, main_fields, read_object
from spotwright.cluster.workloads import failed_step, outcome_of

LARGEST = 1_500_000  # bytes of an object in etcd
PARTS = [
    "[]",
    "{}",
    "[0]",
    "[[[[[[[[]]]]]]]]",
    '{"a":{"a":{"a":{}}}}',
    '{"a":0}',
    "1e1",
    "999",
    '"xy"',
    '{"a":0,"b":0}',
]


def whole(spec: str, **metadata: Any) -> bytes:
    meta = {"name": "x", "namespace": "team-a", "uid": "u", "resourceVersion": "7", **metadata}
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": "HERE"}
    return json.dumps(head, separators=(",", ":")).replace('"HERE"', spec).encode()


def packed(value: Any) -> bytes:
    return msgspec.json.encode(value)


def peak(text: bytes) -> int:
    tracemalloc.start()
    try:
        kept = main_fields(text) if is_large(text) else read_object(text)
        assert kept["metadata"]["name"] == "x"
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("size", [200_000, 400_000, 800_000, LARGEST])
def test_an_object_of_small_values_takes_no_more_memory_than_one_may(part: str, size: int) -> None:
    text = whole(f'{{"x":[{",".join([part] * (size // (len(part) + 1)))}]}}')
    assert peak(text) < 5_000_000
    assert is_large(text) or size < LARGEST


@pytest.mark.parametrize("share", [1, 40_000], ids=["one text", "many texts"])
def test_one_wide_character_makes_a_text_up_to_four_times_as_large(share: int) -> None:
    texts = ["a" * (LARGEST // share - 8) + "\N{GRINNING FACE}"] * share
    text = whole(json.dumps({"x": texts}, ensure_ascii=False, separators=(",", ":")))
    assert is_large(text)
    assert peak(text) < 5_000_000


@pytest.mark.parametrize("size", [200_000, LARGEST])
def test_a_mapping_of_many_keys_takes_no_more_memory_than_one_may(size: int) -> None:
    text = whole(json.dumps({f"k{n}": n for n in range(size // 14)}, separators=(",", ":")))
    assert peak(text) < 5_000_000


def step(number: int, phase: str = "Succeeded", message: str = "") -> dict[str, Any]:
    """A step in the status of a Workflow, as Argo and Kubeflow Pipelines write it."""
    name = f"train-20270115-x7k2p.root.train-{number}.executor"
    artifact = {"name": "main-logs", "s3": {"key": f"private-artifacts/team-a/train-20270115-x7k2p/{number}/main.log"}}
    return {
        "id": f"train-20270115-x7k2p-{number}",
        "name": name,
        "displayName": "executor",
        "type": "Pod",
        "templateName": "system-container-impl",
        "templateScope": "local/train-20270115-x7k2p",
        "phase": phase,
        "boundaryID": f"train-20270115-x7k2p-{number - 1}",
        "message": message,
        "startedAt": "2027-01-15T08:00:00Z",
        "finishedAt": "2027-01-15T08:10:00Z",
        "estimatedDuration": 10,
        "progress": "1/1",
        "resourcesDuration": {"cpu": 60, "memory": 60},
        "inputs": {"parameters": [{"name": "pod-spec-patch", "value": json.dumps({"containers": [{"name": "main"}]})}]},
        "outputs": {"artifacts": [artifact], "exitCode": "0"},
        "children": [f"train-20270115-x7k2p-{number + 1}"],
        "hostNodeName": "aks-spot-31425926-vmss000002",
    }


def run(steps: int, **metadata: Any) -> dict[str, Any]:
    """A Workflow that failed at its last step."""
    nodes = [step(n) for n in range(steps - 1)] + [step(steps - 1, "Failed", "Error (exit code 1)")]
    status = {"phase": "Failed", "message": "child failed", "finishedAt": "2027-01-15T08:10:00Z"}
    made = json.loads(whole("{}", **metadata))
    return {**made, "status": {**status, "nodes": {node["id"]: node for node in nodes}}}


def test_a_run_of_eight_hundred_steps_is_read_as_a_whole() -> None:
    read = read_object(packed(run(800)))
    assert len(read["status"]["nodes"]) == 800
    assert "exit code 1" in failed_step(read)


def managed(steps: int) -> list[dict[str, Any]]:
    """The managed fields of such a Workflow: a key for each field of each step."""
    fields: dict[str, Any] = {}
    for node in map(step, range(steps)):
        fields[f"f:{node['id']}"] = {f"f:{key}": {} for key in node}
    return [{"manager": "workflow-controller", "fieldsV1": {"f:status": {"f:nodes": fields}}}]


def test_managed_fields_count_for_nothing() -> None:
    text = packed(run(600, managedFields=managed(600)))
    assert is_large(text)
    read = read_object(text)
    assert "managedFields" not in read["metadata"]
    assert len(read["status"]["nodes"]) == 600


def test_of_a_workflow_of_more_steps_than_argo_writes_its_end_is_read() -> None:
    text = packed(run(3_000, labels={"a": "b"}))
    with pytest.raises(TooManyValues, match="more than 4 MB of memory"):
        read_object(text)
    read = main_fields(text)
    assert read["metadata"] | {"labels": {"a": "b"}} == read["metadata"]
    ended = outcome_of(read)
    assert ended is not None
    assert ended.why == "child failed"
    assert failed_step(read) == ""


@pytest.mark.parametrize("what", ["templates of a workflow", "tasks of KFP"])
def test_workflows_of_five_hundred_templates_are_read_as_a_whole(what: str) -> None:
    made = GROWING[what](500)
    assert read_object(packed(made)) == made


@pytest.mark.parametrize("text", ["," * 1_000_000, "[{" * 500_000, '\\"[' * 300_000, "\\" * 400_000])
def test_a_long_text_in_a_config_map_is_read(text: str) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": text, "b": ","}}
    assert read_object(packed(made)) == made


def test_an_object_with_other_parts_is_not_cut() -> None:
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {str(n): "" for n in range(60_000)},
    }
    with pytest.raises(TooManyValues):
        read_object(packed(made))


def test_the_main_fields_of_a_hostile_object_may_be_too_large_themselves() -> None:
    with pytest.raises(TooManyValues):
        main_fields(whole("{}", labels={str(n): {} for n in range(60_000)}))
    with pytest.raises(TooManyValues):
        main_fields(b'{"metadata":[]}')
    with pytest.raises(msgspec.DecodeError):
        read_object(b"[" * 100)


def test_nesting_without_end_is_null() -> None:
    assert read_object(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b',"b":1}')["b"] == 1
    assert main_fields(whole('{"x":' + "[" * 5_000 + "]" * 5_000 + "}"))["metadata"]["name"] == "x"


@pytest.mark.parametrize(
    "text", ['"' * LARGEST, "\\" * LARGEST, '"x",' * (LARGEST // 4), "[" * LARGEST, '\\"' * LARGEST]
)
def test_the_size_of_any_text_is_estimated_in_linear_time(text: str) -> None:
    began = time.thread_time()
    is_large(text.encode() + b"," * 80_000)
    assert time.thread_time() - began < 1.0


def test_the_limit_is_what_the_messages_say() -> None:
    assert MOST_MEMORY == 4_000_000
