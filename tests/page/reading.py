"""A reader of a story, for the tests of the page: it folds the story's events like those of a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.adopted import AdoptedTask
from tests.engine.builders import ON_DEMAND, SPOT, SPOT_B, START
from tests.views.builders import Story

from spotwright.engine.events import Event, RunCreated, RunMeta
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import Look

__all__ = ["TELLER", "AJob", "StoryReader", "reader_from", "reader_of"]

TELLER = "iris-x7k2p"
NOWHERE = Path("/nowhere")


class _Told:
    """The source of a run whose events are at hand."""

    def __init__(self, events: Sequence[Event], now: float | None) -> None:
        self._events, self._now = list(events), now

    def tell(self, event: Event) -> None:
        """Something happens that no reader has folded yet."""
        self._events.append(event)

    def made_at(self) -> int:
        return 1

    def plan_count(self) -> int:
        return 1

    @contextmanager
    def look(self, after: int, only_of: str = "") -> Iterator[Look]:
        numbered = list(enumerate(self._events, 1))[after:]
        yield Look(self._now is not None, iter(numbered))

    def now(self) -> float:
        assert self._now is not None
        return self._now


class StoryReader(RunReader):
    """A reader whose plan was made by hand, so that no file has it."""

    def __init__(self, plan: Plan, folder: RunFolder, source: Any) -> None:
        self._plan = plan
        super().__init__(folder, source)

    def _begin(self) -> None:
        super()._begin()
        self.state = RunState([self._plan])


def reader_of(story: Story, *, driven: bool = False, folder: Path = NOWHERE) -> StoryReader:
    """A reader of the story so far. ``driven``: an engine drives the run now."""
    return reader_from(story.state.plans[0], story.events, story.at if driven else None, folder)


def reader_from(plan: Plan, events: Sequence[Event], now: float | None = None, folder: Path = NOWHERE) -> StoryReader:
    """A reader of these events. ``now``: an engine drives the run then."""
    return StoryReader(plan, RunFolder(folder / TELLER), _Told(events, now))


class AJob(AdoptedTask):
    """A Job in a cluster: a task whose attempts an orchestrator makes, with the events of its journal."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        super().__init__((SPOT, SPOT_B, ON_DEMAND), pending_timeout="10m")
        self.add(RunCreated(START, meta=RunMeta(run="job", orchestrator="Job", arguments={"namespace": "team-a"})))

    def add(self, event: Event) -> None:
        super().add(event)
        self.events.append(event)
