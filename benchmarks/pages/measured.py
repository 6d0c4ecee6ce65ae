"""What all lines share: the browser, folders, and runs that are made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from benchmarks.pages.inputs import LIVE, made
from playwright.sync_api import Browser
from tests.page.made_runs import KINDS, Kind

__all__ = ["Measured"]

LARGE = 10_000
"""Tasks of the large run; it has about 20,000 attempts and 120,000 events."""


class Measured:
    """One run of the benchmark. Everything is made below ``folder``."""

    def __init__(self, folder: Path, browser: Browser, *, quick: bool) -> None:
        self.folder, self.browser, self.quick = folder, browser, quick
        self._count = 0

    def times(self, usual: int) -> int:
        """How often something is measured."""
        return 1 if self.quick else usual

    def new_folder(self, name: str) -> Path:
        """An unused folder."""
        self._count += 1
        path = self.folder / f"{name}-{self._count}"
        path.mkdir()
        return path

    def ordinary(self) -> Path:
        """A state folder with one run of nine tasks, called ``ordinary``."""
        return self._ordinary

    @cached_property
    def _ordinary(self) -> Path:
        state = self.new_folder("ordinary")
        made(state, "ordinary", KINDS["ordinary"])
        return state

    @cached_property
    def large(self) -> Path:
        """A state folder with the large run, called ``many``."""
        state = self.new_folder("large")
        kind = KINDS["many"]
        work = replace(kind.work, reports=2)
        made(state, "many", kind._replace(chains=LARGE // 10 if self.quick else LARGE, work=work, interrupt_every="9m"))
        return state

    @cached_property
    def recorded(self) -> Path:
        """The folder of an ended run of short tasks, to be played again."""
        tasks = 6_000 if self.quick else 30_000
        kind = Kind(tasks, 1, LIVE, interrupt_every="10000d", nodes=tasks // 40)
        return made(self.new_folder("recorded"), "recorded", kind)
