"""Find the KFP SDK's pipeline objects in a module, compile them, and merge nested ones soundly.

It runs where ``kfp`` may be imported: in the compiler's own process, and in a notebook that has imported it already. ``kfp`` is
imported only inside functions.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from spotwright.errors import PipelineError
from spotwright.kfp.compiled import Compiled, sorted_json

__all__ = [
    "KUBERNETES",
    "METHODS",
    "UnknownArgument",
    "find_lone_component",
    "find_pipelines",
    "is_of_kubernetes",
    "outermost",
    "patched_compiler",
    "rebuild",
    "to_compiled",
    "unknown_arguments",
]


def find_pipelines(module: ModuleType) -> dict[str, Any]:
    """The pipelines of a module by function name: its own, or else the imported ones."""
    from kfp.dsl.graph_component import GraphComponent

    pipelines: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, GraphComponent) and not any(value is pipeline for pipeline in pipelines.values()):
            pipelines[name] = value
    own = {name: p for name, p in pipelines.items() if getattr(p.pipeline_func, "__module__", None) == module.__name__}
    return own or pipelines


def outermost(pipelines: Mapping[str, Any]) -> dict[str, Any]:
    """A file's pipelines that are not part of another: a single one is what the user means."""
    components = [pair for pipeline in pipelines.values() for pair in pipeline.pipeline_spec.components.items()]
    nested = {label for label, component in components if component.HasField("dag")}
    return {name: p for name, p in pipelines.items() if f"comp-{p.pipeline_spec.pipeline_info.name}" not in nested}


def find_lone_component(module: ModuleType) -> dict[str, Any]:
    """The component of a module that defines only this, by the name of its function: a pipeline of one task.

    ``kfp dsl compile`` takes such a file too. Empty where there are several, or a function without a decorator: that may be
    a pipeline whose ``@dsl.pipeline`` was forgotten.
    """
    from kfp.dsl.base_component import BaseComponent

    definitions: dict[str, Any] = {}
    for name, value in vars(module).items():
        is_component = isinstance(value, BaseComponent)
        function = (
            getattr(value, "python_func", None) or getattr(value, "pipeline_func", None) if is_component else value
        )
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            definitions[function.__name__ if is_component else name] = value
    alone = len(definitions) == 1 and all(isinstance(value, BaseComponent) for value in definitions.values())
    return definitions if alone else {}


def to_compiled(pipeline: Any, source: str, warnings: tuple[str, ...] = ()) -> Compiled:
    """The compiled form of an SDK pipeline object, without a detour over YAML."""
    from google.protobuf import json_format

    spec = json_format.MessageToDict(pipeline.pipeline_spec)
    platform = json_format.MessageToDict(pipeline.platform_spec)
    return Compiled(
        ir=sorted_json(spec),
        platform=sorted_json(platform.get("platforms") or {}),
        source=source,
        pipeline=spec["pipelineInfo"]["name"],
        warnings=warnings,
    )


def rebuild(pipeline: Any) -> Any:
    """Run a pipeline's function again, so that :func:`patched_compiler` merges the pipelines inside it."""
    from kfp.dsl.component_factory import create_graph_component_from_func

    info = pipeline.pipeline_spec.pipeline_info
    rebuilt = create_graph_component_from_func(
        pipeline.pipeline_func,
        name=info.name,
        description=info.description or None,
        display_name=info.display_name or None,
        pipeline_config=getattr(pipeline, "pipeline_config", None),
    )
    for name, platform in pipeline.platform_spec.platforms.items():
        rebuilt.platform_spec.platforms[name].config.CopyFrom(platform.config)
    return rebuilt


