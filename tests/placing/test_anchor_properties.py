"""Placing a text with anchors, aliases, merge keys and tags means placing what it reads as, for drawn documents."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.placing.drawn_yaml import drawn_text
from tests.placing.placed import FILE, a_config
from tests.placing.written_out import assert_placed_as_written_out, values, written_out

from spotwright.config import Config
from spotwright.manifests.files import place_text
from spotwright.placing.documents import ManifestError

LABELS = st.sampled_from([{}, {"app": "a"}, {"app": "a", "tier": "b"}, {"spotwright.dev/spot": "never"}, {"n": "1"}])
ENV = st.lists(st.sampled_from([{"name": "A", "value": "b"}, {"name": "B", "value": "yes"}]), max_size=2, unique_by=str)
TOLERATIONS = st.sampled_from([[], [{"key": "sku", "operator": "Exists"}], [{"key": "a", "operator": "Exists"}]])
RESOURCES = st.sampled_from([{}, {"limits": {"nvidia.com/gpu": 1}}, {"requests": {"cpu": 1}}])
CONTAINER = st.fixed_dictionaries(
    {"name": st.just("main"), "image": st.sampled_from(["a:1", "registry.example/b"])},
    optional={"env": ENV, "resources": RESOURCES, "args": st.sampled_from([["a", "- b"], ["one\ntwo\n"], [""]])},
)
POD = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=1)},
    optional={"tolerations": TOLERATIONS, "nodeSelector": st.just({}), "terminationGracePeriodSeconds": st.just(600)},
)
METADATA = st.fixed_dictionaries({}, optional={"labels": LABELS, "annotations": LABELS})
TEMPLATE = st.fixed_dictionaries({"spec": POD}, optional={"metadata": METADATA})


def an_object(api_version: str, kind: str, spec: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    about = METADATA.map(lambda metadata: {"name": "main", **metadata})
    return st.fixed_dictionaries(
        {"x": st.sampled_from([{"app": "a"}, {"name": "A", "value": "b"}, {}]), "metadata": about, "spec": spec}
    ).map(
        lambda value: {
            "x": value["x"],
            "apiVersion": api_version,
            "kind": kind,
            **value,
            "y": [value["x"], value["metadata"]],
        }
    )


ROLE = st.fixed_dictionaries({"template": TEMPLATE}, optional={"replicas": st.just(2)})
STEP = st.builds(
    lambda name, rest: {"name": name, **rest},
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries({"container": CONTAINER}, optional={"metadata": METADATA, "tolerations": TOLERATIONS}),
)
JOB = an_object("batch/v1", "Job", TEMPLATE.map(lambda template: {"template": template}))
OBJECTS = st.one_of(
    JOB,
    an_object(
        "kubeflow.org/v1",
        "TFJob",
        st.dictionaries(st.sampled_from(["Chief", "Worker", "PS", "Evaluator"]), ROLE, min_size=1).map(
            lambda roles: {"tfReplicaSpecs": roles}
        ),
    ),
    an_object(
        "argoproj.io/v1alpha1",
        "Workflow",
        st.lists(STEP, min_size=1, max_size=3, unique_by=lambda step: step["name"]).map(
            lambda steps: {"entrypoint": steps[0]["name"], "templates": steps}
        ),
    ),
    st.lists(st.one_of(JOB, an_object("v1", "Pod", POD), an_object("v1", "Service", st.just({}))), max_size=3).map(
        lambda items: {"apiVersion": "v1", "kind": "List", "items": items}
    ),
)
POLICIES = st.sampled_from(
    ["{default: {spot: prefer}}", "{default: {spot: require, timeout: 1h, errors: {retries: 1}}}"]
)


def refused(text: str, config: Config) -> str:
    """The message with which a text is refused; empty if it is placed."""
    try:
        place_text(text, FILE, config)
    except ManifestError as error:
        return str(error)
    return ""


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(value=OBJECTS, chance=st.randoms(use_true_random=False), policy=POLICIES)
def test_a_text_with_aliases_is_placed_as_what_it_reads_as(value: dict[str, Any], chance: Random, policy: str) -> None:
    text, config = drawn_text(value, chance), a_config(policy)
    assert values(text) == [value]
    if refused(written_out(text), config):
        return
    message = refused(text, config)
    if message:  # an object that is not placed may name an anchor of one that is placed
        assert value["kind"] == "List"
        assert "yq" in message
    else:
        # items of a list that a tool ties by aliases of its own may be refused when they are unplaced
        assert_placed_as_written_out(text, config, anew=value["kind"] != "List")
