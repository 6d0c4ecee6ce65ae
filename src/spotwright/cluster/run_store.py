"""Keeps a run for each workload: its records and its folded state.

The events of one observation are one transaction: all are recorded, or the next observation finds them again.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright import config as configuration
from spotwright.cluster.record_gaps import note_of_gap
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.run_records import UID, RunRecord, RunRecords, TooLarge
from spotwright.cluster.unavailable_pools import NAMESPACE_UID
from spotwright.cluster.view import NodePool
from spotwright.config import Config
from spotwright.engine.events import (
    AttemptAdopted,
    EngineStarted,
    Event,
    PlanExtended,
    RunCreated,
    RunFinished,
    RunMeta,
    RunStatus,
)
from spotwright.engine.fold import fold
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.errors import Fenced, SpotwrightError, StateError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.manifests.pod_graph import PodSource, PodTask
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_bytes
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import PlanVersions, StoredPlan
from spotwright.version import __version__

__all__ = [
    "RunStore",
    "WorkloadRun",
]


_LOG = logging.getLogger(__name__)

NAMESPACE_LIMIT = 96 << 20
"""Memory limit of a namespace's active runs, in bytes: 10,000 different steps, or 2,000 small runs."""

LIMIT = 192 << 20
"""The same for all namespaces together: with the rest of the process it is within 512 MiB."""

_GROWTH = 3  # bytes of memory for each byte of a plan or journal
_TEMPLATE = 6_000  # bytes of memory for each template beside that (measured with 5,000 templates)
_LONGEST_TEMPLATE = 16 << 10  # bytes of a template's planned part: some hundred conditions on nodes
_MOST_CONTAINERS = 100  # names of a template without its demands
_OVER_KEPT = 100_000  # remembered workloads of ended runs: some 20 MB
_KFP_RUN = "pipeline/runid"  # the label of a Workflow with the id of its run in Kubeflow Pipelines
_KFP_NAME = "pipelines.kubeflow.org/run_name"  # the annotation with the user's name of the run (seen on 2.17.0)
_LONGEST_NAME = 128  # characters of it: KFP allows as many


@dataclass
class WorkloadRun:
    """One run under this watcher's lease. ``state`` is the journal's, plus the ``pending`` events."""

    record: RunRecord
    state: RunState
    pending: list[Event]
    require: Callable[[], None]  # raises Fenced once this process may no longer write
    weighed: Callable[[WorkloadRun], None]  # called after it has grown
    is_shown: bool = True
    """Whether its current state is published for people."""
    size: int = 0
    """The approximate bytes of memory of its plan and its journal."""
    stored: int = 0
    """Its bytes in the store, as they are counted."""
    _attempts: dict[str, tuple[TaskState, AttemptState]] | None = None

    @property
    def folder(self) -> RunFolder:
        """Its name, and the place of its logs."""
        return self.record.folder

    @property
    def uid(self) -> str:
        """The UID of its workload."""
        return str(self.state.meta.arguments.get(UID, ""))

    @property
    def namespace(self) -> str:
        """The namespace of its workload."""
        return str(self.state.meta.arguments.get("namespace", ""))

    @property
    def is_over(self) -> bool:
        """Whether its end is recorded or pending."""
        return self.state.status is not RunStatus.RUNNING

    @property
    def attempts(self) -> Mapping[str, tuple[TaskState, AttemptState]]:
        """All attempts by their keys, with their tasks. A look at one pod of thousands does not go through all of them."""
        if self._attempts is None:
            tasks = (*self.state.tasks.values(), *self.state.retired.values())
            self._attempts = {attempt.key: (task, attempt) for task in tasks for attempt in task.attempts}
        return self._attempts

    def add(self, event: Event) -> None:
        """Fold an event now and write it with the next :meth:`commit`."""
        fold(self.state, event)
        if isinstance(event, AttemptAdopted) and self._attempts is not None:
            task = self.state.tasks[event.task]
            self._attempts[event.key] = (task, task.last)
        self.pending.append(event)

    def commit(self) -> Sequence[Event]:
        """Write the pending events durably, in one transaction if they are at most ``record.at_once``, and return them.

        Raises :class:`StateError`, and :class:`Fenced` if another process records now.
        """
        self.require()
        events, self.pending = self.pending, []
        if events:
            self.is_shown = False
            for first in range(0, len(events), self.record.at_once):
                self.require()
                self.record.append(events[first : first + self.record.at_once], self.state)
            self.weighed(self)
        return events

    def tell(self, now: float) -> None:
        """Show its current state. Raises as :meth:`commit`."""
        self.require()
        self.record.tell(self.state, now)
        self.is_shown = True

    def weigh(self) -> int:
        """Re-estimate its size, while its journal is open. Returns its growth in bytes."""
        before, templates = self.size, len(self.state.plan.graph.root.tasks)
        self.size = _GROWTH * self.record.size + _TEMPLATE * templates
        return self.size - before

    def add_pool(self, at: float, pool: NodePool) -> None:
        """Add a pool to the plan."""
        self.add(PlanExtended(at, pool=pool.name, is_spot=pool.is_spot))

    def add_template(self, at: float, template: PodTask) -> None:
        """Add a template to the plan; if it fits no pool or is too large to be recorded, without constraints.

        Only the template is written, not the whole plan: a pipeline may have thousands of templates.
        """
        data = _short(template).to_data()
        try:
            self.state.plan.with_template(data).instance(template.name, template.name)
        except SpotwrightError:
            data = _without_demands(template).to_data()
        self.add(PlanExtended(at, template=data))

    def learn_retries(self, at: float, template: str, retries: int) -> None:
        """Set a template's retries to its controller's."""
        self.add(PlanExtended(at, template={"name": template, "retries": retries}))


