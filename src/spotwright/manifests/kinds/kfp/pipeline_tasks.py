"""The tasks of a compiled pipeline by their path in a run, each with its executor, its position and its own settings.

The settings of an executor hold for every task that uses it: through its component, and again through each use of the pipeline
around it. So several tasks may have one executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.graph import inherit_retry
from spotwright.kfp.compiled import IrError, UnfoldedTask, merged_executors, unfold
from spotwright.kfp.kfp_settings import read_policy_text, read_retry
from spotwright.manifests.kinds.kfp.document_pair import EXECUTORS
from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import Layer, Policy

__all__ = ["CompiledTask", "PipelinePaths", "list_tasks", "mapping_at", "merge_warnings", "policy_of"]

_EXIT_HANDLER = "it is an exit handler, which has to run however the pipeline ends"


@dataclass(frozen=True, slots=True)
class PipelinePaths:
    """The paths of the two halves of a compiled pipeline: the pipeline, and the mapping of its platforms."""

    pipeline: Path
    platforms: Path

    @property
    def pipeline_policy(self) -> Path:
        """The path of the policy that the pipeline sets for all its tasks."""
        return (*self.platforms, "spotwright", "config", "policy")

    def executor(self, label: str) -> Path:
        """The path of an executor."""
        return (*self.pipeline, "deploymentSpec", "executors", label)

    def settings(self, label: str) -> Path:
        """The path of the Kubernetes settings of an executor."""
        return (*self.platforms, *EXECUTORS, label)

    def policy(self, label: str) -> Path:
        """The path of the policy that the pipeline sets for an executor."""
        return (*self.platforms, "spotwright", *EXECUTORS[1:], label, "policy")


@dataclass(frozen=True, slots=True)
class CompiledTask:
    """One task that runs in a pod. ``at`` is its path in the document; tasks of a pipeline that is used twice share it.

    ``retry`` has its ``set_retry`` and ``set_timeout``, or those of the pipeline around it. ``loops``: an iteration runs it.
    """

    path: str
    at: Path
    component: str
    label: str
    retry: Layer | None = None
    loops: bool = False
    on_demand_reason: str = ""


def list_tasks(ctx: PlaceContext, paths: PipelinePaths) -> list[CompiledTask]:
    """Every task that runs in a pod, with its path. Raises :class:`ManifestError` where the document contradicts itself."""
    try:
        uses = list(unfold(mapping_at(ctx, paths.pipeline)))
    except IrError as error:
        raise ctx.problem((*paths.pipeline, *error.keys), str(error)) from error
    for label in {use.label for use in uses}:
        mapping_at(ctx, (*paths.executor(label), "container"))
    return [_task(ctx, paths, use) for use in uses if use.has_pod]


def _task(ctx: PlaceContext, paths: PipelinePaths, use: UnfoldedTask) -> CompiledTask:
    at = (*paths.pipeline, *use.keys)
    timeout = mapping_at(ctx, paths.settings(use.label)).get("activeDeadlineSeconds")
    try:
        own = read_retry(use.task.get("retryPolicy"), float(timeout) if timeout else None)
    except (ValueError, TypeError, AttributeError) as error:
        raise ctx.problem((*at, "retryPolicy"), f"cannot be read: {error}") from error
    retry = inherit_retry(own, use.enclosing_retry)
    return CompiledTask(
        use.path,
        at,
        use.component,
        use.label,
        retry,
        use.in_loop,
        _EXIT_HANDLER if use.in_exit_handler else "",
    )


def merge_warnings(ctx: PlaceContext, paths: PipelinePaths) -> dict[str, str]:
    """A warning for each executor that the SDK's compiler gave to several components, by the executor's label."""
    return {
        merged.label: (
            f"the components {' and '.join(merged.components)} share the executor {merged.label}, and "
            f"{', '.join(merged.unused)} is used by none: the compiler of the SDK mixed them up, so the image, resources and "
            "settings of one are lost; compile again until no executor is left over, or give the components of nested "
            "pipelines names of their own"
        )
        for merged in merged_executors(mapping_at(ctx, paths.pipeline))
    }


def policy_of(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask) -> Policy:
    """The policy of a task, the same as in a run of the pipeline."""
    own = [*_read_policy(ctx, paths.pipeline_policy), *_read_policy(ctx, paths.policy(task.label))]
    return ctx.policy(task.path, on_demand_reason=task.on_demand_reason, own=own, kfp=task.retry)


def _read_policy(ctx: PlaceContext, path: Path) -> Iterator[Layer]:
    text = ctx.editor.get(path)
    if text is not None:
        try:
            yield read_policy_text(text)
        except (ValueError, TypeError) as error:
            raise ctx.problem(path, str(error)) from error


def mapping_at(ctx: PlaceContext, path: Path) -> Mapping[str, Any]:
    """The mapping at a path, empty if it is missing. Raises :class:`ManifestError` for any other value."""
    value = ctx.editor.get(path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ctx.problem(path, f"expected a mapping, found {value!r}")
    return value
