"""Find the lines of a pipeline that are written for kfp 1, and their replacements of today.

Most of them count only after loading the file has failed, because some of these names still work, or are the user's own.
Source of the advice: the KFP documentation, "Migrate to Kubeflow Pipelines v2".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spotwright.pipelines.sdk.kfp1_lines import assigned_calls, line_of_today

__all__ = ["STILL_THERE", "Kfp1Finding", "advise", "find_kfp1", "kfp1_in", "outdated"]

_SPOT = "spot.prefer(task)  (import spotwright as spot)"
_MODULES = {
    "kfp.v2": "from kfp import dsl, compiler",
    "kfp.gcp": f"{_SPOT} for preemptible nodes, kfp.kubernetes for secrets and volumes",
    "kfp.aws": "kfp.kubernetes.use_secret_as_env(task, ...)",
    "kfp.azure": "kfp.kubernetes.use_secret_as_env(task, ...)",
    "kfp.onprem": "kfp.kubernetes.mount_pvc(task, ...)",
    "kfp.containers": "@dsl.component(target_image=...)",
}
_NAMES = {
    "use_preemptible_nodepool": _SPOT,
    "use_gcp_secret": "kfp.kubernetes.use_secret_as_volume(task, secret_name=..., mount_path=...)",
    "use_k8s_secret": "kfp.kubernetes.use_secret_as_env(task, secret_name=..., secret_key_to_env={...})",
    "use_aws_secret": "kfp.kubernetes.use_secret_as_env(task, secret_name=..., secret_key_to_env={...})",
    "mount_pvc": "kfp.kubernetes.mount_pvc(task, pvc_name=..., mount_path=...)",
    "add_toleration": "kfp.kubernetes.add_toleration(task, key=..., operator=..., value=..., effect=...)",
    "add_affinity": "kfp.kubernetes.add_node_affinity(task, match_expressions=[{'key': ..., 'operator': ..., 'values': [...]}])",
    "add_pod_label": "kfp.kubernetes.add_pod_label(task, key, value)",
    "add_pod_annotation": "kfp.kubernetes.add_pod_annotation(task, key, value)",
    "add_volume": "kfp.kubernetes.mount_pvc(task, pvc_name=..., mount_path=...)",
    "add_volume_mount": "kfp.kubernetes.mount_pvc(task, pvc_name=..., mount_path=...)",
    "add_pvolumes": "kfp.kubernetes.mount_pvc(task, pvc_name=..., mount_path=...)",
    "add_env_variable": "task.set_env_variable(name, value)",
    "add_resource_limit": "task.set_cpu_limit(...), task.set_memory_limit(...) or task.set_accelerator_limit(...)",
    "add_resource_request": "task.set_cpu_request(...) or task.set_memory_request(...)",
    "set_image_pull_policy": "kfp.kubernetes.set_image_pull_policy(task, policy)",
    "set_gpu_limit": "task.set_accelerator_type('nvidia.com/gpu').set_accelerator_limit(n), or spot.prefer(task, gpus=n)",
    "add_node_selector_constraint": "kfp.kubernetes.add_node_selector(task, label_key, label_value)",
    "execution_options": "task.set_caching_options(False)",
    "ContainerOp": "a function under @dsl.component",
    "VolumeOp": "kfp.kubernetes.CreatePVC(...)",
    "ResourceOp": "a function under @dsl.component that calls the Kubernetes API",
    "func_to_container_op": "@dsl.component above the function",
    "create_component_from_func": "@dsl.component above the function",
    "create_component_from_func_v2": "@dsl.component above the function",
    "get_pipeline_conf": "spot.defaults(...) above @dsl.pipeline, or settings of each task",
    "apply": "kfp.kubernetes functions that take the task, or spot.prefer(task) for preemptible nodes",
}
_MOVED = {name: f"dsl.{name}(...)" for name in ("InputPath", "OutputPath")}  # from kfp.components
STILL_THERE = frozenset({"kfp.v2", "set_gpu_limit", "add_node_selector_constraint"})
"""Names of kfp 1 that kfp 2 still has."""


@dataclass(frozen=True, slots=True)
class Kfp1Finding:
    """A line of kfp 1: the name that shows it, and the code that replaces it today."""

    line: int
    name: str
    replacement: str

    @property
    def message(self) -> str:
        """The sentence for the user."""
        return f"{self.name} is kfp 1; write {self.replacement}"


def find_kfp1(source: str) -> list[Kfp1Finding]:
    """Every use of kfp 1 in a file, in the order of its lines; on one line the most telling name comes first."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return sorted({finding for finding, _ in kfp1_in(tree)}, key=_order)


def kfp1_in(tree: ast.AST) -> Iterator[tuple[Kfp1Finding, ast.AST]]:
    """Every use of kfp 1 in a syntax tree, with its node."""
    context = _Context(
        {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}, assigned_calls(tree)
    )
    for node in ast.walk(tree):
        for finding in _findings(node, context):
            yield finding, node


@dataclass(frozen=True, slots=True)
class _Context:
    """The calls of a file by the identity of what they call, and those that its names stand for."""

    calls: Mapping[int, ast.Call]
    assigned: Mapping[str, ast.Call]


def _order(finding: Kfp1Finding) -> tuple[int, int]:
    return finding.line, [*_MODULES, *_MOVED, *_NAMES].index(finding.name)


def _findings(node: ast.AST, context: _Context) -> Iterator[Kfp1Finding]:
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        for alias in node.names:
            if alias.name in _NAMES and (node.module or "").startswith("kfp"):
                yield Kfp1Finding(node.lineno, alias.name, _NAMES[alias.name])
    else:
        yield from _used(node, context)
        return
    for module in modules:
        for name, replacement in _MODULES.items():
            if module == name or module.startswith(f"{name}."):
                yield Kfp1Finding(node.lineno, name, replacement)


def _used(node: ast.AST, context: _Context) -> Iterator[Kfp1Finding]:
    if isinstance(node, ast.Attribute) and node.attr in _NAMES:
        call = context.calls.get(id(node))
        line = line_of_today(call, node.attr, context.assigned) if call is not None else None
        yield Kfp1Finding(node.end_lineno or node.lineno, node.attr, line or _NAMES[node.attr])
    elif isinstance(node, ast.Attribute) and node.attr in _MOVED and ast.unparse(node.value) != "dsl":
        yield Kfp1Finding(node.lineno, node.attr, _MOVED[node.attr])


def outdated(source: str) -> list[Kfp1Finding]:
    """The names of kfp 1 that still work with kfp 2, though not always as they did: a GPU limit without a type has no effect."""
    return [finding for finding in find_kfp1(source) if finding.name in STILL_THERE]


def advise(source: str, line: int, error: str) -> Kfp1Finding | None:
    """The finding that explains an error on a line: one on that line, or else one that the error's text names."""
    findings = find_kfp1(source)
    here = [finding for finding in findings if finding.line == line]
    named = [finding for finding in findings if finding.name in error]
    return next(iter([*here, *named]), None)
