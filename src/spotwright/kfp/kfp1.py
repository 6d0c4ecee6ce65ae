"""Find a pipeline's lines for kfp 1, and write their current replacements with the values of the file.

Most count only once loading the file has failed, because some of these names still work or are the user's.
Source of the advice: the KFP documentation, "Migrate to Kubeflow Pipelines v2".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = [
    "STILL_THERE",
    "Kfp1Finding",
    "advise",
    "assigned_calls",
    "find_kfp1",
    "kfp1_in",
    "line_of_today",
    "outdated",
]


_GPU = "nvidia.com/gpu"
_TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
_GPU_LABEL = "cloud.google.com/gke-accelerator"
_LONGEST = 300


def assigned_calls(tree: ast.AST) -> dict[str, ast.Call]:
    """The calls assigned to names of a file: ``toleration = V1Toleration(...)``. The last assignment counts."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            found.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def line_of_today(call: ast.Call, name: str, calls: Mapping[str, ast.Call]) -> str | None:
    """The replacement of a call of ``name``; ``None`` where no line can be written. ``calls`` are :func:`assigned_calls`."""
    write = {
        "add_toleration": _toleration,
        "add_affinity": _affinity,
        "add_node_selector_constraint": _node_selector,
        "set_gpu_limit": _gpus,
        "apply": _applied,
        "ContainerOp": _component,
        "add_env_variable": _variable,
    }.get(name)
    line = write(call, calls) if write is not None else None
    return line if line is not None and len(line) <= _LONGEST else None


def _task(call: ast.Call) -> str:
    """The task that a method is called on: the name at the beginning of a chain of calls, ``task`` where it has none."""
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
            return "task"  # made in the same chain: train_op(...).apply(...)
        if isinstance(node, ast.Attribute) and node.attr[:1].isupper():
            return "task"  # dsl.ContainerOp(...).set_gpu_limit(1)
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else "task"


def _resolved(node: ast.expr | None, calls: Mapping[str, ast.Call]) -> ast.Call | None:
    if isinstance(node, ast.Name):
        return calls.get(node.id)
    return node if isinstance(node, ast.Call) else None


def _first(call: ast.Call) -> ast.expr | None:
    return call.args[0] if call.args else call.keywords[0].value if call.keywords else None


def _keywords(call: ast.Call) -> dict[str, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}


def _toleration(call: ast.Call, calls: Mapping[str, ast.Call]) -> str | None:
    made = _resolved(_first(call), calls)
    if made is None:
        return None
    given = _keywords(made)
    names = ("key", "operator", "value", "effect", "toleration_seconds")
    written = ", ".join(f"{name}={given[name]}" for name in names if name in given)
    return f"kfp.kubernetes.add_toleration({_task(call)}, {written})" if written else None


def _affinity(call: ast.Call, calls: Mapping[str, ast.Call]) -> str | None:
    made = _resolved(_first(call), calls)
    requirements = [] if made is None else [one for one in ast.walk(made) if _is_requirement(one)]
    if not requirements:
        return None
    expressions = []
    for one in requirements:
        given = _keywords(one) if isinstance(one, ast.Call) else {}
        pairs = (f"'{name}': {given[name]}" for name in ("key", "operator", "values") if name in given)
        expressions.append(f"{{{', '.join(pairs)}}}")
    return f"kfp.kubernetes.add_node_affinity({_task(call)}, match_expressions=[{', '.join(expressions)}])"


