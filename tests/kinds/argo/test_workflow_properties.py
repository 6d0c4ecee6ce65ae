"""Properties of placed workflows: templates keep inherited and own values, tolerate spot, and can be unplaced."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.kinds.argo.workflows import place

from spotwright.kinds.katib import parse_marked
from spotwright.placing.documents import parse
from spotwright.placing.merging import strategic, write
from spotwright.placing.patch import Editor

SPOT = "kubernetes.azure.com/scalesetpriority"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

keys = st.sampled_from(["team", "disk", "zone"])
tolerations = st.lists(st.fixed_dictionaries({"key": keys, "operator": st.just("Exists")}), min_size=1, max_size=3)
expressions = st.lists(
    st.fixed_dictionaries({"key": keys, "operator": st.just("DoesNotExist")}), min_size=1, max_size=2
)
terms = st.lists(st.fixed_dictionaries({"matchExpressions": expressions}), min_size=1, max_size=2)
affinities = terms.map(lambda some: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": some}}})
levels: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"tolerations": tolerations, "affinity": affinities}
)
codes: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"container": {"image": "x"}},
        {"script": {"image": "x", "source": "y"}},
        {"containerSet": {"containers": [{"name": "a", "image": "x"}]}},
    ]
)
patches: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "podSpecPatch": st.sampled_from(
            ['{"hostNetwork": true}', "hostNetwork: true\n", "# mine\nhostNetwork: {{x}}\n"]
        )
    },
)


@st.composite
def workflows(draw: st.DrawFn) -> Any:
    templates = [
        {"name": f"t{index}", **draw(levels), **draw(patches), **draw(codes)}
        for index in range(draw(st.integers(1, 3)))
    ]
    spec = {"entrypoint": "t0", **draw(levels), "templates": templates}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}


def on_a_pod(spec: Any, template: Any, name: str) -> Any:
    """Argo's precedence: the template's own, else the workflow's."""
    return template.get(name) or spec.get(name)


def required(affinity: Any) -> list[Any]:
    return ((affinity or {}).get("nodeAffinity") or {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])


@settings(max_examples=20, deadline=None)
@given(workflow=workflows(), flow=st.booleans())
def test_pods_keep_what_they_had_and_may_go_to_spot(workflow: Any, flow: bool) -> None:
    text = plain_yaml.dump(
        json.loads(json.dumps(workflow)), sort_keys=False, default_flow_style=flow
    )  # without aliases
    outcome = place(text)

    for before, after in zip(workflow["spec"]["templates"], outcome.value["spec"]["templates"], strict=True):
        had, has = (
            on_a_pod(spec, one, "tolerations") or []
            for spec, one in ((workflow["spec"], before), (outcome.value["spec"], after))
        )
        assert all(item in has for item in had)
        assert any(item["key"] == SPOT for item in has)
        old, new = (
            on_a_pod(spec, one, "affinity")
            for spec, one in ((workflow["spec"], before), (outcome.value["spec"], after))
        )
        assert required(new) == required(old)
        by_attempt = [line for line in after["podSpecPatch"].splitlines() if "asInt(retries) <" in line]
        assert by_attempt
        assert (
            before.get("podSpecPatch", "").strip().strip("{}") in after["podSpecPatch"]
            or "{{x}}" in after["podSpecPatch"]
        )


values = st.recursive(
    st.sampled_from(["a", "b", 1]),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
pods = st.dictionaries(st.sampled_from(["x", "y", "env"]), values, max_size=3)


@settings(max_examples=100, deadline=None)
@given(base=pods, patch=pods)
def test_a_strategic_patch_changes_neither_side_and_is_the_same_twice(base: Any, patch: Any) -> None:
    kept = copy.deepcopy((base, patch))
    once = strategic(base, patch)

    assert (base, patch) == kept
    assert strategic(once, patch) == once
    assert strategic(base, {}) == base


@settings(max_examples=100, deadline=None)
@given(own=pods, more=pods)
def test_what_is_written_is_what_it_became(own: Any, more: Any) -> None:
    after = {**own, **{key: value for key, value in more.items() if key not in own}}
    [document] = parse(plain_yaml.dump({"pod": own, "end": 1}), "x.yaml")
    editor = Editor(document)
    write(editor, ("pod",), own, after)

    assert (editor.get(("pod",)) or {}) == after
    assert document.get(("pod",)) == own


@settings(max_examples=60, deadline=None)
@given(inside=st.text("abc:#'\"[]{,- ", max_size=12).filter(lambda text: "}}" not in text and "{" not in text[-1:]))
def test_a_marker_is_part_of_a_text_wherever_it_stands(inside: str) -> None:
    marker = "{{" + inside.rstrip("}") + "}}"
    [document] = parse_marked(f"a: {marker}\nb: [1, {marker}]\n", "x.yaml")

    assert document.get(()) == {"a": marker, "b": [1, marker]}
    assert document.text[document.start : document.end].count(marker) == 2
