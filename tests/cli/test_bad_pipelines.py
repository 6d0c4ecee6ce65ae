"""Pipelines that cannot be run: one or two lines that say where and what to do, exit code 2, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, Param, Step, document, step
from tests.e2e.project import Done, Project

TWO = """
from kfp import dsl
@dsl.component
def one() -> int:
    return 1
@dsl.pipeline
def first():
    one()
@dsl.pipeline(name="the-second")
def second():
    one()
"""
TYPE_OF_KFP_1 = """
from kfp import components, dsl
fetch = components.load_component_from_text('''
name: fetch
inputs: [{name: url, type: URI}]
implementation: {container: {image: alpine, command: [echo, {inputPath: url}]}}
''')
@dsl.pipeline
def main(url: str):
    fetch(url=url)
"""
ANOTHER_TYPE = """
from kfp import dsl
@dsl.component
def text() -> str:
    return ""
@dsl.component
def whole(number: int): ...
@dsl.pipeline
def main():
    whole(number=text().output)
"""
NAMED_LIKE_A_METHOD = """
from kfp import dsl
@dsl.component
def other():
    open("x", "w").write("x")
@dsl.container_component
def write():
    return dsl.ContainerSpec(image="")
@dsl.pipeline
def main():
    other()
    write()
"""
IN_A_LOOP = """
from kfp import dsl
@dsl.container_component
def one(number: int):
    return dsl.ContainerSpec(image="", command=["true"])
@dsl.pipeline
def main():
    with dsl.ParallelFor([1, 2], name="loop") as number:
        one(number=number)
"""
KFP_1 = """
import kfp
from kfp import dsl

def main():
    step = dsl.ContainerOp(name="train", image="busybox")
