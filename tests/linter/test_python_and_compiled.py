"""A pipeline in Python and its compiled form have the same findings."""

from __future__ import annotations

import importlib.util
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.linter.linting import found_in

SPOT = "kubernetes.azure.com/scalesetpriority"
HEAD = f"""\
from kfp import dsl, kubernetes

KEY = "{SPOT}"


@dsl.component(base_image="python:3.12")
def step(): ...


@dsl.pipeline(name="drawn")
def main(number: int = 1):
"""
HELPER = """


def on_spot(task, wait="60s"):
    kubernetes.add_toleration(task, key=KEY, operator="Equal", value="spot", effect="NoSchedule")
    return kubernetes.add_node_affinity(task, match_expressions=[{"key": KEY, "operator": "In", "values": ["spot"]}])
"""
SETTINGS = (
    "kubernetes.add_toleration({0}, key=KEY, operator='Equal', value='spot', effect='NoSchedule')",
    "kubernetes.add_toleration({0}, key=KEY, operator='Exists', value='spot')",
    "kubernetes.add_toleration_json({0}, {{'key': KEY, 'operator': 'Exists', 'effect': 'NoSchedule'}})",
    "kubernetes.add_node_selector({0}, KEY, 'spot')",
    "kubernetes.add_node_selector({0}, 'cloud.google.com/gke-accelerator', 'nvidia-l4')",
    "kubernetes.add_node_selector({0}, 'cloud.google.com/gke-preemptible', 'true')",
    "kubernetes.add_node_affinity({0}, [{{'key': KEY, 'operator': 'In', 'values': ['spot']}}], weight=50)",
    "kubernetes.add_node_affinity({0}, [{{'key': KEY, 'operator': 'In', 'values': ['spot']}}])",
    "kubernetes.add_node_affinity({0}, [{{'key': 'cloud.google.com/gke-spot', 'operator': 'Exists'}}])",
    "{0}.set_retry(3)",
    "{0}.set_retry(3, backoff_max_duration='30d').set_cpu_limit('2')",
    "{0}.set_retry(num_retries=2, backoff_factor=1.5, backoff_max_duration='30d')",
    "{0}.set_accelerator_type('nvidia.com/gpu').set_accelerator_limit(1)",
    "{0}.set_accelerator_type('NVIDIA_TESLA_T4').set_accelerator_limit(1)",
    "{0}.set_accelerator_limit(1)",
    "on_spot({0})",
    "on_spot({0}).set_retry(2)",
)
WAYS = ("{0} = step()", "{0} = on_spot(step())", "{0} = step().set_retry(1)")


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    lines = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)):
        indent = "    "
        if draw(st.booleans()):
            opens = draw(st.sampled_from(["with dsl.ParallelFor([1, 2]):", "with dsl.If(number == 1):"]))
            lines.append(indent + opens)
            indent += "    "
        lines.append(indent + draw(st.sampled_from(WAYS)).format(name))
        chosen = draw(st.lists(st.sampled_from(SETTINGS), max_size=4, unique=True))
        lines += [indent + one.format(name) for one in chosen]
    text = "\n".join(lines) + "\n"
    return (HEAD.replace("\n\n@dsl.pipeline", f"{HELPER}\n\n@dsl.pipeline") if "on_spot" in text else HEAD) + text


def compiled(text: str, folder: Path) -> str:
    from kfp.compiler import Compiler

    file = folder / f"p{uuid.uuid4().hex}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = file.with_suffix(".yaml")
    Compiler().compile(module.main, str(target))
    return target.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


@given(pipelines())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_have_the_same_findings(folder: Path, text: str) -> None:
    in_python = {found.rule for found in found_in(text, python=True)}
    assert in_python == {found.rule for found in found_in(compiled(text, folder))}


def test_a_task_is_named_with_the_line_that_sets_it() -> None:
    text = HEAD + "    a = step()\n    kubernetes.add_node_selector(a, KEY, 'spot')\n"
    [found] = [one for one in found_in(text, python=True) if one.rule == "affinity-without-toleration"]
    assert (found.line, found.text.startswith("task a asks for spot nodes")) == (13, True)


@pytest.mark.parametrize(
    "handed", ["helpers.set_up(a)", "set_all([a])", "a.apply(secret())", "[set_up(t) for t in (a,)]"]
)
def test_a_task_that_something_else_may_set_up_too_is_left_out(handed: str) -> None:
    text = HEAD + f"    a = step()\n    kubernetes.add_node_selector(a, KEY, 'spot')\n    {handed}\n"
    assert "affinity-without-toleration" not in {found.rule for found in found_in(text, python=True)}


def test_a_value_that_the_file_computes_stands_for_any() -> None:
    text = (
        HEAD
        + "    a = step()\n    kubernetes.add_node_selector(a, KEY, pool())\n    kubernetes.add_toleration(a, key=taint())\n"
    )
    assert [found.rule for found in found_in(text, python=True) if found.rule != "undefined-name"] == []


def test_a_function_that_no_pipeline_of_the_file_calls_is_read_alone() -> None:
    assert {found.rule for found in found_in(HEAD + "    step()\n" + HELPER, python=True)} == {
        "churn-not-shielded",
        "no-fallback",
    }


def test_functions_that_call_each_other_in_a_circle_come_to_an_end() -> None:
    circle = "\n\ndef one(task):\n    two(task); two(task)\n\n\ndef two(task):\n    one(task); one(task)\n"
    assert found_in(HEAD + "    one(step())\n" + circle, python=True) == []
