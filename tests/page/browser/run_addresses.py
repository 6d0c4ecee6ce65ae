"""Addresses of the views of a run, and runs that go on while a test looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from tests.page.recorded import recorded
from tests.views.builders import Story

from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.runs.bodies import this_process

__all__ = ["driven", "view_address"]


def view_address(printed: str, run: str, view: str, **asked: object) -> str:
    """The address of a view with the token of the address that the command printed."""
    parts = urlsplit(printed)
    query = urlencode({"token": parts.query.removeprefix("token="), **asked})
    return f"{parts.scheme}://{parts.netloc}/runs/{quote(run)}/{view}?{query}"


@contextmanager
def driven(state: Path, story: Story) -> Iterator[tuple[RunReader, Journal]]:
    """A run of a story that this process drives, and its journal for what comes later."""
    reader = recorded(state, story)
    with closing(Journal.open(reader.folder.journal)) as journal:
        journal.take(this_process(), lambda _: False)
        yield reader, journal
