"""The plan of a run as a file: the source of its graph, the configuration, and the command-line options that change them.

The source is a compiled pipeline or pod templates. One key of the file says which: ``compiled`` or ``pods``.

A run never rereads the user's files: everything behind its plan is in its own folder, one file per version. A resume with
changed code writes the next version beside the earlier ones. The prices of price sheets are stored too, so that its costs do
not need the sheets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.events import Event
from spotwright.engine.plan import Plan
from spotwright.engine.ports import Liveness
from spotwright.errors import InputError, StateError
from spotwright.kfp.compiled import Compiled, read_shared_json
from spotwright.kfp.pipeline_graph import build
from spotwright.model.policy import Layer, PolicyValueError, parse_policy
from spotwright.model.pools import Pool, Quote, Trace
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder, write_atomically
from spotwright.regular_files import open_regular

if TYPE_CHECKING:
    from spotwright.manifests.pod_graph import PodSource


__all__ = [
    "LARGEST_LOG",
    "Look",
    "PlanTexts",
    "PlanVersions",
    "RunFiles",
    "RunSource",
    "StoredPlan",
    "can_be_taken",
    "load_plans",
    "plan_document",
    "quotes_from_data",
    "quotes_to_data",
    "save_forecast",
    "save_plan",
    "traces_of",
]


def quotes_to_data(pools: Mapping[str, Pool]) -> dict[str, list[object]]:
    """The quotes of pools for a JSON file; prices exactly, as text."""
    return {name: [str(pool.quote.price), *pool.quote[1:]] for name, pool in pools.items() if pool.quote is not None}


def quotes_from_data(data: Mapping[str, Sequence[object]]) -> dict[str, Quote]:
    """The quotes that :func:`quotes_to_data` wrote."""
    return {name: Quote(Fraction(str(price)), *rest) for name, (price, *rest) in data.items()}  # type: ignore[arg-type]


@dataclass(frozen=True)
class StoredPlan:
    """One version of a run's plan. ``traces`` are the recordings of its pools.

    ``found`` are undescribed pools read from nodes.
    ``real_nodes``: the nodes are a cluster's and cost money, and a deadline has no effect; the nodes of a run on one
    machine are simulated.
    """

    source: Compiled | PodSource
    config: Config
    interrupt_every: float | None
    traces: Mapping[str, Trace]
    policy: Mapping[str, Any] = field(default_factory=dict)  # --policy, in the shape of policy.default
    real_nodes: bool = False
    found: tuple[str, ...] = ()

    @cached_property
    def plan(self) -> Plan:
        """The plan for the engine, with ``--interrupt-every`` applied to simulated pools. Cached, because large graphs take long.

        Raises :class:`InputError` for a pipeline or a policy that cannot run.
        """
        pools = self.config.pools
        if not self.real_nodes:
            pools = {name: _simulated(pool, self.interrupt_every) for name, pool in pools.items()}
        graph = build(self.source) if isinstance(self.source, Compiled) else self.source.graph(pools)
        return Plan(
            graph,
            replace(self.config, pools=pools),
            self._flags(),
            frozenset(self.found),
            keeps_deadlines=not self.real_nodes,
        )

    def place_of(self, path: str) -> str:
        """The place of a task in its source, for messages: a file with its line, or the name of a pod template."""
        if not isinstance(self.source, Compiled):
            return self.source.place_of(path)
        from spotwright.kfp.compiled_files import place_of  # here: only for errors

        return place_of(self.source, path)

    def _flags(self) -> Layer | None:
        try:
            return parse_policy(self.policy, "--policy") if self.policy else None
        except PolicyValueError as error:
            raise InputError(f"--policy {error}") from error


def _simulated(pool: Pool, interrupt_every: float | None) -> Pool:
    if interrupt_every is not None and pool.is_spot:
        pool = replace(pool, simulate=pool.simulate._replace(interrupt_every=interrupt_every, trace=None))
    return pool.simulated


def can_be_taken(pools: Mapping[str, Pool]) -> bool:
    """Whether any node of these pools can be reclaimed in a local run."""
    return any(
        pool.simulate.interrupt_every is not None or pool.simulate.trace is not None or pool.max_lifetime is not None
        for pool in pools.values()
    )


def traces_of(config: Config, interrupt_every: float | None) -> dict[str, Trace]:
    """Read the recorded traces that the configuration names; empty if ``--interrupt-every`` overrides them."""
    if interrupt_every is not None:
        return {}
    return {
        name: configuration.load_trace(pool.simulate.trace, pool.max_price)
        for name, pool in config.pools.items()
        if pool.simulate.trace is not None
    }


def save_plan(folder: RunFolder, version: int, stored: StoredPlan) -> None:
    """Write one version of the plan. Raises :class:`StateError` if it cannot be written."""
    _write(folder, folder.plan(version), plan_document(stored))


def plan_document(stored: StoredPlan) -> dict[str, Any]:
    """One version of the plan as JSON values, as it is stored."""
    return {
        "compiled" if isinstance(stored.source, Compiled) else "pods": stored.source.to_data(),
        "config": {"text": stored.config.text, "path": stored.config.path},
        "taken_every": stored.interrupt_every,
        "policy": dict(stored.policy),
        "real_nodes": stored.real_nodes,
        "found": list(stored.found),
        "quotes": quotes_to_data(stored.config.pools),
        "traces": {name: [trace.gap, list(trace.counts)] for name, trace in stored.traces.items()},
    }


def save_forecast(folder: RunFolder, text: str) -> None:
    """Store the output of ``spotwright plan --json`` beside a run. Raises :class:`StateError` if it cannot be written."""
    _write(folder, folder.forecast, text)


def _write(folder: RunFolder, path: Path, content: str | Mapping[str, Any]) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise StateError(
            f"{folder.path}: cannot be written ({error.strerror}); free some space or use --state"
        ) from error


def load_plans(folder: RunFolder, texts: PlanTexts | None = None) -> list[StoredPlan]:
    """Read every version of a run's plan, oldest first. Raises :class:`StateError` if one cannot be read.

    ``texts``: where they are kept, by default in the folder.
    """
    texts = folder if texts is None else texts
    plans = [_load(texts, folder.path, version) for version in range(1, texts.plan_count() + 1)]
    if not plans:
        raise StateError(f"{folder.path}: its plan is missing; the run was never started")
    return plans


class PlanTexts(Protocol):
    """The stored versions of a run's plan, wherever they are kept."""

    def plan_count(self) -> int:
        """How many versions there are."""

    def plan_text(self, version: int) -> tuple[str, str]:
        """The place of one version, from 1, for messages, and its text. Raises :class:`OSError` and :class:`ValueError`."""


