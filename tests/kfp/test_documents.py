"""Reading compiled pipeline files: accepted ones, and errors with file, line and keys."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kfp.builders import component, ir, kubernetes, restored, stored, task

from spotwright.errors import PipelineError
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.loader import load

SPEC = ir(
    {"a": task("a")}, {"comp-a": component("a", inputs={"parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}})}
)


def write(path: Path, *documents: Any) -> Path:
    path.write_text(plain_yaml.dump_all(documents))
    return path


def test_yaml_of_the_sdk_is_the_same_pipeline_as_its_py_file(training: Compiled, training_yaml: Path) -> None:
    loaded = load(training_yaml)
    assert loaded.ir == training.ir
    assert loaded.platform == training.platform


def test_the_platform_document_survives_a_round_through_the_sdk(training: Compiled, training_yaml: Path) -> None:
    assert load(f"{training_yaml}.again.yaml").platform == training.platform


def test_a_compiled_pipeline_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(SPEC))
    assert load(path).pipeline == "built"


def test_a_compiled_pipeline_is_stored_and_read_back_equal(training: Compiled) -> None:
    assert restored(stored(training)) == training


def test_the_order_of_keys_in_the_file_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(dict(reversed(SPEC.items()))))
    assert json.dumps(load(path).ir) == json.dumps(load(write(tmp_path / "p.yaml", SPEC)).ir)


def test_loading_never_imports_kfp(training_yaml: Path) -> None:
    script = (
        "import sys; from spotwright.kfp.loader import load; load(sys.argv[1])\n"
        "assert 'kfp' not in sys.modules and 'kfp.dsl' not in sys.modules\n"
        "import kfp.dsl; from kfp.pipeline_spec import pipeline_spec_pb2\n"  # a notebook's own import still works
        "assert pipeline_spec_pb2.PipelineSpec and kfp.Client\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(training_yaml)], check=True)


def test_a_large_file_is_parsed_in_another_process_so_that_memory_here_stays_small(tmp_path: Path) -> None:
    """In a separate process: here it would leave 60 MB behind."""
    count = 1500
    spec = ir({f"t-{n}": task(f"t-{n}") for n in range(count)})
    path = tmp_path / "large.json"
    path.write_text(json.dumps(spec, indent=2))
    assert path.stat().st_size > 1_000_000
    script = (
        "import sys; from spotwright.kfp.loader import load\n"
        f"assert len(load(sys.argv[1]).ir['components']) == {count}\n"
        "assert 'google.protobuf' not in sys.modules\n"
        "peak = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]\n"
        "assert int(peak) < 60_000, peak\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    path.write_text(json.dumps({**spec, "schemaVersion": "9"}, indent=2))
    with pytest.raises(PipelineError, match="schemaVersion is '9'"):
        load(path)


def test_importing_the_modules_of_a_run_imports_no_heavy_library() -> None:
    script = (
        "import sys\nimport spotwright.kfp.pipeline_graph, spotwright.kfp.loader\n"
        "import spotwright.kfp.launcher\n"
        "import spotwright.policies\n"
        "heavy = {'kfp', 'google.protobuf', 'yaml', 'asyncio', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_file_that_is_no_text_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"root: {}\n\xe6")
    with pytest.raises(PipelineError, match=r"p.yaml:2: expected UTF-8 text, found the byte 0xe6"):
        load(path)


def changed(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in {**copy.deepcopy(SPEC), **fields}.items() if value is not None}


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "not a compiled pipeline"),
        ([[1]], "not a compiled pipeline"),
        (["text"], "not a compiled pipeline"),
        ([{}], "schemaVersion is missing; expected 2.0.0 or 2.1.0"),
        ([changed(schemaVersion="9.0")], "schemaVersion is '9.0'; expected 2.0.0 or 2.1.0"),
        ([changed(sdkVersion="kfp-1.8.22")], "compiled by kfp-1.8.22"),
        ([changed(odd=1)], r"p.yaml:\d+: odd: unknown key, known here: .*root"),
        ([changed(components=[1])], r"p.yaml:\d+: components: expected a mapping, found a list"),
        ([changed(pipelineInfo=None)], "pipelineInfo.name is missing"),
        (
            [changed(deploymentSpec={"executors": {"x": {"nothing": 1}}})],
            r"p.yaml:\d+: deploymentSpec.executors.x.nothing: unknown key",
        ),
        ([SPEC, SPEC], "expected one pipeline document"),
        ([{"platforms": {}}, SPEC], "expected one pipeline document"),
        ([{"platforms": {"kubernetes": {}}}], "this is only a platform document"),
        ([SPEC, {"platforms": {"kubernetes": {"odd": 1}}}], r"p.yaml:\d+: platforms.kubernetes.odd: unknown key"),
        ([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}], "Argo Workflow, as kfp 1 compiled them"),
        ([{"apiVersion": "v1", "kind": "Pod"}], "a Kubernetes object"),
        ([{"pipelineSpec": SPEC | {"sdkVersion": "kfp-1.8.9"}, "runtimeConfig": {}}], "kfp 1.8"),
        (
            [{"pipelineSpec": SPEC | {"sdkVersion": "kfp-2.7.0"}}],
            "a pipeline job; write the part below its pipelineSpec",
        ),
        ([{"name": "c", "implementation": {"container": {"image": "x"}}}], "a component, not a pipeline"),
    ],
)
def test_an_error_names_the_file_and_the_expected_document(tmp_path: Path, documents: list[Any], words: str) -> None:
    path = write(tmp_path / "p.yaml", *documents)
    with pytest.raises(PipelineError, match=words) as error:
        load(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).count("\n") == 0


def test_broken_yaml_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("a: 1\nb: [\nc: {]\n")
    with pytest.raises(PipelineError, match=r"p.yaml:3: not valid YAML"):
        load(path)


def test_broken_json_and_bytes_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("{")
    with pytest.raises(PipelineError, match="not valid JSON"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match=r"p.json:1: expected UTF-8 text, found the byte 0xff"):
        load(path)


def test_python_objects_in_yaml_are_not_created(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("!!python/object/apply:os.system ['true']\n")
    with pytest.raises(PipelineError, match=r"p.yaml:1: not valid YAML: the tag tag:.*os.system is not allowed"):
        load(path)


def test_deep_nesting_is_refused_without_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(changed())[:-1] + ', "x": ' + "[" * 900 + "]" * 900 + "}")
    with pytest.raises(PipelineError):
        load(path)


def test_two_components_that_share_an_executor_while_another_is_unused_are_refused(tmp_path: Path) -> None:
    merged = ir({"a": task("a"), "b": task("b")}, {"comp-b": component("a")})
    merged["deploymentSpec"]["executors"]["exec-b"] = merged["deploymentSpec"]["executors"]["exec-a"]
    with pytest.raises(PipelineError, match="the components comp-a and comp-b share one executor"):
        load(write(tmp_path / "p.yaml", merged))


def test_components_that_share_an_executor_on_purpose_are_kept(tmp_path: Path) -> None:
    shared = ir({"a": task("a"), "b": task("b")}, {"comp-b": component("a")})
    assert load(write(tmp_path / "p.yaml", shared)).pipeline == "built"


def test_the_second_name_that_kfp_2_13_gave_each_task_is_ignored(tmp_path: Path) -> None:
    twice = ir({"outer": task("inner")}, {"comp-inner": {"dag": {"tasks": {"a": task("a")}}}, "comp-a": component("a")})
    path = write(tmp_path / "p.yaml", twice)
    plain = load(path).ir
    for tasks in (twice["root"]["dag"]["tasks"], twice["components"]["comp-inner"]["dag"]["tasks"]):
        for name, each in tasks.items():
            each["taskInfo"] = {"name": name, "taskName": name}
    assert load(write(path, twice)).ir["root"]["dag"]["tasks"]["outer"]["taskInfo"] == {"name": "outer"}
    assert load(path).ir["components"].keys() == plain["components"].keys()


def test_an_unknown_field_is_named_with_its_line_and_keys(tmp_path: Path) -> None:
    odd = copy.deepcopy(SPEC)
    odd["root"]["dag"]["tasks"]["a"]["taskInfo"] = {"nam": "a"}
    path = write(tmp_path / "p.yaml", odd)
    with pytest.raises(PipelineError) as error:
        load(path)
    line = 1 + path.read_text().splitlines().index("          nam: a")
    assert str(error.value) == f"{path}:{line}: root.dag.tasks.a.taskInfo.nam: unknown key, known here: name"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("pipelineInfo", "name"), 7, "expected a text, found 7"),
        (("pipelineInfo",), "name", "expected a mapping, found 'name'"),
        (("root", "dag", "tasks"), [], "expected a mapping, found a list"),
        (("root", "dag", "tasks", "a"), None, "expected a mapping, found nothing"),
        (("root", "dag", "tasks", "a", "dependentTasks"), "b", "expected a list, found 'b'"),
        (("root", "dag", "tasks", "a", "dependentTasks"), ["b", 2], "expected a text, found 2"),
        (("root", "dag", "tasks", "a", "cachingOptions", "enableCache"), "yes", "expected true or false, found 'yes'"),
        (("root", "dag", "tasks", "a", "iteratorPolicy"), {"parallelismLimit": True}, "expected a number, found True"),
        (("root", "dag", "tasks", "a", "retryPolicy"), {"backoffDuration": "1m"}, "expected seconds such as '60s'"),
        (("root", "dag", "tasks", "a", "triggerPolicy"), {"strategy": "ALWAYS"}, "expected one of TRIGGER_STRATEGY_"),
        (("components", "comp-a", "executorLabel"), ["exec-a"], "expected a text, found a list"),
        (("deploymentSpec", "executors", "exec-a", "container", "args"), "--x", "expected a list, found '--x'"),
        (("deploymentSpec", "executors"), [1], r"expected a mapping, found \[1"),
        (("deploymentSpec",), ["executors"], "expected a mapping, found a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_line_and_the_expected_kind(
    tmp_path: Path, place: tuple[str, ...], value: Any, words: str
) -> None:
    wrong = copy.deepcopy(SPEC)
    inside: Any = wrong
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    path = write(tmp_path / "p.yaml", wrong)
    with pytest.raises(PipelineError, match=rf"p.yaml:\d+: {'.'.join(place)}[\w.]*: {words}"):
        load(path)


def test_a_repeated_key_is_refused_with_the_line_of_the_second(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    text = plain_yaml.dump(SPEC)
    path.write_text(text.replace("pipelineInfo:\n", "pipelineInfo:\n  name: first\n"))
    line = 2 + path.read_text().splitlines().index("  name: first")
    problem = f"p.yaml:{line}: not valid YAML: the key 'name' stands here and on line {line - 1}"
    with pytest.raises(PipelineError, match=problem):
        load(path)
    path.write_text(text.replace("componentRef:\n", "componentRef: &ref\n"))
    assert load(path).pipeline == "built"


def test_anchors_that_expand_to_too_many_values_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    bomb = "".join(f"- &x{n} [{', '.join([f'*x{n - 1}' if n else '1'] * 10)}]\n" for n in range(9))
    for text, problem in (
        (bomb, "the aliases unfold to more than 1,000,000 values"),
        ("- &x [*x]\n", r"the alias \*x names no anchor that ended before it"),
    ):
        path.write_text(text)
        with pytest.raises(PipelineError, match=problem):
            load(path)


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    endless = {"parameters": {"n": {"parameterType": "NUMBER_DOUBLE", "defaultValue": float("inf")}}}
    path = write(tmp_path / "p.yaml", ir({"a": task("a")}, {"comp-a": component("a", inputs=endless)}))
    with pytest.raises(PipelineError, match="it holds infinity or NaN"):
        load(path)


def test_an_empty_platform_document_is_the_same_as_none(tmp_path: Path) -> None:
    assert load(write(tmp_path / "p.yaml", SPEC, {"platforms": None})).platform == {}


def test_server_settings_of_a_newer_sdk_are_accepted(tmp_path: Path) -> None:
    config = {"pipelineConfig": {"maxActiveRuns": 2, "workspace": {"size": "1Gi"}}}
    path = write(tmp_path / "p.yaml", SPEC, {"platforms": {"kubernetes": config}})
    assert load(path).platform == {"kubernetes": config}


def test_a_task_config_field_of_a_newer_sdk_is_left_out_with_a_warning(tmp_path: Path) -> None:
    passed = [{"field": "ENV", "applyToTask": True}, {"field": "KUBERNETES_RESOURCE_CLAIMS"}]
    components = {name: {**each, "taskConfigPassthroughs": passed} for name, each in SPEC["components"].items()}
    found = load(write(tmp_path / "p.yaml", {**SPEC, "components": components}))
    assert all(each["taskConfigPassthroughs"] == passed[:1] for each in found.ir["components"].values())
    assert "KUBERNETES_RESOURCE_CLAIMS is newer than the installed SDK" in found.warnings[0]


def test_an_unknown_workspace_setting_is_refused(tmp_path: Path) -> None:
    config = {"pipelineConfig": {"workspace": {"sise": "1Gi"}}}
    path = write(tmp_path / "p.yaml", SPEC, {"platforms": {"kubernetes": config}})
    with pytest.raises(PipelineError, match="sise"):
        load(path)


def test_a_pipeline_name_that_is_not_in_a_compiled_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "p.yaml", SPEC, {"platforms": kubernetes("exec-a")})
    assert load(path, pipeline="built").pipeline == "built"
    with pytest.raises(PipelineError, match="no pipeline 'other' here; the file contains built"):
        load(path, pipeline="other")


@pytest.mark.parametrize(
    ("name", "words"), [("none.yaml", "no such file"), (".", "a folder"), ("x.ipynb", "expected a .py")]
)
def test_a_path_that_holds_no_pipeline_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "x.ipynb").touch()
    with pytest.raises(PipelineError, match=words):
        load(tmp_path / name)


def test_the_retry_policy_of_a_newer_sdk_is_kept_in_the_root_and_in_components(tmp_path: Path) -> None:
    retry = {"maxRetryCount": 2, "policy": "POLICY_ON_ERROR"}
    inner = {"dag": {"tasks": {"b": {**task("a"), "retryPolicy": retry}}}}
    spec = copy.deepcopy(SPEC)
    spec["components"]["comp-inner"] = inner
    spec["root"]["dag"]["tasks"]["inner"] = {**task("inner"), "retryPolicy": {**retry, "policy": "POLICY_ALWAYS"}}
    found = load(write(tmp_path / "p.yaml", spec)).ir
    assert found["root"]["dag"]["tasks"]["inner"]["retryPolicy"]["policy"] == "POLICY_ALWAYS"
    assert found["components"]["comp-inner"]["dag"]["tasks"]["b"]["retryPolicy"] == retry


def test_an_unknown_retry_policy_is_refused_with_its_place(tmp_path: Path) -> None:
    spec = copy.deepcopy(SPEC)
    spec["root"]["dag"]["tasks"]["a"]["retryPolicy"] = {"policy": "POLICY_ON_MONDAYS"}
    with pytest.raises(PipelineError, match=r"root\.dag\.tasks\.a\.retryPolicy\.policy"):
        load(write(tmp_path / "p.yaml", spec))