class RunStore:
    """The runs of all watched workloads, by UID. ``config_of`` returns the configuration for a namespace's new runs.

    ``require`` is called before each write, and raises :class:`Fenced` once another process records
    (:meth:`spotwright.cluster.lease.KubernetesLease.require`). Without it the caller ensures a single recorder.
    ``shares`` counts the stored bytes of runs.
    """

    def __init__(
        self,
        records: RunRecords,
        config_of: Config | Callable[[str], Config],
        require: Callable[[], None] = lambda: None,
        shares: Shares | None = None,
    ) -> None:
        self.records, self.require = records, require
        self.shares = shares or Shares()
        self._config_of = (lambda _: config_of) if isinstance(config_of, Config) else config_of
        self.runs: dict[str, WorkloadRun] = {}
        self._over: OrderedDict[str, None] = OrderedDict()  # UIDs of the latest workloads with ended runs
        self.unopened: dict[str, RunRecord] = {}  # unfinished runs that cannot be written, by UID
        self._sizes: Counter[str] = Counter()  # of runs in memory, by namespace
        self.on_cut: Callable[[WorkloadRun], None] = lambda _run: None
        """Called with each run whose recording was cut."""

    def open_unfinished(self, now: float, is_wanted: Callable[[str], bool] = lambda _: True) -> Iterator[str]:
        """Resume the unfinished runs of the wanted namespaces. Yields a sentence for each unreadable run.

        Of ended runs only the first and the last event are read. A readable run that cannot be written is in ``unopened``.
        """
        for record in self.records.all(is_wanted):
            self.require()
            try:
                known = record.glance()
                if known is None:
                    continue
                if known.has_ended:
                    self._note_over(known.uid)
                elif known.uid and known.uid not in self.runs and is_wanted(known.namespace):
                    self.unopened[known.uid] = record
                    self.open_again(record, now)
                    self.keep_limits(now)
            except Fenced:
                raise
            except SpotwrightError as error:
                yield f"cannot watch run {record.folder.name}: {error}"
            except Exception as error:  # noqa: BLE001  # a defect, or a hostile object: continue with all others
                _LOG.exception("run %s is not watched, because of a defect in Spotwright", record.folder.name)
                yield f"run {record.folder.name} is not watched: {error!r}"

    def config(self, namespace: str) -> Config:
        """The configuration for new runs of a namespace."""
        return self._config_of(namespace)

    def pools(self, namespace: str) -> Mapping[str, Pool]:
        """The pools of the configuration for new runs of a namespace."""
        return self._config_of(namespace).pools

    def runs_of(self, namespace: str) -> list[tuple[str, WorkloadRun]]:
        """The runs of a namespace with the UIDs of their workloads."""
        return [(uid, run) for uid, run in self.runs.items() if run.namespace == namespace]

    def is_over(self, uid: str) -> bool:
        """Whether this workload's run is remembered as ended; its records have the certain answer."""
        return uid in self._over

    def has_ended(self, root: Mapping[str, Any]) -> bool:
        """Whether this workload's run has ended, by its records: its author may recreate an old one."""
        uid = uid_of(root)
        if uid in self.runs:
            return False
        self.require()
        try:
            known = self.records.of(root).glance()
        except SpotwrightError:
            return False  # opening it reports the problem
        if known is not None and known.has_ended and known.uid == uid:
            self._note_over(uid)
            return True
        return False

    def _note_over(self, uid: str) -> None:
        self._over[uid] = None
        self._over.move_to_end(uid)
        if len(self._over) > _OVER_KEPT:
            self._over.popitem(last=False)

    def create(
        self,
        root: Mapping[str, Any],
        templates: Sequence[PodTask],
        pools: Sequence[NodePool],
        now: float,
        namespace_uid: str = "",
    ) -> WorkloadRun:
        """Begin the run of a workload. Unfinished records of a killed watcher are completed.

        ``namespace_uid`` is the UID of its namespace: the owner of a later namespace of that name may not read the run. Without
        it they may.
        """
        self.require()
        record = self.records.of(root)
        known = record.glance()
        if known is not None and known.uid:  # recorded earlier, and not found when this process started
            return self.open_again(record, now)
        config = self._config_of(str(metadata(root).get("namespace", "")))
        found = tuple(pool for pool in pools if pool.name not in config.pools)
        for pool in found:
            config = _with_pool(config, pool)
        source = PodSource(str(metadata(root)["name"]), tuple(map(_short, templates)))
        names = tuple(pool.name for pool in found)
        stored = _plannable(StoredPlan(source, config, None, {}, real_nodes=True, found=names))
        self.require()
        record.create(stored)
        state = RunState(PlanVersions(record.folder, record.source()))
        made_at = min(now, seconds(metadata(root).get("creationTimestamp")) or now)
        run = self._keep(
            record, state, now, created=RunCreated(made_at, meta=_meta(root, record.folder.name, config, namespace_uid))
        )
        run.commit()
        return run

    def finish(self, run: WorkloadRun) -> None:
        """Close a run with a written end."""
        self.shares.new[run.namespace] += run.stored
        self._drop(run)
        self._note_over(run.uid)

    def keep_limits(self, now: float) -> None:
        """Cut the recording of runs until the limits are met, the largest run of the largest namespace first.

        So a namespace pays only for its own runs, and a small run is recorded beside a large one.
        """
        while self._sizes:
            namespace, size = self._sizes.most_common(1)[0]
            if size > NAMESPACE_LIMIT:
                why = f"the records of its namespace need more than {format_bytes(NAMESPACE_LIMIT)} of memory"
            elif self._sizes.total() > LIMIT:
                why = f"all records need more than {format_bytes(LIMIT)} of memory, and this namespace needs the most"
            else:
                break
            self._cut_largest(namespace, why, now, lambda run: run.size)
        while (found := self.shares.too_much_goes_on()) is not None:
            if not self.cut_largest(*found, now):
                break

    def cut_largest(self, namespace: str, why: str, now: float) -> bool:
        """Cut the recording of the largest active run of a namespace. ``why`` is a clause. False: none is active."""
        return self._cut_largest(namespace, why, now, lambda run: run.stored)

    def _cut_largest(self, namespace: str, why: str, now: float, size: Callable[[WorkloadRun], int]) -> bool:
        """Cut the recording of the largest active run of a namespace; of equal ones the newest. False: there is none.

        The run counts as stopped: it leaves the memory, and its records may be deleted like an ended run's. The workload
        continues. If the cut cannot be written, the run is closed anyway, until it can be read again.
        """
        runs = [run for _, run in self.runs_of(namespace)]
        run = max(runs, key=lambda run: (size(run), run.state.started_at), default=None)
        if run is None:
            return False
        remedy = "run fewer at once, or split this one"
        self._cut(run, "RecordingCut", f"{why}. The workload itself goes on. To have all of it recorded, {remedy}", now)
        return True

    def cut_refused(self, uid: str, why: SpotwrightError, now: float) -> None:
        """Cut the recording of a run with an event that cannot be recorded; drop its pending events."""
        run = self.runs.get(uid)
        if run is not None and not run.is_over:
            run.pending = []
            self._cut(run, "TooLarge" if isinstance(why, TooLarge) else "NotRecorded", str(why), now)

    def _cut(self, run: WorkloadRun, reason: str, why: str, now: float) -> None:
        text = f"its recording stopped here, because {why}"
        _LOG.warning("run %s: %s", run.folder.name, text)
        run.record.note_incomplete(reason, text)
        try:
            run.add(RunFinished(now, status=RunStatus.STOPPED, why=text))
            run.commit()
            self.finish(run)
        except StateError as error:
            _LOG.warning("forgetting run %s until it can be written: %s", run.folder.name, error)
            self.forget(run.uid)
        self.on_cut(run)

    def forget(self, uid: str) -> None:
        """Drop a run from memory after its journal could not be written; :meth:`open_again` reads it again."""
        run = self.runs.get(uid)
        if run is not None:
            self._drop(run)
            self.unopened[uid] = run.record

    def open_again(self, record: RunRecord, now: float) -> WorkloadRun:
        """Reread a run from its records. Raises :class:`StateError`."""
        self.require()
        run = self._keep(record, RunReader(record.folder, record.source()).state, now)
        self.unopened.pop(run.uid, None)
        return run

    def release(self, run: WorkloadRun) -> None:
        """Close an unfinished run that is no longer watched; :meth:`open_unfinished` opens it again."""
        self._drop(run)

    def close(self) -> None:
        """Stop recording. The next watcher resumes the runs."""
        for run in self.runs.values():
            run.record.close()
        self.runs.clear()

    def _weigh(self, run: WorkloadRun) -> None:
        """Count a run's bytes in memory and in the store."""
        self._sizes[run.namespace] += run.weigh()
        self._count(run, run.record.stored)

    def _count(self, run: WorkloadRun, stored: int) -> None:
        """Count a run's bytes in the store."""
        self.shares.grow(run.namespace, stored - run.stored)
        run.stored = stored

    def _drop(self, run: WorkloadRun) -> None:
        run.record.close()
        self.runs.pop(run.uid, None)
        self._sizes[run.namespace] -= run.size
        run.size = 0
        self._count(run, 0)
        if self._sizes[run.namespace] <= 0:
            del self._sizes[run.namespace]

    def _keep(self, record: RunRecord, state: RunState, now: float, created: RunCreated | None = None) -> WorkloadRun:
        self.require()
        try:
            has_begun = record.open()
            run = WorkloadRun(record, state, [], self.require, self._weigh)
            if created is not None and not has_begun:
                run.add(created)
            run.add(EngineStarted(now, epoch=record.epoch, pid=os.getpid(), version=__version__))
            if record.lost:
                run.add(note_of_gap(now, len(record.lost)))
            run.commit()
        except BaseException:
            record.close()
            raise
        self.runs[run.uid] = run
        return run


