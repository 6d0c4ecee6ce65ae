"""Rules on pipelines written for kfp 1: each finding has the line of today, with the values of the file.

``run`` and ``compile`` give the same message when such a file fails to load: :mod:`spotwright.kfp.kfp1` writes both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from spotwright.kfp.kfp1 import STILL_THERE, Kfp1Finding, kfp1_in
from spotwright.lint.python_rules.scopes import in_components
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.python_files import PythonFile

__all__ = ["RULES"]

_MAKERS = frozenset(
    {
        "ContainerOp",
        "VolumeOp",
        "ResourceOp",
        "func_to_container_op",
        "create_component_from_func",
        "create_component_from_func_v2",
        "get_pipeline_conf",
        "InputPath",
        "OutputPath",
    }
)
_CALLED_WITH = frozenset(
    {"use_preemptible_nodepool", "use_gcp_secret", "use_k8s_secret", "use_aws_secret", "mount_pvc"}
)
_TODAY = frozenset({"kubernetes", "k8s"})


def _is_of_today(finding: Kfp1Finding, node: ast.AST, modules: frozenset[str]) -> bool:
    """Whether a name is used as kfp 2 has it: a function of ``kfp.kubernetes``, or an ``apply`` of another library."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = ast.unparse(node.value)
    if owner.rpartition(".")[2] in _TODAY or owner in modules:
        return True
    if finding.name == "apply":
        return "use_" not in finding.replacement and not finding.replacement.startswith(
            ("spot.", "kfp.kubernetes.use_", "kfp.kubernetes.mount")
        )
    return finding.name == "execution_options" and "caching_strategy" not in owner


def _aliases(file: PythonFile) -> frozenset[str]:
    """The names under which a file imports ``kfp.kubernetes``."""
    found = set()
    for node in file.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.asname for alias in node.names if alias.name == "kfp.kubernetes" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "kfp":
            found |= {alias.asname or alias.name for alias in node.names if alias.name == "kubernetes"}
    return frozenset(found)


def _check(wanted: Callable[[Kfp1Finding, ast.AST], bool]) -> Callable[[PythonFile, Settings], Iterator[Problem]]:
    """A check for some of the names of kfp 1."""

    def check(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
        known = _MAKERS | _CALLED_WITH
        is_fragment = any(isinstance(node, ast.Attribute) and node.attr in known for node in file.nodes)
        if not file.uses_kfp and not is_fragment and not _is_pipeline(file):
            return
        inside, modules = in_components(file), _aliases(file)
        found = [pair for pair in kfp1_in(file.tree) if id(pair[1]) not in inside and not _is_of_today(*pair, modules)]
        applied = {finding.line for finding, _ in found if finding.name == "apply"}
        for finding, node in found:
            is_said = finding.name in _CALLED_WITH and finding.line in applied  # by the apply around it
            if wanted(finding, node) and not is_said:
                yield Problem((), finding.message, f"Write {finding.replacement}.", line=finding.line)

    return check


def _is_pipeline(file: PythonFile) -> bool:
    """Whether a file has a function under ``@dsl.pipeline``, whatever it imports."""
    functions = (node for node in file.nodes if isinstance(node, ast.FunctionDef))
    return any("dsl.pipeline" in ast.unparse(one) for node in functions for one in node.decorator_list)


def _is_module(finding: Kfp1Finding, node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Import | ast.ImportFrom)
        and finding.name.startswith("kfp.")
        and finding.name not in STILL_THERE
    )


def _is_maker(finding: Kfp1Finding, _node: ast.AST) -> bool:
    return finding.name in _MAKERS


def _still_works(finding: Kfp1Finding) -> bool:
    """Whether the line loads with kfp 2: ``add_node_selector_constraint`` takes one argument there."""
    if finding.name == "add_node_selector_constraint":
        return "label_value=" not in finding.replacement
    return finding.name in STILL_THERE


def _is_method(finding: Kfp1Finding, node: ast.AST) -> bool:
    return not _is_module(finding, node) and not _is_maker(finding, node) and not _still_works(finding)


def _is_outdated(finding: Kfp1Finding, _node: ast.AST) -> bool:
    return _still_works(finding)


_HEAD = (
    "from kfp import dsl, kubernetes\n\n\n@dsl.component\ndef train(): ...\n\n\n"
    "@dsl.pipeline\ndef main():\n    task = train()\n"
)

RULES = (
    Rule(
        id="kfp1-module",
        severity=Severity.ERROR,
        title="A module of kfp 1",
        why="kfp 2 has no kfp.gcp, kfp.aws, kfp.azure and kfp.onprem: the file does not load. Preemptible nodes, "
        "secrets and volumes are set by spot.prefer and by kfp.kubernetes.",
        fix="Write the line of today.",
        fails="import kfp.gcp as gcp\nfrom kfp import dsl\n",
        passes="from kfp import dsl, kubernetes\n",
        checks=Checks(python=_check(_is_module)),
        source='KFP documentation, "Migrate to Kubeflow Pipelines v2"',
    ),
    Rule(
        id="kfp1-component",
        severity=Severity.ERROR,
        title="A component as kfp 1 made it",
        why="ContainerOp and func_to_container_op do not exist in kfp 2: the file does not load.",
        fix="Write a function under @dsl.component or @dsl.container_component.",
        fails="from kfp import dsl\n\n\ndef check_op():\n"
        '    return dsl.ContainerOp(name="check", image="tensorflow/tensorflow", command=["nvidia-smi"])\n',
        passes="from kfp import dsl\n\n\n@dsl.container_component\ndef check():\n"
        '    return dsl.ContainerSpec(image="tensorflow/tensorflow", command=["nvidia-smi"])\n',
        checks=Checks(python=_check(_is_maker)),
    ),
    Rule(
        id="kfp1-task-setting",
        severity=Severity.ERROR,
        title="A setting of a task as kfp 1 had it",
        why="Tolerations, affinity, volumes and secrets are functions of kfp.kubernetes now, which take the task; the "
        "methods of kfp 1 do not exist, and add_node_selector_constraint takes one argument, which is an accelerator.",
        fix="Write the line of today.",
        fails=_HEAD.replace("dsl, kubernetes", "dsl\nfrom kubernetes.client import V1Toleration")
        + '    spot = V1Toleration(key="sku", operator="Equal", value="gpu", effect="NoSchedule")\n    '
        "task.add_toleration(spot)\n",
        passes=_HEAD
        + '    kubernetes.add_toleration(task, key="sku", operator="Equal", value="gpu", effect="NoSchedule")\n',
        checks=Checks(python=_check(_is_method)),
    ),
    Rule(
        id="kfp1-outdated",
        severity=Severity.WARNING,
        title="A name of kfp 1 that does not do what it did",
        why="The name still loads. A GPU limit without a type has no effect in some versions, and kfp.v2 goes with the "
        "next one.",
        fix="Write the line of today.",
        fails=_HEAD + "    task.set_gpu_limit(1)\n",
        passes=_HEAD + '    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)\n',
        checks=Checks(python=_check(_is_outdated)),
    ),
)
"""The rules of this module."""