@contextmanager
def patched_compiler() -> Iterator[None]:
    """Merge nested pipelines soundly, with the same names every time, while the block runs.

    The SDK renames executors one after another, in the random order of a protobuf map, so that two tasks may end up sharing
    one; and it copies settings of executors that it has not renamed yet (``_merge_deployment_spec`` in
    ``pipeline_spec_builder.py``, SDK 2.0 to 2.17; see :mod:`spotwright.kfp.compiled`). Here all new names are chosen first, in
    the order of the old ones. The SDK also mixes up loops, conditions and exit handlers of an inner pipeline with the outer
    one's, which fill each other's components (kubeflow/pipelines#11484): here the inner pipeline's get another name. An SDK
    with other functions in that place is not patched; the result is checked in any case.
    """
    from kfp.compiler import pipeline_spec_builder as builder

    originals = {name: getattr(builder, name, None) for name in _PATCHES}
    fits = all(
        original is not None and _same_parameters(original, _PATCHES[name]) for name, original in originals.items()
    )
    try:
        for name, function in _PATCHES.items() if fits else ():
            setattr(builder, name, function)
        yield
    finally:
        for name, original in originals.items() if fits else ():
            setattr(builder, name, original)


def _same_parameters(one: Any, other: Any) -> bool:
    return list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters)


MAX_COPIES = 2_000
"""The most executors that the SDK may copy from nested pipelines: copies double with each level of two calls."""


def _merge_executors(
    main_deployment_config: Any, sub_pipeline_spec: Any, main_platform_spec: Any, sub_platform_spec: Any
) -> None:
    from google.protobuf import json_format

    executors = json_format.MessageToDict(sub_pipeline_spec.deployment_spec).get("executors") or {}
    if len(main_deployment_config.executors) + len(executors) > MAX_COPIES:
        raise PipelineError(
            f"pipelines inside pipelines make more than {MAX_COPIES:,} tasks, and the SDK copies them at each call; call the "
            "inner pipeline in a dsl.ParallelFor, which has it once"
        )
    labels = _fresh_names(executors, set(main_deployment_config.executors))
    for component in sub_pipeline_spec.components.values():
        if component.executor_label:
            component.executor_label = labels[component.executor_label]
    for old, executor in executors.items():
        json_format.ParseDict(executor, main_deployment_config.executors[labels[old]])
    for name, platform in sub_platform_spec.platforms.items():
        settings = main_platform_spec.platforms[name].deployment_spec.executors
        for old, setting in platform.deployment_spec.executors.items():
            settings[labels[old]].CopyFrom(setting)


def _merge_components(main_pipeline_spec: Any, sub_pipeline_spec: Any) -> None:
    taken = {*main_pipeline_spec.components, *_group_names(sub_pipeline_spec)}
    names = _fresh_names(sub_pipeline_spec.components, taken)
    for component in (*sub_pipeline_spec.components.values(), sub_pipeline_spec.root):
        for task in component.dag.tasks.values():
            task.component_ref.name = names[task.component_ref.name]
    for old, component in sub_pipeline_spec.components.items():
        main_pipeline_spec.components[names[old]].CopyFrom(component)


def _group_names(spec: Any) -> list[str]:
    """Names that the outer pipeline may still give to a group: the SDK does not check whether they are free."""
    return [name for name in spec.components if _GROUP.fullmatch(name)]


_GROUP = re.compile(r"comp-(condition|condition-branches|for-loop|exit-handler)-\d+")
_PATCHES = {"_merge_deployment_spec": _merge_executors, "_merge_component_spec": _merge_components}


def _fresh_names(old_names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """New names by the old ones, numbered as the SDK numbers them. Adds them to ``taken``."""
    names = {}
    for old in sorted(old_names):
        new, number = old, 2
        while new in taken:
            new, number = f"{old}-{number}", number + 1
        taken.add(new)
        names[old] = new
    return names


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
    """An argument that a function lacks: the place of its name, and the probably intended argument, if any."""

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
    known = METHODS[name] if is_method else KUBERNETES.get(name) if is_of_kubernetes(call, name) else None
    for keyword in call.keywords if known is not None else ():
        if keyword.arg and known is not None and keyword.arg not in known:
            close = difflib.get_close_matches(keyword.arg, known, n=1)
            yield UnknownArgument(keyword.lineno, keyword.col_offset, name, keyword.arg, close[0] if close else "")


def _name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def is_of_kubernetes(call: ast.Call, name: str) -> bool:
    """Whether a call is of ``kfp.kubernetes``, which takes the task first, and not a method of that name in kfp 1."""
    if isinstance(call.func, ast.Name):
        return name in KUBERNETES
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return owner.rpartition(".")[2] in ("kfp_kubernetes", "kubernetes", "k8s")
