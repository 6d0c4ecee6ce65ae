"""Loading .py files in a separate process, and functions in a notebook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kfp.builders import restored, stored

from spotwright.errors import PipelineError
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.loader import load
from spotwright.kfp.pipeline_graph import build

HEAD = """\
from kfp import dsl

@dsl.component(base_image="python:3.11")
def step(x: str) -> str:
    return x

"""
FORGOTTEN = HEAD + "def only(u: str):\n    task = step(x=u)\n"
ONE = HEAD + "@dsl.pipeline\ndef only(u: str):\n    task = step(x=u)\n"
WRONG = {  # name: (content, what the message says; {file} is the file)
    "syntax": ("x = 1\ndef (:\n", "{file}:2: "),
    "import_error": (
        "import json\nimport no_such_module_at_all\n",
        "{file}:2: ModuleNotFoundError: .*install no_such_module",
    ),
    "raises": ("def f():\n    raise ValueError('own words\\nmore')\nf()\n", "{file}:2: ValueError: own words$"),
    "exits": ("import sys\nsys.exit(3)\n", "{file}:2: the file calls sys.exit"),
    "none": (FORGOTTEN, "{file}: no pipeline here: expected a function under @dsl.pipeline"),
    "two": (
        ONE + ONE.replace("only", "other_one")[len(HEAD) :],
        "{file}: 2 pipelines here: only, other_one; .*--pipeline",
    ),
    "typo": (
        ONE + "    task.set_retry(num_retries=5, backoff_dureation='5m')\n",
        "{file}:10: .*did you mean backoff_duration?",
    ),
    "field_in_condition": (
        HEAD
        + "@dsl.pipeline\ndef only():\n    with dsl.ParallelFor([{'a': '1', 'b': '2'}]) as item:\n"
        + "        with dsl.If(item.a == '1'):\n            step(x=item.b)\n",
        "{file}:7: AssertionError: .* not found; this kfp cannot read a field of a constant list's item",
    ),
    "no_types": (ONE.replace("u: str", "u"), "{file}:7: TypeError: .*wants a type for every argument"),
    "toleration": (
        ONE + "    task.add_toleration(None)\n",
        "{file}:10: add_toleration is kfp 1; write kfp.kubernetes.add_tol",
    ),
    "preemptible": (
        ONE + "    task.set_gpu_limit(4).apply(gcp.use_preemptible_nodepool()).set_retry(5)\n",
        r"{file}:10: use_preemptible_nodepool is kfp 1; write spot.prefer\(task\)",
    ),
    "gcp": ("import kfp.gcp as gcp\n" + ONE, "{file}:1: kfp.gcp is kfp 1; write spot.prefer"),
    "input_path": (
        "import kfp.components as c\ndef f(x: c.InputPath('CSV')): ...\n",
        "{file}:2: InputPath is kfp 1; write dsl.Inp",
    ),
    "client": ("import kfp\nc = kfp.Client()\nc.list_runs()\n" + ONE, "{file}:3: left out .*no pipeline before that"),
    "container_op": (
        HEAD + "op = dsl.ContainerOp(name='a', image='b')\n",
        "{file}:7: ContainerOp is kfp 1; write a function",
    ),
    "policy": (
        ONE + "    import spotwright as spot\n    spot.prefer(task, interruptions=-1)\n",
        "{file}:11: PolicyValueError: interruptions: -1 is wrong; expected a whole number",
    ),
    "wrong_argument": (ONE.replace("x=u", "x=[1]"), "{file}:9: .*InconsistentTypeException"),
    "prints": ("import os\nos.write(1, b'{}'); print('{\"compiled\": 1}')\n" + FORGOTTEN, "{file}: no pipeline here"),
    "named_kfp/kfp": ("raise ValueError('mine')\n", "{file}:1: ValueError: mine"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer of the compiler's process to each wrong file; one process for all, because importing kfp takes most of it."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, (content, _) in WRONG.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(content)
    script = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from spotwright.kfp.compiler_process import main\n"
        "for name in sys.argv[1:]: main([name + '.py', name + '.json'])\n"
    )
    paths = [str(folder / name) for name in WRONG]
    subprocess.run([sys.executable, "-c", script, *paths], check=True, stdout=subprocess.DEVNULL)
    return {
        name: (f"{path}.py", json.loads(Path(f"{path}.json").read_text()))
        for name, path in zip(WRONG, paths, strict=True)
    }


@pytest.mark.parametrize("name", WRONG)
def test_the_error_for_a_wrong_file_names_the_line_and_the_fix(answers: dict[str, Any], name: str) -> None:
    file, answer = answers[name]
    with pytest.raises(PipelineError, match=WRONG[name][1].format(file=file).replace(".py", r"\.py")):
        raise PipelineError(answer["error"])
    assert answer["error"].count("\n") <= 1
    assert "Traceback" not in answer["error"]


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_compiling_leaves_no_file_beside_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "helper.py", "NAME = 'from a module beside it'\n")
    file = write(
        tmp_path / "folder" / "p.py",
        "import helper\n" + HEAD + "@dsl.pipeline(name=helper.NAME.replace(' ', '-'))\n" + ONE[len(HEAD) + 14 :],
    )
    monkeypatch.chdir(tmp_path)
    compiled = load("folder/p.py")
    assert (compiled.pipeline, compiled.source) == ("from-a-module-beside-it", str(file))
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["helper.py", "p.py"]


def test_a_file_with_only_a_component_is_a_pipeline_of_one_task(tmp_path: Path) -> None:
    file = tmp_path / "component.py"
    file.write_text(HEAD)
    assert list(load(file).ir["root"]["dag"]["tasks"]) == ["step"]


def test_two_components_alone_are_no_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "components.py"
    file.write_text(HEAD + HEAD.replace("step", "other"))
    with pytest.raises(PipelineError, match="no pipeline here"):
        load(file)


def test_of_several_pipelines_the_one_that_uses_the_others_is_chosen_with_a_note(tmp_path: Path) -> None:
    inside = ONE.replace("only", "inside").replace("@dsl.pipeline", "@dsl.pipeline(name='part of it')")
    between = "@dsl.pipeline\ndef between(u: str):\n    inside(u=u)\n"
    whole = "@dsl.pipeline\ndef whole(u: str):\n    between(u=u)\n    step(x=u)\n"
    file = tmp_path / "several.py"
    file.write_text(inside + between + whole)
    found = load(file)
    assert found.pipeline == "whole"
    assert found.warnings == (f"{file}: the pipeline is whole, which uses the others; --pipeline NAME takes another",)
    assert load(file, pipeline="between").pipeline == "between"


def test_a_pipeline_can_be_chosen_by_name(training_file: Path, training: Compiled) -> None:
    assert load(training_file, pipeline="inner").pipeline == "inner"
    with pytest.raises(PipelineError, match="no pipeline 'outer' here; it has inner, training"):
        load(training_file, pipeline="outer")


def test_names_of_kfp_1_that_still_work_are_warned_about_with_their_line(tmp_path: Path) -> None:
    file = write(tmp_path / "p.py", ONE + "    task.set_gpu_limit(4)\n")
    (warning,) = load(file).warnings
    assert warning.startswith(f"{file}:10: set_gpu_limit is kfp 1; write task.set_accelerator_type('nvidia.com/gpu')")


def test_a_file_that_submits_its_pipeline_is_read_up_to_there(tmp_path: Path) -> None:
    """The tutorials end so. Reading the file must neither fail without a cluster nor start a run on one."""
    client = "import kfp\nclient = kfp.Client(host='http://127.0.0.1:1')\n"
    submit = "try:\n    client.create_run_from_pipeline_func(only, arguments={})\nexcept Exception:\n    pass\n"
    compiled = load(write(tmp_path / "p.py", client + ONE + submit + "raise ValueError('never reached')\n"))
    assert compiled.pipeline == "only"
    assert compiled.warnings == (f"{tmp_path}/p.py:13: left out from here on, because kfp.Client talks to a cluster",)


def test_a_script_that_starts_its_own_run_is_read_up_to_there(tmp_path: Path) -> None:
    """A run that was started from a script is resumed with the script's code as it is then."""
    start = "import spotwright as spot\nspot.run(only, arguments={})\nraise ValueError('never reached')\n"
    compiled = load(write(tmp_path / "p.py", ONE + start))
    assert compiled.pipeline == "only"
    assert compiled.warnings == (f"{tmp_path}/p.py:11: left out from here on, because spot.run starts a run",)


