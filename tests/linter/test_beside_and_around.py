"""Facts beside the object, what pools hold, and Python whose arguments come from elsewhere."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import ON_SPOT, job

_HEAD = "from kfp import dsl, kubernetes\n\n\n@dsl.component\ndef train(): ...\n\n\n"
_PIPE = "@dsl.pipeline\ndef main():\n    t = train()\n"
_POOLS = (
    "version: 1\npools:\n  spot: {capacity: spot, provider: gke, node: {cpu: 8, nvidia.com/gpu: 2}, max_nodes: 3}\n"
    "  base: {capacity: on-demand, provider: gke, node: {cpu: 8}, max_nodes: 2}\n"
)


def rules(text: str, config: str = "", *, python: bool = False) -> set[str]:
    return {one.rule for one in found_in(text, config, python=python)}


@pytest.mark.parametrize(
    ("before", "call"),
    [
        (
            'SPOT = dict(key="cloud.google.com/gke-spot", value="true", effect="NoSchedule", operator="Equal")\n',
            "**SPOT",
        ),
        ('SPOT = {"key": "cloud.google.com/gke-spot", "operator": "Exists"}\n', "**SPOT"),
        ("from settings import SPOT\n", "**SPOT"),
        ("", "**tolerations()"),
    ],
)
def test_arguments_behind_two_stars_are_read_or_not_known(before: str, call: str) -> None:
    text = f"{before}{_HEAD}{_PIPE}    kubernetes.add_toleration(t, {call})\n"
    assert "toleration-refused" not in rules(text, python=True)


def test_a_constant_behind_two_stars_is_refused_as_if_written_out() -> None:
    text = f'BAD = dict(operator="Equal", value="x")\n{_HEAD}{_PIPE}    kubernetes.add_toleration(t, **BAD)\n'
    assert "toleration-refused" in rules(text, python=True)


@pytest.mark.parametrize(
    "other",
    [
        "t.set_gpu_limit(1)",
        't.add_node_selector_constraint("nvidia-l4")',
        "kubernetes.x(t) if False else None",
        "t.unknown()",
    ],
)
def test_a_call_that_is_not_known_silences_nothing_else_of_its_task(other: str) -> None:
    spot = 'kubernetes.add_toleration(t, key="cloud.google.com/gke-spot", operator="Exists", toleration_seconds=3)'
    found = rules(f"{_HEAD}{_PIPE}    {other}\n    {spot}\n", python=True)
    assert {"toleration-refused", "kfp-no-retries", "toleration-without-affinity"} <= found


def test_a_task_that_a_function_of_another_file_gets_is_left_out() -> None:
    text = f'from helpers import Setup\n{_HEAD}{_PIPE}    kubernetes.add_node_selector(t, "cloud.google.com/gke-spot", "true")\n'
    assert "kfp-no-retries" in rules(text, python=True)
    assert "kfp-no-retries" not in rules(f"{text}    Setup().apply_to(t)\n", python=True)


_CLAIM = (
    f"{_HEAD}@dsl.pipeline\ndef main():\n"
    '    claim = kubernetes.CreatePVC(pvc_name_suffix="-w", access_modes=["{mode}"], size="1Gi", storage_class_name="ssd")\n'
    "    with dsl.ParallelFor([1, 2, 3, 4, 5]{parallel}) as fold:\n        t = train()\n"
    '        t.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)\n'
    '        kubernetes.mount_pvc(t, pvc_name=claim.outputs["name"], mount_path="/work")\n'
)


@pytest.mark.parametrize(
    ("mode", "parallel", "is_found"),
    [
        ("ReadWriteOnce", "", True),
        ("ReadWriteOnce", ", parallelism=3", True),
        ("ReadWriteOnce", ", parallelism=2", False),
        ("ReadWriteMany", "", False),
    ],
)
def test_a_claim_that_a_pipeline_makes_is_one_of_one_node(mode: str, parallel: str, is_found: bool) -> None:
    text = _CLAIM.replace("{mode}", mode).replace("{parallel}", parallel)
    assert ("claim-of-one-node-shared" in rules(text, _POOLS, python=True)) is is_found


_DEFAULT = (
    "apiVersion: kubeflow.org/v1alpha1\nkind: PodDefault\nmetadata: {name: spot}\nspec:\n  selector: {matchLabels: {team: a}}\n"
    "  tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Exists}]\n---\n"
)
_SELECTS = job("nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}\n")


def test_a_toleration_that_a_pod_default_brings_is_there() -> None:
    labelled = _SELECTS.replace("    metadata:\n", "    metadata:\n      labels: {team: a}\n")
    assert "affinity-without-toleration" in rules(_DEFAULT + _SELECTS)
    assert "affinity-without-toleration" not in rules(_DEFAULT + labelled)
    assert "affinity-without-toleration" in rules(
        _DEFAULT.replace("name: spot}", "name: spot, namespace: b}") + labelled
    )


_LAID = (
    "apiVersion: kubeflow.org/v1alpha1\nkind: PodDefault\nmetadata: {name: saves}\nspec:\n  selector: {matchLabels: {team: a}}\n"
    "  env: [{name: CHECKPOINT_DIR, value: /saves}]\n  volumes: [{name: saves, emptyDir: {}}]\n"
    "  volumeMounts: [{name: saves, mountPath: /saves}]\n---\n"
)


@pytest.mark.parametrize("label", ["team: a", "team: b"])
def test_variables_and_volumes_that_a_pod_default_brings_count_as_those_of_the_pod(label: str) -> None:
    work = job(ON_SPOT).replace("    metadata:\n", f"    metadata:\n      labels: {{{label}}}\n")
    assert ("checkpoint-in-emptydir" in rules(_LAID + work)) is (label == "team: a")


def test_a_pod_default_is_laid_over_the_steps_of_a_workflow() -> None:
    text = (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n"
        "  - name: main\n    metadata: {labels: {team: a}}\n"
        "    nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}\n    container: {image: i, command: [train]}\n"
    )
    assert "affinity-without-toleration" in rules(text)
    assert "affinity-without-toleration" not in rules(_DEFAULT + text)


@pytest.mark.parametrize(("value", "is_found"), [(-11, True), (-10, False), (0, False)])
@pytest.mark.parametrize("named", ["priorityClassName: low\n", ""])
def test_a_priority_below_the_cut_off_is_found_by_its_class_or_the_global_default(
    value: int, is_found: bool, named: str
) -> None:
    head = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: low}\nglobalDefault: true\n"
    made = f"{head}value: {value}\n---\n"
    assert ("priority-below-cutoff" in rules(made + job(named))) is is_found
    assert "priority-below-cutoff" not in rules(made + job(named), "version: 1\ntarget: {autoscaler: karpenter}\n")


_GANG = (
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: g}}\nspec:\n  minAvailable: {least}\n  tasks:\n"
    "  - name: w\n    replicas: 16\n    template:\n      spec:\n        containers:\n"
    "        - {{name: m, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}\n"
)


def test_a_gang_is_compared_with_what_its_pools_hold_at_most() -> None:
    assert "gang-larger-than-pools" in rules(_GANG.format(least=16), _POOLS)
    assert "gang-larger-than-pools" not in rules(_GANG.format(least=6), _POOLS)
    unknown = _POOLS.replace("node: {cpu: 8, nvidia.com/gpu: 2}, ", "")
    assert "gang-larger-than-pools" not in rules(_GANG.format(least=16), unknown)


@pytest.mark.parametrize(
    "text",
    [
        "from kfp.components import ComponentStore\n",
        "from kfp import dsl\nwith dsl.ExitHandler(exit_op=x): ...\n",
        "from kfp import compiler\ncompiler.Compiler().compile(p, 'p.tar.gz')\n",
        "from kfp import compiler\ncompiler.Compiler().compile(p, package_path=f'{name}.zip')\n",
    ],
)
def test_more_of_kfp_1_is_named(text: str) -> None:
    assert rules(text, python=True) & {"kfp1-component", "kfp1-task-setting"}


def test_what_place_wrote_is_judged_where_its_author_wrote_it() -> None:
    spark = (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: e}\nspec:\n"
        "  restartPolicy: {type: Never}\n  executor:\n    nodeSelector: {cloud.google.com/gke-spot: 'true'}\n"
        "    tolerations: [{key: cloud.google.com/gke-spot, operator: Exists}]\n"
    )
    [fix] = [one.fix for one in found_in(spark) if one.rule == "no-retries"]
    assert "onFailureRetries" in fix
    assert "podFailurePolicy" not in fix
