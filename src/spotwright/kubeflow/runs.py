"""Start a placed pipeline on a server of Kubeflow Pipelines, after making the run's records here.

The records come first so that a started run can always be found: at worst by its name on the server. The record names the
server, the run and the login.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.engine.events import ON_KFP, RunCreated, RunMeta
from spotwright.errors import InputError, StateError
from spotwright.kfp.arguments import references
from spotwright.kubeflow.server import KfpServer, Login, ServerAway, Version
from spotwright.records.state_folder import LARGEST_FILE, RunFolder, StateFolder, write_atomically
from spotwright.regular_files import read_regular
from spotwright.runs.planning import PlannedRun
from spotwright.runs.run_options import new_name
from spotwright.runs.runner import begin_records

__all__ = [
    "KfpRun",
    "Submission",
    "Submitted",
    "kfp_arguments",
    "load_kfp_run",
    "save_kfp_run",
    "submit",
    "version_name",
]


class KfpRun(NamedTuple):
    """A run of a server, and its page there. ``controller``: as given, empty by default. It has no secrets."""

    run_id: str
    login: Login
    page: str = ""
    controller: str = ""


def save_kfp_run(folder: RunFolder, run: KfpRun) -> None:
    """Write the record into the run's folder. Raises :class:`StateError`."""
    try:
        write_atomically(folder.kfp, {**run._asdict(), "login": run.login.to_data()})
    except OSError as error:
        raise StateError(
            f"{folder.path}: cannot be written ({error.strerror}); the run of KFP is {run.run_id}"
        ) from error


def load_kfp_run(folder: RunFolder) -> KfpRun:
    """The stored record of a run. Raises :class:`StateError`."""
    path = folder.kfp
    try:
        data = json.loads(read_regular(path, LARGEST_FILE))
        page, controller = (str(data.get(name, "")) for name in ("page", "controller"))
        return KfpRun(str(data["run_id"]), Login.from_data(data["login"]), page, controller)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{path}: cannot be read ({error})") from error


class Submission(NamedTuple):
    """A run to start. ``text`` is the placed pipeline as KFP's YAML; ``name`` is the run's, empty for a new one."""

    planned: PlannedRun
    text: str
    state: Path
    name: str = ""
    experiment: str = "Default"
    service_account: str = ""
    controller: str = ""


class Submitted(NamedTuple):
    """A started run: its folder here, and its identity on the server."""

    folder: RunFolder
    run: KfpRun
    version: Version
    version_name: str


def version_name(text: str) -> str:
    """The name of a pipeline's version, from its content: equal content is uploaded once."""
    return f"spotwright-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def kfp_arguments(planned: PlannedRun) -> dict[str, Any]:
    """The user's arguments in KFP's form; KFP fills in the others.

    Raises :class:`InputError` for artifacts, which KFP refuses, and secrets, which it would show to everyone.
    """
    given = {name: planned.arguments[name] for name in planned.options.arguments}
    artifacts = [name for name in given if name in planned.stored.plan.graph.root.artifacts]
    if artifacts:
        raise InputError(
            f"--arg {artifacts[0]}: KFP does not accept artifacts as arguments: import it with dsl.importer"
        )
    secret = list(references(planned.stored.plan.graph, given))
    if secret:
        raise InputError(
            f"--arg {secret[0]}: KFP shows arguments to everyone: keep the value in a Secret, and use "
            "kfp.kubernetes.use_secret_as_env in the pipeline"
        )
    return given


def submit(server: KfpServer, what: Submission) -> Submitted:
    """Upload and start. Raises :class:`InputError`, :class:`ServerAway` and :class:`StateError`; then the folder is removed."""
    arguments = kfp_arguments(what.planned)
    pipeline = what.planned.stored.source.pipeline
    folder = StateFolder.open(what.state).create(what.name or new_name(pipeline))
    try:
        begin_records(folder, what.planned.stored, _created(folder.name, what))
        label = version_name(what.text)
        version = server.version(pipeline, what.text, label)
        run_id = _start(server, version, folder.name, arguments, what)
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    run = KfpRun(run_id, server.login, server.page_of(run_id), what.controller)
    save_kfp_run(folder, run)
    return Submitted(folder, run, version, label)


def _start(server: KfpServer, version: Version, name: str, arguments: Mapping[str, Any], what: Submission) -> str:
    try:
        return server.start(version, name, arguments, experiment=what.experiment, service_account=what.service_account)
    except ServerAway as error:
        raise ServerAway(f"{error}; check whether it has a run {name} before you start it again") from error


def _created(name: str, what: Submission) -> RunCreated:
    stored, options = what.planned.stored, what.planned.options
    meta = RunMeta(
        run=name,
        pipeline=stored.source.pipeline,
        source=stored.source.source,
        config=stored.config.path,
        arguments=what.planned.arguments,
        given=dict(options.arguments),
        textual=options.textual,
        orchestrator=ON_KFP,
    )
    return RunCreated(time.time(), meta=meta)
