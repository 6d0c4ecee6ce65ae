"""An object with any content in any field is recorded or set aside, and later objects are recorded."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import job, node, pod

from spotwright.cluster.autoscaler_status import PROVISIONER, SCALER
from spotwright.cluster.bounded_json import ListPage, decode, read_as
from spotwright.cluster.mirror import ChangeKind, Mirror, Resource
from spotwright.cluster.watch_streams import OWNERS
from spotwright.model.attempts import Cause

KINDS = (
    "Pod",
    "Node",
    "Namespace",
    "Event",
    "Status",
    "NodeClaim",
    *(f"Event of {name}" for name in (SCALER, PROVISIONER)),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=8,
)


@st.composite
def odd_objects(draw: st.DrawFn) -> tuple[str, Any]:
    """An object of a watched kind, with arbitrary content in up to three places."""
    kind = draw(st.sampled_from((*KINDS, *OWNERS)))
    made = _usual(kind)
    for _ in range(draw(st.integers(1, 3))):
        here: Any = made
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            key = draw(st.sampled_from(keys))
            if not isinstance(here[key], (dict, list)) or not here[key] or draw(st.booleans()):
                here[key] = draw(ANYTHING)
                break
            here = here[key]
    return kind, made


def _usual(kind: str) -> dict[str, Any]:
    owner = job("train", uid="uid-train")
    meta: dict[str, Any] = {
        "name": "odd",
        "namespace": "team-a",
        "uid": "uid-odd",
        "creationTimestamp": "2027-01-15T08:00:00Z",
    }
    if kind == "Pod":
        return json.loads(json.dumps(pod("odd", owner, node="n1", phase="Failed", exit_code=1)))
    if kind == "Node":
        return {**node("n1"), "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
    if kind == "Namespace":
        return {"metadata": {**meta, "name": "team-c", "labels": {"spotwright.dev/enabled": "true"}}}
    if kind == "Status":
        return {"metadata": meta, "data": {"status": "autoscalerStatus: Running"}}
    if kind == "NodeClaim":
        condition = {"type": "Initialized", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
        return {"metadata": {**meta, "labels": {"karpenter.sh/nodepool": "x"}}, "status": {"conditions": [condition]}}
    if kind.startswith("Event"):
        about = {"kind": "Node" if kind == "Event" else "Pod", "name": "n1", "uid": "uid-odd"}
        said = {
            "reason": "SpotInterruptionNotice" if kind == "Event" else "TriggeredScaleUp",
            "message": "{g 0->1 (max: 2)}",
            "source": {"component": kind.rpartition(" ")[2]},
        }
        where = {**meta, "namespace": "default" if kind == "Event" else "team-a", "annotations": {"a": "b"}}
        return {"metadata": where, "involvedObject": about, "lastTimestamp": "2027-01-15T08:00:00Z", **said}
    container = {"name": "main", "env": [{"name": "ARGO_TEMPLATE", "value": "{}"}]}
    template = {"metadata": {"labels": {}}, "spec": {"containers": [container]}}
    replicated = [{"name": "worker", "replicas": 1, "template": {"spec": {"template": template}}}]
    nodes = {"odd-1": {"id": "odd-1", "name": "odd", "phase": "Failed", "message": "x", "templateName": "main"}}
    spec: dict[str, Any] = {"template": template, "replicatedJobs": replicated, "templates": [{"name": "main"}]}
    conditions = [{"type": "Failed", "status": "True", "reason": "x", "message": "y"}]
    status = {"phase": "Running", "nodes": nodes, "conditions": conditions}
    name = kind.partition(" ")[0]
    return {"kind": name, "metadata": {**meta, "uid": "uid-train"}, "spec": spec, "status": status}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(odd=st.lists(odd_objects(), min_size=1, max_size=4), is_deleted=st.booleans())
def test_no_object_ends_the_watcher_or_the_records_of_others(odd: list[tuple[str, Any]], is_deleted: bool) -> None:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        made = SilentWatcher(Path(folder))
        try:
            for kind, data in odd:
                made.put(kind, data)
                child = pod(
                    "child",
                    {"kind": kind.partition(" ")[0], "metadata": {"name": "odd", "uid": "uid-train"}},
                    node="n1",
                )
                made.put("Pod", child)
                if is_deleted:
                    made.delete(kind, data)
                    made.delete("Pod", child)
            made.pass_time(2)
            made.watcher._recorder.look_at_everything()
            good = {
                **job("good", uid="uid-good"),
                "metadata": {**job("good", uid="uid-good")["metadata"], "namespace": "team-b"},
            }
            one = pod("good-1", good, node="n1", phase="Failed", exit_code=3)
            made.put("Job", good)
            made.put("Pod", {**one, "metadata": {**one["metadata"], "namespace": "team-b"}})
            run = made.watcher._store.runs["uid-good"]
            assert [attempt.cause for _, attempt in run.attempts.values()] == [Cause.FAILED]
        finally:
            made.close()
            logging.disable(logging.NOTSET)


ODD_NODES: list[dict[str, Any]] = [
    {"spec": {"taints": [None, {"key": ["a"]}]}},
    {"spec": {"taints": {"a": 1}}},
    {"spec": ["a"], "status": ["b"]},
    {"status": {"conditions": ["Ready", {"type": {}, "status": "True"}, {"type": ["x"], "message": 7}]}},
    {"metadata": {"name": "n1", "labels": {"a": {}, "eks.amazonaws.com/capacityType": ["SPOT"]}}},
    {"metadata": {"name": "n1", "labels": ["a"]}},
]


@pytest.mark.parametrize("odd", ODD_NODES, ids=str)
def test_what_runs_on_a_node_of_any_shape_is_recorded(odd: dict[str, Any], tmp_path: Path) -> None:
    made = SilentWatcher(tmp_path)
    made.put("Node", {**node("n1"), **odd})
    train = job("train", uid="uid-train")
    one = pod("one", train, node="n1", phase="Failed", exit_code=3)
    for kind, data in (("Job", train), ("Pod", one)):
        made.put(kind, {**data, "metadata": {**data["metadata"], "namespace": "team-a"}})
    attempts = made.watcher._store.runs["uid-train"].attempts.values()
    assert [attempt.cause for _, attempt in attempts] == [Cause.FAILED]
    made.close()


def nested(depth: int) -> Any:
    found: Any = "deep"
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("depth", [150, 900, 3_000, 9_000])
def test_what_is_nested_too_deep_is_left_out_of_the_text_and_the_rest_is_read(depth: int) -> None:
    before, after = '{"a": "]]}}\\"[[", "b": ', ', "c": {"d": [1, "[{"]}}'
    text = f'{before}{"[" * depth}"deep"{"]" * depth}{after}'
    found = decode(text)
    assert (found["a"], found["c"]) == (']]}}"[[', {"d": [1, "[{"]})


def test_a_text_that_is_cut_off_within_deep_nesting_is_an_error_at_once() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"a": ' + b"[" * 5_000 + b'"' + b'\\"' * 200_000)


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "watched"])
def test_an_object_nested_thousands_of_levels_deep_stops_no_stream(tmp_path: Path, is_listed: bool) -> None:
    """A custom resource may hold whatever its author likes; the API server's own limit is 10,000 levels."""

    async def test(made: Day) -> None:
        server = made.server
        server.served["/apis/argoproj.io/v1alpha1"] = ["workflows"]
        flows = "/apis/argoproj.io/v1alpha1/workflows"
        server.objects[flows] = {}
        text = json.dumps(
            {"kind": "Workflow", "spec": {"deep": "HERE"}, "metadata": {"name": "deep", "namespace": "a", "uid": "u"}}
        )
        deep = text.replace('"HERE"', "[" * 5_000 + "]" * 5_000)

        async def page(request: Any) -> Any:
            from aiohttp import web

            if request.query.get("watch") != "true":
                return web.Response(
                    text='{"kind": "WorkflowList", "metadata": {"resourceVersion": "1"}, "items": [%s]}'
                    % (deep if is_listed else "")
                )
            response = web.StreamResponse()
            await response.prepare(request)
            if not is_listed:
                await response.write(f'{{"type": "ADDED", "object": {deep}}}\n'.encode())
            await asyncio.sleep(60)
            return response

        server.pages[flows] = page
        made.put(JOBS, train := job("train", uid="uid-train"))
        made.put(PODS, pod("one", train, node="n1", phase="Failed", exit_code=3))
        await made.start()
        await made.until(lambda: made.cause("train") is Cause.FAILED, "a Job")
        await made.until(lambda: made.watcher._view.owner("Workflow", "a", "u") is not None, "the Workflow")
        assert not made.watcher.problems

    day(tmp_path / "state", test)


