"""Plan a run: the graph of a compiled pipeline or of pod templates on the pools of a configuration, with its arguments bound.

Planning reads only the files that the user named: it needs no container runtime, no secret and no mount. The next step checks
that this machine can run the plan (:mod:`spotwright.local.preflight`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.errors import PipelineError
from spotwright.kfp.arguments import bind
from spotwright.kfp.compiled import Compiled
from spotwright.records.stored_plan import StoredPlan, traces_of
from spotwright.runs.run_options import PlanOptions

if TYPE_CHECKING:
    from spotwright.manifests.pod_graph import PodSource

__all__ = ["PlannedRun", "check_plan", "plan_run", "source_file"]


class PlannedRun(NamedTuple):
    """A run that is planned. ``arguments`` have their declared types; references to secrets among them are not resolved.

    ``notes`` are for the user.
    """

    stored: StoredPlan
    options: PlanOptions
    arguments: Mapping[str, Any]
    notes: tuple[str, ...]


def plan_run(
    source: Compiled | PodSource, options: PlanOptions, *, partly: bool = False, real_nodes: bool = False
) -> PlannedRun:
    """Plan every task and bind the arguments; ``partly``: arguments may be missing, because nothing will be run.

    ``real_nodes``: the run uses nodes of a cluster, which somebody pays for, and not simulated ones.

    Raises :class:`InputError` for a configuration, a policy or a pipeline that cannot run, and for arguments that are missing,
    unknown or of the wrong type.
    """
    config = _config(source, options)
    traces = traces_of(config, options.taken_every)
    stored = StoredPlan(source, config, options.taken_every, traces, options.policy, real_nodes)
    notes = (*source.warnings, *config.notes, *check_plan(stored))
    arguments = bind(stored.plan.graph, options.arguments, textual=options.textual, partly=partly)
    return PlannedRun(stored, options, arguments, notes)


def _config(source: Compiled | PodSource, options: PlanOptions) -> Config:
    if isinstance(options.config, Mapping):
        return configuration.from_mapping(options.config)
    return configuration.find(source_file(source) or options.folder or Path.cwd(), options.config)


def source_file(source: Compiled | PodSource) -> Path | None:
    """The user's file that holds the pipeline; ``None`` for pods, a command, and a function from a notebook or a console.

    The name of a notebook's cell (``<ipython-input-3-...>``, ``/tmp/ipykernel_7/123.py``) is no file.
    """
    file = Path(source.source)
    return file if source.source and file.exists() else None


def check_plan(stored: StoredPlan) -> tuple[str, ...]:
    """Call :meth:`Plan.check`, and add the task's place in its source to errors: the plan itself knows no files."""
    try:
        return stored.plan.check()
    except PipelineError as error:
        if not error.task:
            raise
        raise PipelineError(f"{stored.place_of(error.task)}: {error}") from error
