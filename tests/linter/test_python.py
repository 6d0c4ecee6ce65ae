"""Pipelines in Python: each name of kfp 1 has the line of today, and ``compile`` says the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.linter.linting import found_in

from spotwright.errors import PipelineError
from spotwright.kfp.dsl_compiler import KUBERNETES, METHODS, unknown_arguments
from spotwright.kfp.loader import load

HEAD = """\
from kfp import dsl, kubernetes

@dsl.component
def train(): ...

@dsl.pipeline
def main():
    task = train()
"""
TOLERATION = "    spot = V1Toleration(key='a', operator='Equal', value='b', effect='NoSchedule')\n    task.add_toleration(spot)\n"
AFFINITY = """\
    aff = V1Affinity(node_affinity=V1NodeAffinity(required=V1NodeSelector(node_selector_terms=[V1NodeSelectorTerm(
        match_expressions=[V1NodeSelectorRequirement(key='a', operator='In', values=['b'])])])))
    task.add_affinity(aff)
"""
LINES = {
    TOLERATION: "kfp.kubernetes.add_toleration(task, key='a', operator='Equal', value='b', effect='NoSchedule')",
    AFFINITY: "kfp.kubernetes.add_node_affinity(task, match_expressions=[{'key': 'a', 'operator': 'In', 'values': ['b']}])",
    "    task.add_node_selector_constraint('a', 'b')\n": "kfp.kubernetes.add_node_selector(task, label_key='a', label_value='b')",
    "    task.add_node_selector_constraint('NVIDIA_TESLA_T4')\n": "task.set_accelerator_type('nvidia.com/gpu') and "
    "kfp.kubernetes.add_node_selector(task, 'cloud.google.com/gke-accelerator', 'nvidia-tesla-t4')",
    "    task.set_gpu_limit(4)\n": "task.set_accelerator_type('nvidia.com/gpu').set_accelerator_limit(4)",
    "    task.apply(gcp.use_preemptible_nodepool())\n": "spot.prefer(task)",
    "    task.apply(gcp.use_gcp_secret('sa'))\n": "kfp.kubernetes.use_secret_as_volume(task, secret_name='sa', mount_path=",
    "    task.add_env_variable(V1EnvVar(name='A', value='1'))\n": "task.set_env_variable('A', '1')",
    "    dsl.ContainerOp(name='x', image='y', arguments=['z'])\n": "returns dsl.ContainerSpec(image='y', args=['z'])",
    "    task.add_volume(v)\n": "kfp.kubernetes.mount_pvc(task, pvc_name=..., mount_path=...)",
}


@pytest.mark.parametrize("line", LINES, ids=list(LINES.values()))
def test_a_line_of_kfp_1_has_the_line_of_today(line: str) -> None:
    [finding] = [one for one in found_in(HEAD + line, python=True) if one.rule.startswith("kfp1")]

    assert LINES[line] in finding.text
    assert finding.line == HEAD.count("\n") + line.count("\n")


@pytest.mark.parametrize(
    "line",
    [
        "    kubernetes.add_toleration(task, key='a')\n",
        "    kubernetes.mount_pvc(task, pvc_name='a', mount_path='/a')\n",
        "    kubernetes.set_image_pull_policy(task, 'Always')\n",
    ],
)
def test_functions_of_today_that_kfp_1_had_as_methods_are_not_found(line: str) -> None:
    assert found_in(HEAD + line, python=True) == []


def test_code_of_components_is_not_taken_for_a_pipeline() -> None:
    text = HEAD.replace(
        "def train(): ...",
        "def train():\n    frame.apply(use_gcp_secret)\n    fig.add_volume(x)\n    c.set_gpu_limit(1)",
    )

    assert [one for one in found_in(text, python=True) if one.rule.startswith("kfp1")] == []


def test_files_without_kfp_are_left_alone() -> None:
    assert found_in("import pandas\nframe = pandas.DataFrame().apply(len)\nx.add_volume(1)\n", python=True) == []


def test_other_names_of_the_module_are_known() -> None:
    text = HEAD.replace("from kfp import dsl, kubernetes", "from kfp import dsl\nfrom kfp import kubernetes as kube")

    assert found_in(text + "    kube.add_toleration(task, key='a')\n", python=True) == []


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_handler_of_sigterm_with_an_exit_code_of_its_own_is_found(exit_code: int) -> None:
    text = f"import signal, sys\ndef stop(*_):\n    sys.exit({exit_code})\nsignal.signal(signal.SIGTERM, stop)\n"

    assert [(one.rule, one.line) for one in found_in(text, python=True)] == [("sigterm-exit-code", 3)]
    assert found_in(text.replace(f"exit({exit_code})", "exit(143)"), python=True) == []


def test_two_required_affinities_are_alternatives() -> None:
    one = "    kubernetes.add_node_affinity(task, match_expressions=[{'key': 'a', 'operator': 'Exists'}])\n"

    assert [(found.rule, found.line) for found in found_in(HEAD + one + one, python=True)] == [
        ("kfp-affinities-ored", 10)
    ]
    assert found_in(HEAD + one + one.replace("}])", "}], weight=5)"), python=True) == []


def test_a_factor_of_a_half_is_found() -> None:
    line = "    task.set_retry(3, backoff_factor=1.5, backoff_max_duration='30d')\n"

    assert {one.rule for one in found_in(HEAD + line, python=True)} == {"kfp-backoff-factor"}


def test_a_window_of_an_hour_is_found_where_spot_is_meant() -> None:
    line = "    task.set_retry(3)\n"
    spot = "    kubernetes.add_node_selector(task, 'cloud.google.com/gke-spot', 'true')\n"
    shield = "    kubernetes.add_pod_annotation(task, 'cluster-autoscaler.kubernetes.io/safe-to-evict', 'false')\n"

    assert {one.rule for one in found_in(HEAD + spot + shield + line, python=True)} == {
        "kfp-retry-window",
        "no-fallback",
    }
    assert found_in(HEAD + line, python=True) == []


def test_a_flag_of_the_past_is_found_in_a_command() -> None:
    text = "import subprocess\nsubprocess.run(['gcloud', 'container', 'node-pools', 'create', 'a', '--preemptible'])\n"

    assert {one.rule for one in found_in(text, python=True)} == {"preemptible-flag"}


@pytest.mark.slow
@pytest.mark.parametrize("line", ["    task.add_toleration(None)\n", "    task.set_retry(2, backoff_dureation='5m')\n"])
def test_compile_says_what_lint_says(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(HEAD + line)
    [finding] = [
        one for one in found_in(HEAD + line, python=True) if one.rule in ("kfp1-task-setting", "unknown-argument")
    ]

    with pytest.raises(PipelineError) as caught:
        load(file)

    assert str(caught.value).splitlines()[0] == f"{file}:{finding.line}: {finding.text}"


@pytest.mark.slow
def test_the_arguments_are_those_of_the_installed_sdk() -> None:
    import inspect

    from kfp import kubernetes
    from kfp.dsl import pipeline_task

    methods = {
        name: list(inspect.signature(getattr(pipeline_task.PipelineTask, name)).parameters)[1:] for name in METHODS
    }
    functions = {name: list(inspect.signature(getattr(kubernetes, name)).parameters) for name in KUBERNETES}

    assert {name: list(given) for name, given in METHODS.items()} == methods
    assert {name: list(given) for name, given in KUBERNETES.items()} == functions


def test_functions_of_the_file_may_have_arguments_of_their_own() -> None:
    text = "def add_toleration(task, colour): ...\nadd_toleration(task, colour=1)\n"

    assert unknown_arguments(ast.parse(text)) == []


@pytest.mark.parametrize(
    "line",
    [
        "kubernetes.add_node_affinity(a, [{'key': 'cloud.google.com/gke-spot', 'values': ['true']}], weight=100)",
        "kubernetes.add_node_selector(a, 'pool', 'true')",
        "a.add_affinity(given)",
    ],
)
def test_a_task_that_only_prefers_spot_nodes_or_says_nothing_of_them_has_a_fallback(line: str) -> None:
    text = f"from kfp import dsl, kubernetes\n\n@dsl.pipeline\ndef main(given):\n    a = op()\n    {line}\n"

    assert "no-fallback" not in {one.rule for one in found_in(text, python=True)}
