"""``run --on kfp``, and ``resume`` and ``cancel`` of such runs: start, follow, print the summary, give the exit code.

Nothing of KFP's SDK is imported before a server is asked.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from spotwright.cli import FAILED, STOPPED, SUCCEEDED
from spotwright.cli.compile import placed_yaml
from spotwright.cli.kubeflow.options import KfpOptions
from spotwright.engine.state import RunState
from spotwright.engine.status import RunStatus
from spotwright.kubeflow.following import Pauses, followed
from spotwright.kubeflow.kfp_run import KfpRun, load_kfp_run
from spotwright.kubeflow.login import Login
from spotwright.kubeflow.server import KfpServer
from spotwright.kubeflow.submission import Submission, submit
from spotwright.pipelines.ir.compiled import Compiled
from spotwright.records.state_folder import RunFolder
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions
from spotwright.views.live.run_progress import make_progress
from spotwright.views.run_json import run_view
from spotwright.views.run_text import summary_text

__all__ = ["begin_on_kfp", "cancel_on_kfp", "go_on_with_kfp"]

_CODES = {RunStatus.SUCCEEDED: SUCCEEDED, RunStatus.CANCELLED: STOPPED}
_NO_CONTROLLER = (
    "no controller of Spotwright is followed: causes are what KFP's messages tell, and a taken node is not among them",
    "no controller of Spotwright is followed: pools, rungs, notices and costs are not known, and no logs are kept",
)


def begin_on_kfp(
    compiled: Compiled, file: Path, planning: PlanOptions, kfp: KfpOptions, *, name: str, state: Path, as_json: bool
) -> int:
    """Place, upload and start a pipeline, and follow it with its progress on the terminal."""
    planned = plan_run(compiled, planning)
    text = placed_yaml(compiled, file, planned.stored.config)
    server = KfpServer(_login(kfp))
    server.check()
    submitted = submit(
        server,
        Submission(planned, text, state, name, kfp.experiment, kfp.service_account),
    )
    version, label = submitted.version, submitted.version_name
    how = "uploaded as version" if version.is_new else "has this content already: version"
    notes = (f"pipeline {compiled.pipeline} {how} {label}", f"run {submitted.run.run_id} of KFP: {submitted.run.page}")
    return _follow(submitted.folder, submitted.run, server, (*notes, *_NO_CONTROLLER), as_json=as_json)


def go_on_with_kfp(folder: RunFolder, *, as_json: bool) -> int:
    """Follow a run again."""
    run = load_kfp_run(folder)
    return _follow(folder, run, KfpServer(run.login), (), as_json=as_json)


def cancel_on_kfp(folder: RunFolder, *, as_json: bool) -> int:
    """Ask KFP to end a run, and wait until it has."""
    from spotwright.kubeflow.cancellation import cancel

    ended = cancel(folder, load_kfp_run(folder), pauses=Pauses())
    if as_json:
        click.echo(json.dumps(run_view(ended, folder.name)))
    else:
        click.echo(f"run {folder.name}: {ended.status.value}")
    return SUCCEEDED


def _login(kfp: KfpOptions) -> Login:
    return Login(kfp.host, kfp.namespace, kfp.token_file, kfp.cookies_file, kfp.client_id, kfp.context, kfp.authority)


def _follow(folder: RunFolder, run: KfpRun, server: KfpServer, notes: tuple[str, ...], *, as_json: bool) -> int:
    stream = sys.stderr if as_json else sys.stdout
    with make_progress(stream) as progress, followed(folder, server, run, progress, notes) as follower:
        if follower.state.status is RunStatus.RUNNING:
            follower.follow(Pauses())
    return _finish(folder.name, follower.state, as_json=as_json)


def _finish(name: str, state: RunState, *, as_json: bool) -> int:
    click.echo(json.dumps(run_view(state, name, time.time())) if as_json else summary_text(state, name, time.time()))
    if state.status is RunStatus.RUNNING:
        click.echo(
            f"the run goes on there; follow it again with: spotwright resume {name}; "
            f"end it with: spotwright cancel {name}",
            err=True,
        )
        return STOPPED
    return _CODES.get(state.status, FAILED)
