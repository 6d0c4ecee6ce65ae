"""Follow a run of Kubeflow Pipelines to its end: ask the server, record the news, and show it.

A follower holds the lease of its run's journal here, so two followers never write the same journal. The run continues without a
follower, and the next one gets the whole state again. It may also be cancelled on the server. If nothing of a run begins and
its tasks cannot show why, the follower explains the empty table.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from spotwright.cluster.workloads import workflow_task
from spotwright.engine.events import CancelRequested, EngineDetached, EngineStarted, Event, NoteAdded, RunStatus
from spotwright.engine.fold import fold, replay
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import InputError
from spotwright.kube.object_fields import seconds
from spotwright.kubeflow.recorder import PodsSeen, Read, Recorder
from spotwright.kubeflow.runs import KfpRun
from spotwright.kubeflow.server import KfpServer, LoginRefused, NoSuchThing, ServerAway
from spotwright.kubeflow.task_status import Node, SeenTask, nodes_of_details, nodes_of_workflow, seen_tasks
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import load_plans
from spotwright.runs.bodies import is_alive
from spotwright.runs.runner import errors_after_start, leased
from spotwright.version import __version__
from spotwright.views.run_progress import Shown
from spotwright.views.text import plural

__all__ = ["SILENT", "Follower", "Pauses", "cancel", "followed", "hold_up"]


SILENT = 60.0
"""Seconds until a wait is reported: a driver takes about five on an idle cluster, and a new node some minutes."""

_DRIVER = "driver"


def hold_up(nodes: Iterable[Node], waited: float, now: float, *, has_pods: bool) -> str:
    """A run's unusual wait, in a sentence; empty if all is normal.

    ``waited``: seconds since its start here. ``now``: the time by the nodes' clock. ``has_pods``: Kubernetes shows its pods.
    """
    nodes = list(nodes)
    if not nodes:
        if waited < SILENT:
            return ""
        if has_pods:
            return (
                "it has pods, but KFP does not report them: check its persistence agent "
                "(deployment ml-pipeline-persistenceagent)"
            )
        return "it has not begun: check Argo's workflow-controller and KFP's persistence agent"
    waiting = [node for node in nodes if node.phase == "Pending" and node.name.rpartition("-")[2] == _DRIVER]
    for node in waiting:
        if node.started_at is not None and now - node.started_at >= SILENT:
            path = workflow_task(node.name, is_kfp=True).path
            return f"the pod {path} of KFP waits: {node.message or 'Argo does not say why'}"
    return ""


_ENDED = {
    "SUCCEEDED": RunStatus.SUCCEEDED,
    "FAILED": RunStatus.FAILED,
    "CANCELED": RunStatus.CANCELLED,
    "SKIPPED": RunStatus.SUCCEEDED,
}
_NO_WORKFLOW = "this server no longer serves v1beta1: machines, reasons, tries and outputs of tasks are unknown"
_NO_OUTPUTS = (
    "output parameters are unknown: KFP's metadata store is not reachable at this address; use the address of KFP's UI, such as"
    " svc/ml-pipeline-ui"
)
_DELETED = "its run was deleted on the KFP server; how it ended is unknown"
_USUAL = "kubeflow"  # the namespace of pods in KFP's manifests for one team, which the server shows only once its agent reports
_NAMED = 5  # tasks that a note names


class Pauses(NamedTuple):
    """Seconds between two looks, of the first and the longest pause while the server is away, and until we give up."""

    look: float = 2.0
    first: float = 1.0
    longest: float = 15.0
    give_up: float = 600.0


class Follower:
    """One follower of one run. ``state`` is the journal's; :meth:`follow` brings it up to date until the end."""

    def __init__(self, journal: Journal, state: RunState, server: KfpServer, run: KfpRun, show: Shown) -> None:
        self.state = state
        self._journal, self._server, self._run, self._show = journal, server, run, show
        self._pending: list[Event] = []
        self._recorder = Recorder(state, self.add)
        self._away_since: float | None = None

    def add(self, event: Event) -> None:
        """Fold an event, and write and show it with the next :meth:`commit`."""
        fold(self.state, event)
        self._pending.append(event)

    def note(self, text: str) -> None:
        """Add a note to the run, once."""
        if text not in self.state.notes:
            self.add(NoteAdded(time.time(), text=text))

    def commit(self) -> None:
        """Write the pending events in one durable transaction, then show them."""
        events, self._pending = self._pending, []
        if events:
            self._journal.append(events)
            self._show(self.state, events)

    def follow(self, pauses: Pauses, between: Callable[[float], None] = time.sleep) -> None:
        """Watch the run until it has ended. ``between`` waits between two looks.

        Raises :class:`ServerAway` once the server was away for too long, and :class:`LoginRefused`.
        """
        pause = pauses.first
        while True:
            try:
                is_over = self.look()
            except ServerAway as error:
                self._away(error, pauses)
                between(pause)
                pause = min(pauses.longest, 2 * pause)
                continue
            pause = pauses.first
            if is_over:
                return
            between(pauses.look)

    def look(self) -> bool:
        """Record the server's present status. Returns whether the run has ended."""
        try:
            answer = self._ask()
        except NoSuchThing:
            self._recorder.finish(RunStatus.FAILED, _DELETED, time.time())
            self.commit()
            return True
        if self._away_since is not None:
            took = time.time() - self._away_since
            self.add(NoteAdded(time.time(), text=f"the server answers again after {took:.0f}s"))
            self._away_since = None
        if answer.workflow is None and not self._server.has_workflows:
            self.note(_NO_WORKFLOW)
        self._note_cancel(answer)
        details = (answer.run.get("run_details") or {}).get("task_details") or ()
        nodes = nodes_of_details(details) if answer.workflow is None else nodes_of_workflow(answer.workflow)
        if self._recorder.pods is not None:
            self._look_at_pods(self._recorder.pods, answer.workflow)
        seen = seen_tasks(nodes)
        self._recorder.record(seen, time.time(), self._server.ahead)
        self._note_hold_up(nodes)
        ended = _ENDED.get(str(answer.run.get("state", "")))
        if ended is not None:
            self._read_outputs(seen)
            self._note_earlier_results()
            self._finish(ended, answer, seen)
        self.commit()
        return ended is not None

    def _note_hold_up(self, nodes: Sequence[Node]) -> None:
        now = time.time()
        has_pods = self._recorder.pods is not None and self._recorder.pods.are_any
        reason = hold_up(nodes, now - self.state.started_at, now + self._server.ahead, has_pods=has_pods)
        if reason:
            self.note(reason)
        if self._recorder.pods is not None:
            for text in self._recorder.pods.held_up(now + self._server.ahead, SILENT):
                self.note(text)

    def watch_pods(self, read: Read) -> None:
        """Watch the pods and machines of the run too, through a Kubernetes API that may be KFP's cluster's."""
        self._recorder.pods = PodsSeen(read, self._run.run_id, self.state.plan.config.pools)

    @property
    def misses_pods(self) -> bool:
        """Whether pods were looked up and none of the run was found."""
        return self._recorder.pods is not None and not self._recorder.pods.are_any

    def _look_at_pods(self, pods: PodsSeen, workflow: Mapping[str, Any] | None) -> None:
        namespace = str(((workflow or {}).get("metadata") or {}).get("namespace") or self._run.login.namespace)
        pods.look(namespace or _USUAL)
        if pods.trouble and namespace:
            self.note(f"the run's pods and their nodes cannot be read: {pods.trouble}")

    def leave(self, why: str) -> None:
        """Leave the run to the server, and to the next follower."""
        self._pending.clear()  # the next follower finds it again
        if self.state.status is RunStatus.RUNNING:
            self.add(EngineDetached(time.time(), why=why))
            self.commit()

    def _ask(self) -> _Answer:
        try:
            return _Answer(self._server.run(self._run.run_id), self._server.workflow(self._run.run_id))
        except LoginRefused:
            self._server.log_in_again()  # the token may have expired and its file been renewed
            return _Answer(self._server.run(self._run.run_id), self._server.workflow(self._run.run_id))

    def cancelled(self) -> None:
        """Record that the user cancelled the run; the caller asks the server for its end."""
        if not self.state.cancelling:
            self.add(CancelRequested(time.time()))
            self.commit()

    def _note_cancel(self, answer: _Answer) -> None:
        """Record a cancellation: by another process here, or as the server reports it.

        KFP finally reports such a run as FAILED, and its history lacks CANCELING. The evidence is how the backend ends a
        Workflow: ``activeDeadlineSeconds: 0`` (``execution_spec.go``, ``GetTerminatePatch``; seen on 2.16.1).
        """
        asked = "cancel" in self._journal.take_requests()
        history = answer.run.get("state_history") or ()
        states = {str(answer.run.get("state", "")), *(str(each.get("state", "")) for each in history)}
        was_ended = ((answer.workflow or {}).get("spec") or {}).get("activeDeadlineSeconds") == 0
        if (asked or was_ended or states & {"CANCELING", "CANCELED"}) and not self.state.cancelling:
            self.add(CancelRequested(time.time()))

    def _read_outputs(self, seen: Mapping[str, SeenTask]) -> None:
        """Read the output parameters of all tasks from KFP's metadata store, their only source, once."""
        specs = ((path, task.plan.spec) for path, task in self.state.tasks.items() if path in seen)
        wanted = {
            path: number
            for path, spec in specs
            if spec.dag is None and spec.outputs.parameters and (number := seen[path].execution_id) is not None
        }
        if not wanted:
            return
        try:
            found = self._server.outputs(wanted.values())
        except (InputError, ServerAway) as error:
            self.note(f"{_NO_OUTPUTS} ({error})")
            return
        self._recorder.outputs({path: found.get(number, {}) for path, number in wanted.items()})

    def _note_earlier_results(self) -> None:
        """Name the tasks whose outputs are missing because KFP used an earlier result.

        Such a task's driver writes neither its execution's number nor its artifacts' addresses into the Workflow
        (backend ``v2/driver/container.go``: it returns before it makes the pod's patch).
        """
        missing = [path for path, task in self.state.tasks.items() if task.cached_from is not None and _misses(task)]
        if missing:
            more = f" and {plural(len(missing) - _NAMED, 'other task')}" if len(missing) > _NAMED else ""
            whose = "its" if len(missing) == 1 else "their"
            where = f": look at {self._run.page}" if self._run.page else ""
            names = f"{', '.join(missing[:_NAMED])}{more}"
            self.note(f"KFP used an earlier result for {names}, and {whose} outputs are unknown here{where}")

    def _finish(self, ended: RunStatus, answer: _Answer, seen: Mapping[str, SeenTask]) -> None:
        run, why = answer.run, ""
        status = (answer.workflow or {}).get("status") or {}
        at = next((at for each in (status.get("finishedAt"), run.get("finished_at")) if (at := seconds(each))), None)
        if ended is RunStatus.FAILED and self.state.cancelling:
            ended = RunStatus.CANCELLED
        elif ended is RunStatus.FAILED:
            inner = [path for path in self.state.failed if self.state.tasks[path].plan.spec.dag is None]
            words = str((run.get("error") or {}).get("message", ""))
            why = words or (f"{inner[0]} failed" if inner else _first_pod_failed(seen) or "KFP gives no reason")
        self._recorder.finish(ended, why, time.time(), at)

    def _away(self, error: ServerAway, pauses: Pauses) -> None:
        now = time.time()
        if self._away_since is None:
            self._away_since = now
            minutes = f"{pauses.give_up / 60:.3g} minutes"
            self.add(NoteAdded(now, text=f"{error}: retrying for {minutes}; the run continues there"))
            self.commit()
        elif now - self._away_since > pauses.give_up:
            raise ServerAway(f"{error}, for {pauses.give_up / 60:.3g} minutes now") from error