def test_a_file_that_kills_its_process_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "p.py", "import os\nfrom kfp import dsl\nos._exit(0)\n")
    with pytest.raises(
        PipelineError, match=r"p\.py: the process that compiles it ended with code 0 before it was done"
    ):
        load(file)


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="/no/python: cannot be started to compile"):
        load(write(tmp_path / "p.py", ONE), python="/no/python")


NESTED = """\
from kfp import dsl, kubernetes

@dsl.component(base_image="python:3.11")
def f(x: int) -> int:
    return x

@dsl.pipeline
def inner(x: int):
    for number in (1, 2, 3):
        task = f(x=number).set_cpu_limit(str(number)).set_env_variable("WHO", f"inner-{number}")
        kubernetes.add_node_selector(task, "for", f"inner-{number}")

@dsl.pipeline
def outer(x: int = 1):
    f(x=10).set_cpu_limit("10")
    f(x=11).set_cpu_limit("11")
    inner(x=x)
    inner(x=x)
"""
ASKED = {
    "f": (10, "", ""),
    "f-2": (11, "", ""),
    **{
        f"{dag}/f{'' if n == 1 else f'-{n}'}": (n, f"inner-{n}", f"inner-{n}")
        for dag in ("inner", "inner-2")
        for n in (1, 2, 3)
    },
}


