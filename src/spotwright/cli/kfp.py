"""``run --on kfp``, and ``resume`` and ``cancel`` of such runs: start, follow, print the summary, return the exit code.

KFP's SDK is imported when a server is first called.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from spotwright.cli import FAILED, STOPPED, SUCCEEDED, say
from spotwright.cli.cluster import Place, open_cluster
from spotwright.cli.compile import placed_yaml
from spotwright.cli.options import KfpOptions
from spotwright.config import Config, require_pools
from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.kfp.compiled import Compiled
from spotwright.kubeflow.controllers_record import ControllersRecord
from spotwright.kubeflow.following import Follower, Pauses, followed
from spotwright.kubeflow.runs import KfpRun, Submission, load_kfp_run, submit
from spotwright.kubeflow.server import KfpServer, Login
from spotwright.model.quantities import format_money
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions
from spotwright.views.run_json import run_view
from spotwright.views.run_progress import PlainProgress, make_progress
from spotwright.views.run_text import summary_text

__all__ = ["begin_on_kfp", "cancel_on_kfp", "go_on_with_kfp"]


_CODES = {RunStatus.SUCCEEDED: SUCCEEDED, RunStatus.CANCELLED: STOPPED}
_CAUSES_OF_KFP = "causes come from KFP's messages, which do not show a reclaimed node"
_GAPS = (
    f"{{why}}: {_CAUSES_OF_KFP}",
    "without a controller pools, rungs, notices and costs are not known, and no logs are kept",
)
_GAPS_BESIDE_PODS = (
    "{why}: causes and pools are what pods and nodes show while this command looks",
    "without a controller rungs and notices are not known, and no logs are kept",
)
_RECORDS_END = 30.0  # seconds that the controller's record may end after KFP's


def begin_on_kfp(
    compiled: Compiled, file: Path, planning: PlanOptions, kfp: KfpOptions, *, name: str, state: Path, as_json: bool
) -> int:
    """Place, upload and start a pipeline, and show its progress on the terminal."""
    planned = plan_run(compiled, planning, real_nodes=True)
    require_pools(planned.stored.config)
    server = KfpServer(_login(kfp))
    told = server.check()
    configured = _for_version(planned.stored.config, told.version)
    text = placed_yaml(compiled, file, configured, has_controller=_has_controller(server.login, kfp.controller))
    submitted = submit(
        server,
        Submission(planned, text, state, name, kfp.experiment, kfp.service_account, kfp.controller),
    )
    version, label = submitted.version, submitted.version_name
    how = "uploaded as version" if version.is_new else "has this content already: version"
    notes = [f"pipeline {compiled.pipeline} {how} {label}", f"run {submitted.run.run_id} of KFP: {submitted.run.page}"]
    if told.ignored_namespace:
        notes.append(f"this server has no namespaces for teams; -n {told.ignored_namespace} has no effect")
    return _follow(submitted.folder, submitted.run, server, notes, as_json=as_json)


def _for_version(config: Config, version: str) -> Config:
    """The configuration with the server's version as the target, unless the file names one."""
    if not version or "kfp" in config.target:
        return config
    return replace(config, target={**config.target, "kfp": version})


def go_on_with_kfp(folder: RunFolder, *, as_json: bool) -> int:
    """Follow a run again."""
    run = load_kfp_run(folder)
    return _follow(folder, run, KfpServer(run.login), (), as_json=as_json)


def cancel_on_kfp(folder: RunFolder, *, as_json: bool) -> int:
    """Ask KFP to end a run, and wait until it has."""
    from spotwright.kubeflow.following import cancel

    ended = cancel(folder, load_kfp_run(folder), pauses=Pauses())
    if as_json:
        say(json.dumps(run_view(ended, folder.name)))
    else:
        say(f"run {folder.name}: {ended.status.value}")
    return SUCCEEDED


def _login(kfp: KfpOptions) -> Login:
    return Login(kfp.host, kfp.namespace, kfp.token_file, kfp.cookies_file, kfp.client_id, kfp.context, kfp.authority)