def _misses(task: TaskState) -> bool:
    """Whether a declared output of a task is unknown."""
    outputs = task.plan.spec.outputs
    return not (
        outputs.parameters.keys() <= task.parameters.keys() and outputs.artifacts.keys() <= task.artifacts.keys()
    )


def _first_pod_failed(seen: Mapping[str, SeenTask]) -> str:
    """Argo's message about the driver of the whole run, if it failed: then tasks have not begun, and v2beta1 has no error."""
    driver = seen.get("root-driver")
    if driver is None or driver.node.phase not in {"Failed", "Error"}:
        return ""
    return (driver.tries[-1].message if driver.tries else "") or driver.node.message


class _Answer(NamedTuple):
    """A server's status of a run: v2beta1's answer, and its Workflow if v1beta1 has one."""

    run: dict[str, Any]
    workflow: dict[str, Any] | None


@contextmanager
def followed(
    folder: RunFolder, server: KfpServer, run: KfpRun, show: Shown, notes: Sequence[str] = ()
) -> Iterator[Follower]:
    """A follower that holds the run's lease. ``notes`` are added once to the run.

    Raises :class:`RunBusy` while another process follows it.
    """
    with errors_after_start(), leased(folder) as journal:
        stored = load_plans(folder)
        state = replay([each.plan for each in stored], (event for _, event in journal.events()))
        first = next((event for _, event in journal.events()), None) if not state.epoch else None
        if first is None:
            show.join(state)
        else:
            show(state, [first])
        follower = Follower(journal, state, server, run, show)
        if state.status is RunStatus.RUNNING:
            follower.add(EngineStarted(time.time(), epoch=journal.epoch, pid=os.getpid(), version=__version__))
        for text in notes:
            follower.note(text)
        follower.commit()
        try:
            yield follower
        except KeyboardInterrupt:
            follower.leave("the user stopped following it")
        except (ServerAway, InputError) as error:
            follower.leave("the server could not be reached")
            again = f"{error}; the run continues there: follow it again with spotwright resume {folder.name}"
            raise type(error)(again) from error