def _meta(root: Mapping[str, Any], name: str, config: Config, namespace_uid: str) -> RunMeta:
    meta = metadata(root)
    kind, namespace = str(root.get("kind", "")), str(meta.get("namespace", ""))
    arguments = {"kind": kind, "namespace": namespace, "name": str(meta.get("name", "")), UID: uid_of(root)}
    if namespace_uid:
        arguments[NAMESPACE_UID] = namespace_uid
    kfp_run = (meta.get("labels") or {}).get(_KFP_RUN)
    if kfp_run:
        arguments["kfp_run"] = str(kfp_run)
        kfp_name = (meta.get("annotations") or {}).get(_KFP_NAME)
        arguments |= {"kfp_name": str(kfp_name)[:_LONGEST_NAME]} if kfp_name else {}
    return RunMeta(
        run=name,
        pipeline=f"{kind} {namespace}/{meta.get('name', '')}",
        config=config.path,
        arguments=arguments,
        orchestrator=kind,
    )


def _plannable(stored: StoredPlan) -> StoredPlan:
    """The plan; without its templates' requirements if they fit no pool: the cluster, not the plan, decides where pods run."""
    try:
        stored.plan.check()
    except SpotwrightError:
        source = stored.source
        if not isinstance(source, PodSource):
            raise StateError("a workload's plan is made from its pod templates") from None
        bare = PodSource(source.pipeline, tuple(_without_demands(task) for task in source.tasks))
        return replace(stored, source=bare)
    return stored


def _short(task: PodTask) -> PodTask:
    """The template; only its containers if it is too large to be recorded."""
    return task if len(json.dumps(task.to_data())) <= _LONGEST_TEMPLATE else _without_demands(task)


def _without_demands(task: PodTask) -> PodTask:
    containers = [{"name": each.get("name", "")} for each in task.spec.get("containers") or ()][:_MOST_CONTAINERS]
    return PodTask(task.kind, task.name, {"containers": containers}, retries=task.retries)


def _with_pool(config: Config, pool: NodePool) -> Config:
    """The configuration with one more pool, as a storable text."""
    import yaml

    data = yaml.safe_load(config.text) or {}
    capacity = "spot" if pool.is_spot else "on-demand"
    pools = {**(data.get("pools") or {}), pool.name: {"capacity": capacity}}
    return configuration.from_mapping({**data, "pools": pools}, config.path)