def _follow(folder: RunFolder, run: KfpRun, server: KfpServer, notes: Sequence[str], *, as_json: bool) -> int:
    stream = sys.stderr if as_json else sys.stdout
    with make_progress(stream) as progress:
        record = ControllersRecord(progress)
        with followed(folder, server, run, record, notes) as follower, ExitStack() as opened:
            record.open_record, why_none = _controllers_record(run, opened)
            sees_pods = _watch_pods(follower, run, opened)
            if record.open_record is None:
                for gap in _GAPS_BESIDE_PODS if sees_pods else _GAPS:
                    follower.note(gap.format(why=why_none))
            follower.commit()
            if follower.state.status is RunStatus.RUNNING:
                follower.follow(Pauses(), lambda seconds: _between(follower, record, seconds))
                record.wait_for_end(_RECORDS_END)
            else:
                record.look()
            if follower.misses_pods and record.reader is None:
                follower.note(f"the cluster of the kubeconfig showed no pod of the run: {_CAUSES_OF_KFP}")
            _note_record(follower, record, is_over=True)
        if not isinstance(progress, PlainProgress):  # the live view has no room for them
            for text in follower.state.notes:
                say(f"note: {text}", err=True)
    return _finish(folder, follower.state, record, as_json=as_json)


def _between(follower: Follower, record: ControllersRecord, seconds: float) -> None:
    """Look at the controller's record, then wait for the next look at KFP."""
    record.look()
    _note_record(follower, record)
    time.sleep(seconds)


def _note_record(follower: Follower, record: ControllersRecord, *, is_over: bool = False) -> None:
    """Say once whether the controller records the run."""
    if record.reader is not None:
        name = record.reader.folder.name
        follower.note(
            f"the controller records it as {name}: spotwright show {name} --cluster; its account has the pods of KFP's drivers "
            "too, which are not counted here"
        )
        for text in _price_notes(follower.state.plan.config, record.reader.state.plan.config):
            follower.note(text)
    elif record.lost:
        follower.note(f"the controller's record cannot be read ({record.lost}); showing KFP's status")
    elif record.has_controller and is_over:
        follower.note(f"the controller has no record of it: is its namespace one that is watched? {_CAUSES_OF_KFP}")
    follower.commit()


def _price_notes(here: Config, there: Config) -> Iterator[str]:
    """A sentence for each pool whose price differs in the controller's configuration, and so in its account."""
    for name in sorted(here.pools.keys() & there.pools.keys()):
        ours, theirs = (config.pools[name].price for config in (here, there))
        if ours != theirs:
            told = " and ".join(
                f"{_price_text(price, config)} in {where}"
                for price, config, where in ((ours, here, here.path), (theirs, there, "the controller's configuration"))
            )
            yield f"a node of pool {name} costs {told}: the account here and the controller's differ by that"


def _price_text(price: Fraction | None, config: Config) -> str:
    return "an unknown price" if price is None else f"{format_money(price, config.currency)} an hour"


def _has_controller(login: Login, named: str) -> bool:
    """Whether the kubeconfig's cluster has a Spotwright controller, or a URL names one."""
    with ExitStack() as opened:
        return _controllers_record(KfpRun("", login, controller=named), opened)[0] is not None


def _controllers_record(run: KfpRun, opened: ExitStack) -> tuple[Callable[[], RunReader] | None, str]:
    """Return a function that opens the controller's record of a run, or None with the reason."""
    if run.controller == "none":
        return None, "no controller of Spotwright is asked"
    place = Place(Path(), cluster=True, context=run.login.context or None, controller=run.controller)
    try:
        _, runs = opened.enter_context(open_cluster(place))
    except SpotwrightError as error:
        return None, f"no controller of Spotwright is found ({error})"
    return lambda: runs.open(run.run_id), ""


def _watch_pods(follower: Follower, run: KfpRun, opened: ExitStack) -> bool:
    """With a kubeconfig, watch the pods too: the controller's record may come late, or be lost."""
    try:
        from spotwright.cluster.kubernetes_login import Kubernetes

        kubernetes = Kubernetes(run.login.context or None)
    except (ModuleNotFoundError, SpotwrightError):
        return False
    opened.callback(kubernetes.close)
    follower.watch_pods(kubernetes.get)
    return True


def _finish(folder: RunFolder, kfp: RunState, record: ControllersRecord, *, as_json: bool) -> int:
    """Print the controller's record if it exists, else KFP's status. The outputs and the exit code are KFP's."""
    state, name = kfp, folder.name
    if record.reader is not None:
        state, name = record.reader.state, record.reader.folder.name
    outputs = run_view(kfp, folder.name)["outputs"]
    if as_json:
        say(json.dumps({**run_view(state, name, time.time()), "outputs": outputs}))
    else:
        say(summary_text(state, name, time.time(), outputs=outputs))
    if kfp.status is RunStatus.RUNNING:
        again = f"follow it again with: spotwright resume {folder.name}; end it with: spotwright cancel {folder.name}"
        say(f"the run continues there; {again}", err=True)
        return STOPPED
    return _CODES.get(kfp.status, FAILED)