_POLL = 0.2  # seconds between two reads of a followed run


def cancel(folder: RunFolder, run: KfpRun, *, pauses: Pauses, timeout: float = 120.0) -> RunState:
    """Cancel a run and return its last state.

    Raises :class:`InputError` for one that has ended already, or does not end within ``timeout`` seconds.
    """
    reader = RunReader(folder, is_alive)
    if _has_ended(reader):
        raise InputError(f"run {folder.name} has ended already: {reader.state.status.value}")
    server = KfpServer(run.login)
    with contextlib.closing(Journal.open(folder.journal)) as journal:
        if reader.is_driven:
            journal.request("cancel", time.time())
    server.terminate(run.run_id)
    deadline = time.monotonic() + timeout
    while reader.is_driven and time.monotonic() < deadline:
        reader.source.pause(_POLL)
        reader.refresh()
    if _has_ended(reader):
        return reader.state
    return _wait_alone(folder, run, server, deadline, pauses)


def _has_ended(reader: RunReader) -> bool:
    return reader.state.status is not RunStatus.RUNNING


def _wait_alone(folder: RunFolder, run: KfpRun, server: KfpServer, deadline: float, pauses: Pauses) -> RunState:
    """Follow the run to its end without output: there is no other follower."""

    def between(seconds: float) -> None:
        if time.monotonic() >= deadline:
            raise InputError(f"run {folder.name}: KFP was asked to terminate it, and it has not ended yet")
        time.sleep(seconds)

    with followed(folder, server, run, _Silence()) as follower:
        follower.cancelled()
        follower.follow(pauses, between)
    return follower.state


class _Silence:
    """A view that stays silent."""

    def join(self, state: RunState, /) -> None:
        """Stay silent."""

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Stay silent."""
