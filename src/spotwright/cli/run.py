"""``run`` and ``resume``: parse their options, and do only the work that naming the run needs.

:mod:`spotwright.cli.run_session` does the rest; it is imported while the run's fork server starts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from spotwright.cli import cluster_extra, importing
from spotwright.cli.options import (
    KfpOptions,
    PipelineOptions,
    WithUserCommand,
    interrupt_every_option,
    json_option,
    kfp_options,
    pipeline_options,
    policy_of,
    policy_option,
    state_option,
)
from spotwright.errors import InputError, PipelineError
from spotwright.kfp.commands import compiled_command, is_script
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.loader import load
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.runs.bodies import require_lasting, require_platform
from spotwright.runs.run_options import CACHE_MODES, PlanOptions, RunOptions

__all__ = ["resume", "run"]


page_option = click.option(
    "--page", "shows_page", is_flag=True, help="Show the run in a browser while it goes on, and then until Ctrl-C."
)


fail_on_missed_deadline_option = click.option(
    "--fail-on-missed-deadline", is_flag=True, help="Exit with 1 where the run succeeds after its deadline."
)


@contextmanager
def _page_of(state: Path, name: str, *, as_json: bool, is_wanted: bool) -> Iterator[Callable[[int], int]]:
    """Serve the page beside a run, if wanted; see :func:`spotwright.cli.page.page_beside`."""
    if not is_wanted:
        yield lambda code: code
        return
    with importing():
        from spotwright.cli.page import page_beside
    with page_beside(state, name, as_json=as_json) as ended:
        yield ended


@click.command(cls=WithUserCommand, options_metavar="[OPTIONS]")
@click.argument("pipeline_file", metavar="[PIPELINE] [-- COMMAND...]", required=False, type=click.Path(path_type=Path))
@pipeline_options(
    policy_option(),
    click.option(
        "--deadline",
        metavar="TIME",
        help="When all of the run must be done: a duration from its start (8h) or a time with its zone; decides for each task "
        "between waiting, spot and on-demand.",
    ),
    fail_on_missed_deadline_option,
    click.option(
        "--cache",
        type=click.Choice(CACHE_MODES),
        default="auto",
        show_default=True,
        help="Reuse earlier results. auto: unless nodes are interrupted.",
    ),
    interrupt_every_option,
    click.option(
        "--time-scale",
        type=float,
        default=1.0,
        show_default=True,
        help="Speed up all simulated waits by this factor; the tasks' own work keeps its speed.",
    ),
    click.option(
        "--plan",
        "plan_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="What 'spotwright plan --json' had printed into this file: report and the page show it beside the run.",
    ),
    click.option("--name", help="The run's name.  [default: the pipeline's name and five letters]"),
    page_option,
    kfp_options,
)
@click.pass_context
def run(
    ctx: click.Context,
    shared: PipelineOptions,
    kfp: KfpOptions,
    pipeline_file: Path | None,
    policy_texts: tuple[str, ...],
    deadline: str | None,
    fail_on_missed_deadline: bool,
    cache: str,
    interrupt_every: float | None,
    time_scale: float,
    plan_file: Path | None,
    name: str | None,
    shows_page: bool,
) -> int:
    """Run PIPELINE (a .py file with @dsl.pipeline, or compiled KFP YAML) on spot pools, on this machine.

    A plain training script, which never names kfp, is a pipeline of one task: python PIPELINE in the current folder. So is a
    COMMAND after --, such as torchrun --nproc-per-node 2 train.py; its processes share one node.

    Pools and policy come from spotwright.yaml beside PIPELINE, or above it in its repository. Each attempt is a real process.
    Nodes are simulated; they are interrupted only if the pools or --interrupt-every say so.

    With --on kfp it runs on Kubeflow Pipelines: PIPELINE is placed as by spotwright compile, uploaded unless the server already
    has it, started, and followed until its end. Ctrl-C leaves it running.
    """
    command = ctx.meta.get("command", ())
    if bool(command) == (pipeline_file is not None):
        raise InputError(
            "expected either a pipeline, or a command after --: spotwright run -- torchrun --nproc-per-node 2 train.py"
        )
    if kfp.is_used:
        with _page_of(shared.state, name or "", as_json=shared.as_json, is_wanted=shows_page) as ended:
            return ended(_run_on_kfp(shared, kfp, pipeline_file, name))
    require_platform()
    from spotwright.runs.bodies import early_server
    from spotwright.runs.run_options import new_name

    compiled = _compiled(shared, pipeline_file, command)
    name = name if name is not None else new_name(compiled.pipeline)
    planning = PlanOptions(
        arguments=shared.arguments,
        textual=True,
        config=shared.config,
        interrupt_every=interrupt_every,
        policy=policy_of(policy_texts if deadline is None else (*policy_texts, f"deadline={deadline}")),
    )
    running = RunOptions(
        seed=shared.seed,
        time_scale=time_scale,
        cache=cache,
        containers=shared.containers,
        state=shared.state,
        name=name,
        forecast=_forecast(plan_file),
    )
    with early_server(StateFolder(shared.state).run(name).path, tasks=compiled.first_tasks) as server:
        with importing():
            from spotwright.cli.run_session import begin
        with _page_of(shared.state, name, as_json=shared.as_json, is_wanted=shows_page) as ended:
            code = begin(
                compiled, planning, running, server, as_json=shared.as_json, fails_late=fail_on_missed_deadline
            )
            return ended(code)


def _compiled(shared: PipelineOptions, pipeline_file: Path | None, command: Sequence[str]) -> Compiled:
    """The pipeline, or one of a single task for a script or a command."""
    if pipeline_file is None or is_script(pipeline_file):
        wrong = [f"--arg {name}" for name in shared.arguments]
        wrong += ["--pipeline"] if shared.pipeline_name is not None else []
        if wrong:
            what = "a command" if pipeline_file is None else "a script"
            raise InputError(
                f"{wrong[0]}: is for pipelines, and this is {what}; its own arguments stand after --: "
                f"spotwright run -- {shlex.join(command or ['python', str(pipeline_file), '...'])}"
            )
        require_lasting(Path.cwd())
    if pipeline_file is None:
        return compiled_command(command, (), folder=str(Path.cwd()))
    return load(pipeline_file, pipeline=shared.pipeline_name, scripts=True)


def _forecast(plan_file: Path | None) -> str:
    """The text of a saved plan. Raises :class:`InputError` for another file."""
    if plan_file is None:
        return ""
    from spotwright.forecast.report import read_forecast

    return read_forecast(plan_file).text


def _run_on_kfp(shared: PipelineOptions, kfp: KfpOptions, pipeline_file: Path | None, name: str | None) -> int:
    with cluster_extra("--on kfp"), importing():
        from spotwright.cli.kfp import begin_on_kfp
    if pipeline_file is None or is_script(pipeline_file):
        raise PipelineError(
            f"{pipeline_file or '--'}: a script or a command runs on this machine only; for --on kfp put it into a "
            "@dsl.component"
        )
    compiled = load(pipeline_file, pipeline=shared.pipeline_name)
    planning = PlanOptions(arguments=shared.arguments, textual=True, config=shared.config)
    return begin_on_kfp(
        compiled, pipeline_file, planning, kfp, name=name or "", state=shared.state, as_json=shared.as_json
    )


@click.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--as-compiled", is_flag=True, help="Use the stored plan: ignore later changes of pipeline and configuration."
)
@fail_on_missed_deadline_option
@page_option
@state_option
@json_option
def resume(
    name: str, as_compiled: bool, fail_on_missed_deadline: bool, shows_page: bool, state: Path, as_json: bool
) -> int:
    """Continue RUN after a crash, a stop or a failure. Tasks that succeeded do not run again.

    If the pipeline's code has changed, the changed tasks and all downstream tasks run again. A run that failed starts its
    unfinished tasks with fresh budgets. RUN is a run's name, its unique beginning, or 'last'.

    A run on Kubeflow Pipelines does not need Spotwright to continue: resume follows it again.
    """
    folder = StateFolder.existing(state).find(name)
    if folder.kfp.exists():
        with _page_of(state, folder.name, as_json=as_json, is_wanted=shows_page) as ended:
            return ended(_follow_on_kfp(folder, as_json=as_json))
    require_platform()
    from spotwright.runs.bodies import early_server

    with early_server(folder.path, tasks=1) as server:
        with importing():
            from spotwright.cli.run_session import go_on
        with _page_of(state, folder.name, as_json=as_json, is_wanted=shows_page) as ended:
            code = go_on(folder, server, reread=not as_compiled, as_json=as_json, fails_late=fail_on_missed_deadline)
            return ended(code)


def _follow_on_kfp(folder: RunFolder, *, as_json: bool) -> int:
    with cluster_extra("a run on Kubeflow Pipelines"), importing():
        from spotwright.cli.kfp import go_on_with_kfp
    return go_on_with_kfp(folder, as_json=as_json)