@pytest.mark.parametrize(
    "odd",
    [
        7,
        None,
        [],
        {},
        {"metadata": None},
        {"metadata": {"name": 7}},
        {"metadata": {"name": "x", "labels": ["a"]}},
        {"metadata": {"name": "x", "annotations": {"a": {}}}},
        {"metadata": {"name": "x", "ownerReferences": {"a": 1}}},
        {"metadata": {"name": "x"}, "spec": [1]},
        {"metadata": {"name": "x", "uid": ["u"]}},
    ],
    ids=str,
)
def test_a_list_with_an_object_that_is_none_goes_on(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Answers:
        async def get_page(self, _path: str, _params: Any = None, **_limits: Any) -> ListPage:
            good = {"metadata": {"name": "good", "namespace": "a", "uid": "u", "resourceVersion": "1"}}
            return read_as(ListPage, json.dumps({"items": [odd, good], "metadata": {"resourceVersion": "2"}}).encode())

    async def read() -> list[str]:
        mirror = Mirror(Answers(), Resource("/api/v1", "pods"))  # type: ignore[arg-type]
        return [
            str(change.data["metadata"]["name"]) async for change in mirror._list() if change.kind is ChangeKind.PUT
        ]

    assert asyncio.run(read()) == ["good"]
    assert caplog.text.count("is set aside, because it cannot be read") == 1