def _is_requirement(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("V1NodeSelectorRequirement")


def _node_selector(call: ast.Call, _calls: Mapping[str, ast.Call]) -> str | None:
    values = [ast.unparse(one) for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    if len(values) == 2:
        return f"kfp.kubernetes.add_node_selector({_task(call)}, label_key={values[0]}, label_value={values[1]})"
    return _accelerator(_task(call), values[0]) if len(values) == 1 else None


def _accelerator(task: str, named: str) -> str:
    """The lines for a model of GPU, as Python source: a resource that nodes offer, and GKE's label for the model."""
    device = f"{task}.set_accelerator_type('{_GPU}')"
    if "/" in named:  # the name of a resource already
        return f"{task}.set_accelerator_type({named})"
    model = named.lower().replace("_", "-")  # Vertex AI writes NVIDIA_TESLA_T4 for nvidia-tesla-t4
    return f"{device} and kfp.kubernetes.add_node_selector({task}, '{_GPU_LABEL}', {model})"


def _gpus(call: ast.Call, _calls: Mapping[str, ast.Call]) -> str | None:
    count = _first(call)
    task = _task(call)
    if count is None:
        return None
    line = f"{task}.set_accelerator_type('{_GPU}').set_accelerator_limit({ast.unparse(count)})"
    return f"{line}, or spot.prefer({task}, gpus={ast.unparse(count)})"


def _applied(call: ast.Call, _calls: Mapping[str, ast.Call]) -> str | None:
    inner = _first(call)
    if not isinstance(inner, ast.Call):
        return None
    task, used = _task(call), ast.unparse(inner.func).rpartition(".")[2]
    if used == "use_preemptible_nodepool":
        is_hard = _keywords(inner).get("hard_constraint") == "True"
        return f"spot.{'require' if is_hard else 'prefer'}({task})  (import spotwright as spot)"
    if used == "use_tpu":
        device = f"{task}.set_accelerator_type('google.com/tpu').set_accelerator_limit({_keywords(inner).get('tpu_cores', 'n')})"
        return f"{device} and kfp.kubernetes.add_node_selector({task}, '{_TPU_LABEL}', ...)"
    if used == "add_gpu_toleration":
        return f"{task}.set_accelerator_type('{_GPU}').set_accelerator_limit(1), or spot.prefer({task}, gpus=1)"
    if used == "use_gcp_secret":
        secret = ast.unparse(inner.args[0]) if inner.args else "'user-gcp-sa'"
        place = "mount_path='/secret/gcp-credentials'"
        return f"kfp.kubernetes.use_secret_as_volume({task}, secret_name={secret}, {place})"
    if used == "mount_pvc":
        given = [ast.unparse(one) for one in inner.args] + [f"{key}={value}" for key, value in _keywords(inner).items()]
        return f"kfp.kubernetes.mount_pvc({task}, {', '.join(given) or 'pvc_name=..., mount_path=...'})"
    return None


def _component(call: ast.Call, _calls: Mapping[str, ast.Call]) -> str | None:
    given = _keywords(call)
    if "image" not in given:
        return None
    parts = [f"image={given['image']}"]
    parts += [f"command={given['command']}"] if "command" in given else []
    parts += [f"args={given['arguments']}"] if "arguments" in given else []
    return f"a function under @dsl.container_component that returns dsl.ContainerSpec({', '.join(parts)})"


def _variable(call: ast.Call, calls: Mapping[str, ast.Call]) -> str | None:
    made = _resolved(_first(call), calls)
    given = _keywords(made) if made is not None else {}
    if "name" not in given or "value" not in given:
        return None
    return f"{_task(call)}.set_env_variable({given['name']}, {given['value']})"


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
    "use_tpu": f"task.set_accelerator_type('google.com/tpu') and kfp.kubernetes.add_node_selector(task, '{_TPU_LABEL}', ...)",
    "add_gpu_toleration": f"task.set_accelerator_type('{_GPU}').set_accelerator_limit(n), or spot.prefer(task, gpus=n)",
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
    "ComponentStore": "components.load_component_from_file(...) or components.load_component_from_url(...)",
    "func_to_container_op": "@dsl.component above the function",
    "create_component_from_func": "@dsl.component above the function",
    "create_component_from_func_v2": "@dsl.component above the function",
    "get_pipeline_conf": "spot.defaults(...) above @dsl.pipeline, or settings of each task",
    "apply": "kfp.kubernetes functions that take the task, or spot.prefer(task) for preemptible nodes",
}
_MOVED = {name: f"dsl.{name}(...)" for name in ("InputPath", "OutputPath")}  # from kfp.components
_EXIT, _ARCHIVE = "exit_op", "an archive as package"
_ARGUMENTS = {_EXIT: "exit_task=", _ARCHIVE: "a .yaml file as package_path"}
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
    """The calls of a file by the identity of the callee, and those assigned to its names."""

    calls: Mapping[int, ast.Call]
    assigned: Mapping[str, ast.Call]


def _order(finding: Kfp1Finding) -> tuple[int, int]:
    return finding.line, [*_MODULES, *_MOVED, *_NAMES, *_ARGUMENTS].index(finding.name)


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


def _arguments(call: ast.Call) -> Iterator[Kfp1Finding]:
    """Arguments that kfp 2 lacks or refuses: the task of an exit handler, and a package that is an archive."""
    name = ast.unparse(call.func).rpartition(".")[2]
    for keyword in call.keywords if name == "ExitHandler" else ():
        if keyword.arg == _EXIT:
            yield Kfp1Finding(keyword.lineno, _EXIT, _ARGUMENTS[_EXIT])
    named = next((one.value for one in call.keywords if one.arg == "package_path"), None)
    package = named or (call.args[1] if len(call.args) > 1 else None)
    if name == "compile" and package is not None and _last_text(package).endswith((".tar.gz", ".tgz", ".zip")):
        yield Kfp1Finding(package.lineno, _ARCHIVE, _ARGUMENTS[_ARCHIVE])


def _last_text(node: ast.expr) -> str:
    """The constant end of a string expression."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[-1]
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _used(node: ast.AST, context: _Context) -> Iterator[Kfp1Finding]:
    if isinstance(node, ast.Call):
        yield from _arguments(node)
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        call = context.calls.get(id(node))
        line = line_of_today(call, node.attr, context.assigned) if call is not None else None
        yield Kfp1Finding(node.end_lineno or node.lineno, node.attr, line or _NAMES[node.attr])
    elif isinstance(node, ast.Attribute) and node.attr in _MOVED and ast.unparse(node.value) != "dsl":
        yield Kfp1Finding(node.lineno, node.attr, _MOVED[node.attr])


def outdated(source: str) -> list[Kfp1Finding]:
    """The names of kfp 1 that still work with kfp 2, if differently: a GPU limit without a type has no effect."""
    return [finding for finding in find_kfp1(source) if finding.name in STILL_THERE]


def advise(source: str, line: int, error: str) -> Kfp1Finding | None:
    """The finding that explains an error on a line: one on that line, else one that the error's message names."""
    findings = find_kfp1(source)
    here = [finding for finding in findings if finding.line == line]
    named = [finding for finding in findings if finding.name in error]
    return next(iter([*here, *named]), None)
