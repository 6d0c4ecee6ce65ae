"""Find arguments that a function of the KFP SDK does not have, in a file that is parsed and not run.

A misspelt argument fails when the file is loaded; ``run``, ``compile`` and ``lint`` give one message. The arguments are those
of kfp and kfp-kubernetes 2.17; a test compares them with the installed SDK. A name that the file defines itself is left out.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["KUBERNETES", "METHODS", "UnknownArgument", "unknown_arguments"]

METHODS: Mapping[str, tuple[str, ...]] = {
    "set_accelerator_limit": ("limit",),
    "set_accelerator_type": ("accelerator",),
    "set_caching_options": ("enable_caching", "cache_key"),
    "set_container_image": ("name",),
    "set_cpu_limit": ("cpu",),
    "set_cpu_request": ("cpu",),
    "set_display_name": ("name",),
    "set_env_variable": ("name", "value"),
    "set_memory_limit": ("memory",),
    "set_memory_request": ("memory",),
    "set_retry": ("num_retries", "backoff_duration", "backoff_factor", "backoff_max_duration"),
}
"""The methods of a task, with their arguments."""

KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "add_ephemeral_volume": (
        *("task", "volume_name", "mount_path", "access_modes", "size", "storage_class_name", "labels", "annotations"),
    ),
    "add_node_affinity": ("task", "match_expressions", "match_fields", "weight"),
    "add_node_affinity_json": ("task", "node_affinity_json"),
    "add_node_selector": ("task", "label_key", "label_value"),
    "add_node_selector_json": ("task", "node_selector_json"),
    "add_pod_annotation": ("task", "annotation_key", "annotation_value"),
    "add_pod_label": ("task", "label_key", "label_value"),
    "add_toleration": ("task", "key", "operator", "value", "effect", "toleration_seconds"),
    "add_toleration_json": ("task", "toleration_json"),
    "empty_dir_mount": ("task", "volume_name", "mount_path", "medium", "size_limit"),
    "mount_pvc": ("task", "pvc_name", "mount_path", "sub_path"),
    "set_image_pull_policy": ("task", "policy"),
    "set_image_pull_secrets": ("task", "secret_names"),
    "set_security_context": ("task", "run_as_user", "run_as_group", "run_as_non_root"),
    "set_timeout": ("task", "seconds"),
    "use_config_map_as_env": ("task", "config_map_name", "config_map_key_to_env", "optional"),
    "use_config_map_as_volume": ("task", "config_map_name", "mount_path", "optional"),
    "use_field_path_as_env": ("task", "env_name", "field_path"),
    "use_secret_as_env": ("task", "secret_name", "secret_key_to_env", "optional"),
    "use_secret_as_volume": ("task", "secret_name", "mount_path", "optional"),
}
"""The functions of ``kfp.kubernetes``, with their arguments."""


class UnknownArgument(NamedTuple):
    """An argument that a function does not have: where its name stands, and the argument that was meant, if one is close."""

    line: int
    column: int
    function: str
    argument: str
    close: str

    @property
    def message(self) -> str:
        """The sentence for the user."""
        hint = f"; did you mean {self.close}?" if self.close else ""
        return f"{self.function} has no argument {self.argument}{hint}"


def unknown_arguments(tree: ast.AST) -> list[UnknownArgument]:
    """The unknown arguments in calls of the SDK, in the order of the lines."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return sorted(one for node in ast.walk(tree) if isinstance(node, ast.Call) for one in _of_call(node, own))


def _of_call(call: ast.Call, own: set[str]) -> Iterator[UnknownArgument]:
    name = _name(call.func)
    if name in own:
        return
    is_method = name in METHODS and isinstance(call.func, ast.Attribute)
    known = METHODS[name] if is_method else KUBERNETES.get(name) if _is_of_sdk(call, name) else None
    for keyword in call.keywords if known is not None else ():
        if keyword.arg and known is not None and keyword.arg not in known:
            close = difflib.get_close_matches(keyword.arg, known, n=1)
            yield UnknownArgument(keyword.lineno, keyword.col_offset, name, keyword.arg, close[0] if close else "")


def _name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _is_of_sdk(call: ast.Call, name: str) -> bool:
    """Whether a call is of ``kfp.kubernetes``, which takes the task first, and not a method of that name in kfp 1."""
    if isinstance(call.func, ast.Name):
        return name in KUBERNETES
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return owner.rpartition(".")[2] in ("kubernetes", "k8s")
