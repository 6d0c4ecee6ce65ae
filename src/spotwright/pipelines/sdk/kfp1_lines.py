"""Write the line of today for a call of kfp 1, with the values that stand in the file.

``task.add_toleration(toleration)`` becomes ``kfp.kubernetes.add_toleration(task, key=..., ...)`` with the key of the
``V1Toleration`` that the name stands for. Values that cannot be read in the file stay ``...``. Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

__all__ = ["assigned_calls", "line_of_today"]

_GPU = "nvidia.com/gpu"
_LONGEST = 300


def assigned_calls(tree: ast.AST) -> dict[str, ast.Call]:
    """The calls that names of a file stand for: ``toleration = V1Toleration(...)``. The last assignment counts."""
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
    return f"{_task(call)}.set_accelerator_type({values[0]})" if len(values) == 1 else None


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
        return f"spot.prefer({task})  (import spotwright as spot)"
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