class PlanVersions(Sequence[Plan]):
    """The versions of a run's plan, oldest first, each read on first use: a resume may add one at any moment.

    Raises :class:`StateError` for a version that cannot be read.
    """

    def __init__(self, folder: RunFolder, texts: PlanTexts | None = None) -> None:
        self._path = folder.path
        self._texts: PlanTexts = folder if texts is None else texts
        self._plans: list[Plan] = []

    @overload
    def __getitem__(self, index: int) -> Plan: ...

    @overload
    def __getitem__(self, index: slice) -> list[Plan]: ...

    def __getitem__(self, index: int | slice) -> Plan | list[Plan]:
        if isinstance(index, int) and 0 <= index < len(self._plans):
            return self._plans[index]
        count = self._texts.plan_count()
        if not count:
            raise StateError(f"{self._path}: its plan is missing; the run was never started")
        for version in range(len(self._plans) + 1, count + 1):
            self._plans.append(_load(self._texts, self._path, version).plan)
        return self._plans[index]

    def __len__(self) -> int:
        return self._texts.plan_count()


def _load(texts: PlanTexts, path: Path, version: int) -> StoredPlan:
    place = str(path / f"plan-{version}.json")
    try:
        place, content = texts.plan_text(version)
        document = read_shared_json(content)
        source = _read_source(document)
        text, name = document["config"]["text"], document["config"]["path"]
        quotes = quotes_from_data(document.get("quotes", {}))  # runs of earlier versions have none
        traces = {pool: Trace(gap, tuple(counts)) for pool, (gap, counts) in document["traces"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{place}: cannot be read ({error}); the run cannot be shown or resumed without it") from error
    config = configuration.parse(text, name, traces_exist=False, quotes=quotes)
    real_nodes = document.get("real_nodes", False)  # runs of earlier versions lack it
    found = tuple(document.get("found", ()))
    return StoredPlan(source, config, document["taken_every"], traces, document["policy"], real_nodes, found)


def _read_source(document: Mapping[str, Any]) -> Compiled | PodSource:
    if "pods" not in document:
        return Compiled.from_data(document["compiled"])
    from spotwright.manifests.pod_graph import PodSource  # reading a run of a pipeline does not need it

    return PodSource.from_data(document["pods"])


class Look(NamedTuple):
    """One look at a run: whether an engine drives it, and its new events, each with its sequence number."""

    is_driven: bool
    events: Iterator[tuple[int, Event]]


class RunSource(PlanTexts, Protocol):
    """The facts of one run. Every method may raise :class:`~spotwright.errors.SpotwrightError`."""

    def made_at(self) -> int:
        """The run's creation time in nanoseconds: another number means another run of this name."""

    def look(self, after: int, only_of: str = "") -> AbstractContextManager[Look]:
        """The events after a sequence number, while the context is open.

        ``only_of``: a task; events of tasks other than it and those inside it may be left out.
        """

    def pause(self, seconds: float) -> None:
        """Wait before the next look, which finds at least all events until then."""

    def now(self) -> float:
        """The present by the recorder's clock, in Unix seconds."""

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """A log's bytes from an offset, at most ``at_most`` (-1: all); empty without a log.

        ``environment``: the file of a build's log, or empty for the log of an attempt.
        """

    def other_run(self, name: str) -> RunSource | None:
        """Another run beside this one, if it exists."""


LARGEST_LOG = 4_000_000_000
"""The largest log in bytes: a reader holds it in memory."""


class RunFiles:
    """A run in a state folder on this machine."""

    def __init__(self, folder: RunFolder, is_alive: Liveness) -> None:
        self._folder, self._is_alive = folder, is_alive

    def made_at(self) -> int:
        """See :meth:`RunSource.made_at`."""
        return self._folder.made_at()

    def plan_count(self) -> int:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_count`."""
        return self._folder.plan_count()

    def plan_text(self, version: int) -> tuple[str, str]:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_text`."""
        return self._folder.plan_text(version)

    @contextmanager
    def look(self, after: int, only_of: str = "") -> Iterator[Look]:
        """See :meth:`RunSource.look`."""
        with closing(Journal.read(self._folder.journal)) as journal:
            # First the lease: once the engine is gone, the journal is complete.
            lease = journal.lease()
            is_driven = lease is not None and lease.is_held(time.time(), self._is_alive)
            yield Look(is_driven, journal.events(after, only_of))

    def pause(self, seconds: float) -> None:
        """See :meth:`RunSource.pause`."""
        time.sleep(seconds)

    def now(self) -> float:
        """See :meth:`RunSource.now`."""
        return time.time()

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """See :meth:`RunSource.read_log`."""
        path = self._folder.environment_log(environment) if environment else self._folder.log(task, attempt)
        try:
            if path.stat().st_size <= offset:  # three times cheaper than opening it
                return b""
            with open_regular(path, LARGEST_LOG) as file:
                file.seek(offset)
                return file.read(at_most)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise StateError(f"{path}: cannot be read ({error.strerror})") from error

    def other_run(self, name: str) -> RunFiles | None:
        """See :meth:`RunSource.other_run`."""
        folder = RunFolder(self._folder.path.parent / Path(name).name)  # journals name it
        return RunFiles(folder, self._is_alive) if folder.journal.exists() else None