def settings(compiled: Compiled) -> dict[str, tuple[int, str, str]]:
    """CPU, environment and selector of every task by its path."""
    pipeline = build(compiled)
    found = {}
    for name, task in pipeline.root.tasks.items():
        inside = pipeline.dags[task.dag].tasks if task.dag else {}
        for path, step in (
            {f"{name}/{key}": value for key, value in inside.items()}.items() if inside else [(name, task)]
        ):
            assert isinstance(step.executor, PythonComponent)
            who, place = step.executor.env.get("WHO", ""), step.constraints.selector.get("for", "")
            found[path] = (step.limits["cpu"] // 1000, who, place)
    return found


@pytest.mark.long
def test_tasks_of_nested_pipelines_have_their_own_settings_in_every_compilation(tmp_path: Path) -> None:
    """The SDK alone gives a wrong result in most processes, and other names in each."""
    file = write(tmp_path / "nested.py", NESTED)
    compiled = [load(file, pipeline="outer") for _ in range(3)]
    assert settings(compiled[0]) == ASKED
    assert {stored(each) for each in compiled} == {stored(compiled[0])}


RAW = """\
import json, sys, warnings; warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import nested
from spotwright.kfp import dsl_compiler as sdk
print(json.dumps(sdk.to_compiled(nested.outer, "nested.py").to_data()))
"""
NOTEBOOK = RAW.replace(
    "from spotwright.kfp import dsl_compiler as sdk",
    "from spotwright.kfp.loader import compile_function",
)
NOTEBOOK = NOTEBOOK.replace('sdk.to_compiled(nested.outer, "nested.py")', "compile_function(nested.outer)")


def in_processes(script: str, folder: Path, count: int) -> list[Compiled]:
    command = [sys.executable, "-c", script, str(folder)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    outputs = [process.communicate()[0] for process in running]
    return [restored(output) for output in outputs]


@pytest.mark.long
def test_executors_that_the_sdk_merged_are_always_detected(tmp_path: Path) -> None:
    from spotwright.kfp.compiled import merged_executors

    write(tmp_path / "nested.py", NESTED)
    seen: set[bool] = set()
    for _ in range(20):  # two of three processes make the mistake
        for compiled in in_processes(RAW, tmp_path, 2):
            found = settings(compiled)
            wrong = any(found[path][:2] != asked[:2] for path, asked in ASKED.items())
            assert bool(merged_executors(compiled.ir)) == wrong
            seen.add(wrong)
        if True in seen:
            return
    raise AssertionError("no process has merged executors")


@pytest.mark.long
def test_in_a_notebook_tasks_have_their_own_settings_too(tmp_path: Path) -> None:
    write(tmp_path / "nested.py", NESTED)
    for compiled in in_processes(NOTEBOOK, tmp_path, 2):
        assert settings(compiled) == ASKED


def test_a_function_without_the_decorator_is_refused() -> None:
    from spotwright.kfp.loader import compile_function

    with pytest.raises(PipelineError, match=r"len: expected a function under @dsl\.pipeline"):
        compile_function(len)


def test_the_source_files_of_a_pipeline_are_recorded(tmp_path: Path) -> None:
    helper = write(tmp_path / "helper.py", "NAME = 'a'\n")
    data = write(tmp_path / "data.txt", "x")
    file = write(tmp_path / "p.py", f"import helper\nopen({str(data)!r}).close()\n" + ONE)
    assert {str(file), str(helper), str(data)} <= set(load(file).files)
