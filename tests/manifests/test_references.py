"""References are found in all files of a command, and inside lists."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml
from tests.placing.placed import FILE, PREFER, a_config, place

from spotwright import kinds, manifests, placing
from spotwright.cli import cli
from spotwright.kinds.kind import all_kinds
from spotwright.manifests.files import place_text
from spotwright.placing.documents import References, may_be_referred_to, parse

TARGET = "{kubernetes: '1.33', trainer: '2.3'}"
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: mnist}
spec: {runtimeRef: {name: torch}}
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, image: torch}]}}}}
"""
EXPERIMENT = """\
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: search}
spec:
  trialTemplate:
    configMap: {configMapName: templates, configMapNamespace: kubeflow, templatePath: trial}
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: templates, namespace: kubeflow}
data:
  trial: |
    apiVersion: batch/v1
    kind: Job
    spec:
      template:
        spec:
          containers:
          - name: main
            image: python
"""
WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: flow}
spec: {workflowTemplateRef: {name: steps}}
"""
TEMPLATE = """\
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: steps}
spec:
  entrypoint: main
  templates:
  - name: main
    tolerations: [{key: team, operator: Exists}]
    container: {image: python}
"""
POLICY_FILE = """\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer}}
"""


def listed(*texts: str) -> str:
    """The objects as items of one ``List``, in block style."""
    items = "".join("- " + text.replace("\n", "\n  ").rstrip(" ") for text in texts)
    return f"apiVersion: v1\nkind: List\nitems:\n{items}"


def spotwright(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def items(text: str) -> list[Any]:
    return list(plain_yaml.load(text)["items"])


def test_a_runtime_is_found_in_a_list_that_is_referred_to() -> None:
    outcome = place(JOB, target=TARGET, beside=listed(TEMPLATE, RUNTIME))

    assert outcome.value["spec"]["runtimePatches"]


def test_a_runtime_in_the_same_list_is_found_and_placed_itself() -> None:
    outcome = place(listed(RUNTIME, JOB), target=TARGET)
    runtime, job = outcome.value["items"]

    assert runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 10
    assert job["spec"]["runtimePatches"]
    assert outcome.added == []


def test_an_experiment_and_its_template_are_found_in_one_list() -> None:
    _, config_map = place(listed(EXPERIMENT, CONFIG_MAP)).value["items"]

    assert "backoffLimit" in config_map["data"]["trial"]


def test_an_experiment_in_a_list_makes_the_config_map_of_another_file_its_template() -> None:
    result = place_text(CONFIG_MAP, FILE, a_config(PREFER), References(parse(listed(EXPERIMENT), "beside.yaml")))

    assert "backoffLimit" in result.text


def test_a_workflow_template_in_a_list_is_found() -> None:
    assert not place(WORKFLOW, beside=listed(RUNTIME, TEMPLATE)).reports("which was not given")


def test_a_line_of_an_item_is_the_line_of_its_file() -> None:
    outcome = place(WORKFLOW, beside=listed(RUNTIME, TEMPLATE))
    line = listed(RUNTIME, TEMPLATE)[: listed(RUNTIME, TEMPLATE).index("{name: steps}")].count("\n") + 1

    assert outcome.reports(f"(beside.yaml:{line})")


def test_a_template_that_is_only_read_is_not_reported_as_placed() -> None:
    assert place(EXPERIMENT, beside=CONFIG_MAP).reports("ConfigMap templates (beside.yaml:5), which is only read")
    assert place(f"{EXPERIMENT}---\n{CONFIG_MAP}").reports("ConfigMap templates (work.yaml:12), and is placed there")


def test_a_workflow_template_of_the_same_input_is_reported_as_placed_itself() -> None:
    assert place(f"{WORKFLOW}---\n{TEMPLATE}").reports("sets its own scheduling fields", "is placed itself")
    assert place(WORKFLOW, beside=TEMPLATE).reports("sets its own scheduling fields", "instead")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spotwright.yaml").write_text(POLICY_FILE)
    Path("job.yaml").write_text(JOB)
    Path("runtime.yaml").write_text(RUNTIME)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_files_of_one_command_know_each_other_and_come_back() -> None:
    spotwright("place", "job.yaml", "runtime.yaml", "--in-place")
    first = [Path(name).read_text() for name in ("job.yaml", "runtime.yaml")]
    assert "runtimeRef: {name: torch}" in first[0]
    assert "maxRestarts" in first[1]

    spotwright("place", "job.yaml", "runtime.yaml", "--in-place")
    assert [Path(name).read_text() for name in ("job.yaml", "runtime.yaml")] == first

    spotwright("unplace", "job.yaml", "runtime.yaml", "--in-place")
    assert [Path(name).read_text() for name in ("job.yaml", "runtime.yaml")] == [JOB, RUNTIME]


@pytest.mark.usefixtures("folder")
def test_a_copy_is_added_once_however_often_the_file_is_placed() -> None:
    for _ in range(2):
        spotwright("place", "job.yaml", "--with", "runtime.yaml", "--in-place")
        kinds = [document["kind"] for document in plain_yaml.load_all(Path("job.yaml").read_text())]
        assert kinds == ["TrainingRuntime", "TrainJob"]

    spotwright("unplace", "job.yaml", "--in-place")
    assert Path("job.yaml").read_text() == JOB


def test_an_object_in_another_namespace_is_not_the_one_that_is_meant() -> None:
    def config_map(namespace: str) -> str:
        return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: trials, namespace: {namespace}}}\n"

    beyond = References(parse(config_map("b"), "b.yaml"))
    references = References(parse(config_map("a"), "a.yaml"), beyond=beyond)

    found = [references.find("ConfigMap", "trials", namespace) for namespace in ("a", "b", "c", None)]

    assert [document.file if document else None for document in found] == ["a.yaml", "b.yaml", None, "a.yaml"]
    assert references.find("ConfigMap", "other") is None


@pytest.mark.parametrize(
    "line",
    [
        "kind: ConfigMap",
        "'kind' : 'ConfigMap'",
        '{"kind":"ConfigMap"}',
        "kind: &k ConfigMap",
        "kind: !!str\n  ConfigMap",
    ],
)
def test_a_kind_that_others_refer_to_is_recognized_in_every_style(line: str) -> None:
    assert may_be_referred_to(f"metadata: {{name: a}}\n{line}\n")
    assert not may_be_referred_to(line.replace("ConfigMap", "ConfigMaps"))


def names_in_lookups() -> set[str]:
    """The names of kinds in the functions that look up objects by their kind."""
    names: set[str] = set()
    for path in chain.from_iterable(
        Path(folder).rglob("*.py") for package in (kinds, manifests, placing) for folder in package.__path__
    ):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            nodes = list(ast.walk(function))
            called = {
                node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
            if called & {"find", "find_all"}:
                texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
                names |= {text for text in texts if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", text)}
    return names


def test_every_kind_that_is_looked_up_is_kept_for_references() -> None:
    names = names_in_lookups()

    assert names >= {"ConfigMap", "Experiment", "TrainingRuntime", "WorkflowTemplate", "ClusterWorkflowTemplate"}
    assert [name for name in sorted(names) if not may_be_referred_to(f"kind: {name}\n")] == []


def test_the_runtimes_of_the_trainer_and_lists_are_kept_for_references() -> None:
    runtimes = {
        kind.name for kind in all_kinds().values() if kind.version and kind.name.endswith(("Runtime", "Template"))
    }

    assert {"ClusterTrainingRuntime", "ClusterWorkflowTemplate"} <= runtimes
    assert all(may_be_referred_to(f"kind: {kind}\n") for kind in (*runtimes, "List", "ConfigMapList"))
    assert not may_be_referred_to("kind: Job\n")