"""


def adds_one(number: int) -> int:
    return number + 1


def run(project: Project, pipeline: Path, *options: str) -> Done:
    """``spotwright run`` in this process: nothing gets as far as an engine."""
    return project.here("run", str(pipeline), "--name", "r", *options)


def refused(project: Project, done: Done, *parts: str, lines: int = 1) -> None:
    """It says so in as many lines, with these parts, and leaves nothing."""
    assert done.code == 2, done
    assert done.out == ""
    assert len(done.error_lines) == lines, done.err
    assert done.error_lines[0].startswith("spotwright: ")
    for part in parts:
        assert part in done.err, (part, done.err)
    assert "Traceback" not in done.err
    assert not project.state.exists()
    assert project.processes() == {}


def of_source(project: Project, source: str, *options: str) -> tuple[Path, Done]:
    path = project.write("pipeline.py", source)
    return path, run(project, path, *options)


def test_a_file_without_a_pipeline(project: Project) -> None:
    path, done = of_source(project, "number = 1\n")
    refused(project, done, f"{path}: no pipeline here", "@dsl.pipeline")


def test_a_file_with_two_pipelines_asks_which(project: Project) -> None:
    path, done = of_source(project, TWO)
    refused(project, done, f"{path}: 2 pipelines here: first, second (the-second); choose with --pipeline NAME")


def test_a_pipeline_of_a_name_that_is_not_there(project: Project) -> None:
    path, done = of_source(project, TWO, "--pipeline", "third")
    refused(project, done, f"{path}: no pipeline 'third' here; it has first, second (the-second)")


def test_a_file_whose_import_fails(project: Project) -> None:
    path, done = of_source(project, "\nimport not_installed_anywhere\n")
    refused(project, done, f"{path}:2: ModuleNotFoundError", "install not_installed_anywhere beside kfp")


def test_a_file_that_raises_while_it_is_imported(project: Project) -> None:
    path, done = of_source(project, "from kfp import dsl\n\nraise ValueError('not\\ntoday')\n")
    refused(project, done, f"{path}:3: ValueError: not")


def test_an_output_that_a_task_does_not_have_is_shown_where_it_is_written(project: Project) -> None:
    path, done = of_source(project, "made = {'data': 1}\n\nread = made['date']\n")
    refused(project, done, f"{path}:3: KeyError: 'date': unknown name in read = made['date']")


def test_a_file_that_ends_itself(project: Project) -> None:
    path, done = of_source(project, "import sys; from kfp import dsl\nsys.exit(3)\n")
    refused(project, done, f"{path}:2: the file calls sys.exit")


def test_a_file_with_an_error_of_syntax(project: Project) -> None:
    path, done = of_source(project, "from kfp import dsl\ndef main(:\n")
    refused(project, done, f"{path}:2: ")


def test_a_file_that_kills_its_process(project: Project) -> None:
    path, done = of_source(project, "import os; from kfp import dsl\nos.kill(os.getpid(), 9)\n")
    refused(project, done, f"{path}: the process that compiles it ended with code -9 before it was done")


def test_a_file_of_kfp_1_is_told_what_to_write_instead(project: Project) -> None:
    path, done = of_source(project, KFP_1 + "\nmain()\n")
    refused(project, done, f"{path}:6: ", "is kfp 1; write", lines=2)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (
            TYPE_OF_KFP_1,
            (":10: ", "the pipeline's input url (STRING) does not fit fetch.url", "declared URI", "declare it String"),
        ),
        (ANOTHER_TYPE, (":10: ", "text.Output (STRING) does not fit whole.number (NUMBER_INTEGER)")),
        (NAMED_LIKE_A_METHOD, (":12: task write: a container component without an image",)),
        (IN_A_LOOP, (":9: task loop/one: a container component without an image",)),
    ],
)
def test_what_is_not_supported_yet_is_said_with_its_place(
    project: Project, source: str, parts: tuple[str, ...]
) -> None:
    path, done = of_source(project, source)
    refused(project, done, str(path), *parts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{\n", "not valid YAML"),
        ("- 1\n- 2\n", "not a compiled pipeline"),
        ("", "not a compiled pipeline"),
        ("apiVersion: v1\nkind: Pod\n", "this is a Kubernetes object (Pod)"),
        ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n", "this is an Argo Workflow, as kfp 1 compiled them"),
        ("pipelineInfo: {name: x}\nschemaVersion: 2.1.0\nroot: 3\n", "root"),
        ("pipelineInfo: {name: x}\nschemaVersion: '9.0'\nroot: {}\n", "schemaVersion is '9.0'"),
    ],
)
def test_yaml_that_is_no_compiled_pipeline(project: Project, text: str, said: str) -> None:
    path = project.write("pipeline.yaml", text)
    refused(project, run(project, path), str(path), said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.yaml", "there is no such file"),
        ("missing.py", "there is no such file"),
        ("playground", "this is a folder"),
        ("notes.txt", "expected a .py file with @dsl.pipeline, or a compiled pipeline"),
    ],
)
def test_a_path_that_is_no_pipeline_file(project: Project, name: str, said: str) -> None:
    project.write("notes.txt", "hello")
    refused(project, run(project, project.folder / name), f"{project.folder / name}: {said}")


def test_a_file_that_is_no_text(project: Project) -> None:
    path = project.folder / "pipeline.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    refused(project, run(project, path), f"{path}:1: expected UTF-8 text")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("needs a value for number (a whole number)", "--arg number=VALUE")),
        (("--arg", "number=1", "--arg", "nmber=2"), ("has no parameter 'nmber'", "did you mean 'number'?")),
        (("--arg", "number=one"), ("argument number: expected a whole number, got 'one'",)),
        (("--arg", "number=1.5"), ("argument number: expected a whole number, got '1.5'",)),
        (("--arg", "number="), ("argument number: expected a whole number, got ''",)),
    ],
)
def test_arguments_that_do_not_fit(project: Project, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    path = project.pipeline({"it": step(adds_one, {"number": Param("number")})}, {"number": "int"})
    refused(project, run(project, path, *arguments), *parts)


def steps(**said: Any) -> dict[str, Step]:
    return {"it": step(adds_one, {"number": 1}, **said)}


def test_a_task_that_is_larger_than_any_node(project: Project) -> None:
    path = project.pipeline(steps(resources={"cpuRequest": 9, "resourceCpuRequest": "9"}))
    refused(project, run(project, path), f"{path}:", ": task it fits no pool: spot: ", "cpu", "od: ")


def test_a_task_that_asks_for_what_no_pool_has(project: Project) -> None:
    path = project.pipeline(steps(resources={"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}}))
    refused(project, run(project, path), "task it fits no pool: spot: ", "nvidia.com/gpu")


@pytest.mark.parametrize("place", ["default: {spot: require}", "tasks: {it: {spot: require}}"])
def test_a_task_that_requires_spot_where_there_is_none(project: Project, place: str) -> None:
    config = project.config(f"pools:\n  od: {{capacity: on-demand}}\npolicy:\n  {place}\n")
    done = run(project, project.pipeline(steps()))
    refused(project, done, f"{config}:5", "needs a spot pool, and none is configured: add one")


def test_settings_that_the_code_cannot_run_without(project: Project) -> None:
    kubernetes = {"secretAsEnv": [{"secretName": "login", "keyToEnv": [{"secretKey": "k", "envVar": "K"}]}]}
    done = run(project, project.pipeline(steps(kubernetes=kubernetes)))
    refused(project, done, "task it: it needs the key 'k' of the secret 'login'", "spotwright.yaml", "the variable K")


def changed(text: str, place: tuple[str, ...], value: Any) -> str:
    ir: dict[str, Any] = json.loads(text)
    inner = ir
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(ir)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("components",), {}, "comp-"),
        (("deploymentSpec", "executors"), {}, "exec-"),
        (("root", "dag", "tasks", "one", "dependentTasks"), ["two"], "one"),
        (("root", "dag", "tasks", "two", "dependentTasks"), ["zero"], "zero"),
        (("root", "dag", "tasks", "one", "inputs"), {}, "number"),
    ],
)
def test_a_compiled_file_that_contradicts_itself(
    project: Project, place: tuple[str, ...], value: Mapping[str, Any], said: str
) -> None:
    graph = {"one": step(adds_one, {"number": 1}), "two": step(adds_one, {"number": Of("one")})}
    path = project.write("pipeline.yaml", changed(document(graph), place, value))
    refused(project, run(project, path), str(path), said)


def test_a_compiled_file_is_named_with_the_line_of_the_task(project: Project) -> None:
    graph = {"one": step(adds_one, {"number": 1}), "two": step(adds_one, {"number": Of("one")})}
    text = changed(document(graph), ("root", "dag", "tasks", "two", "dependentTasks"), ["zero"])
    path = project.write("pipeline.yaml", text.replace('"two": {', '\n"two": {'))
    line = 1 + path.read_text().split('"two": {')[0].count("\n")
    refused(project, run(project, path), f"{path}:{line}: task two: it waits for the task 'zero', which does not exist")
