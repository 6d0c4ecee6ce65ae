"""Texts that would be a script, a form or a redirection in a careless page, in every text field of a journal and in logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, expect
from tests.events import an_event
from tests.kfp.builders import compiled, ir, task
from tests.page.browser.views import VIEWS, address_of, wait_until_drawn
from tests.page.hostile_texts import HOSTILE
from tests.page.made_runs import Kind, make_run
from tests.views.builders import POOLS, Story

from spotwright import config
from spotwright.engine.events import RunCreated
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import StoredPlan
from spotwright.runs.runner import begin_records

TEXTS = [text for text in HOSTILE if text.strip()]
RUN = "hostile"
_STRANGERS = (
    "main :is(img, iframe, object, embed, form[action], meta, base, link, script, style, math, [onload], [onerror])"
)


def _stored() -> StoredPlan:
    """A pipeline whose tasks have these texts as names."""
    tasks = {f"task-{number}": task("work", taskInfo={"name": text}) for number, text in enumerate(TEXTS)}
    return StoredPlan(compiled(ir(tasks)), config.parse(POOLS, "spotwright.yaml"), None, {})


def _told(plan: Any) -> Story:
    """A run in which everything that others write is such a text: names of tasks and nodes, reasons, messages, arguments."""
    story = Story(plan, run=RUN, pipeline=TEXTS[0], arguments={text[:100]: text for text in TEXTS[:50]})
    for number, text in enumerate(TEXTS):
        node = {"node": f"node-{number} {text[:200]}", "pool": "cpu-spot"}
        story.tell(an_event("node", story.at, data={**node, "state": "booting"}))
        story.tell(an_event("node", story.at, data={**node, "state": "ready"}))
        story.fact("bound", f"task-{number}", 1, **node)
    for number, text in enumerate(TEXTS):
        how = (
            {"start_error": text}
            if number % 3 == 1
            else {"phase": "Failed", "reason": text, "message": text, "exit_code": 1}
        )
        story.after(1).ends(f"task-{number}", {"last_line": text}, **(how if number % 3 else {}))
    return story


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with the run; the log of each attempt has all texts."""
    stored = _stored()
    story = _told(stored.plan)
    path = tmp_path_factory.mktemp("hostile") / "state"
    folder = StateFolder.open(path).create(RUN)
    created = story.events[0]
    assert isinstance(created, RunCreated)
    begin_records(folder, stored, created)
    with closing(Journal.open(folder.journal)) as journal:
        journal.append(story.events[1:])
    log = folder.log("task-1", 1)
    log.parent.mkdir(parents=True)
    log.write_bytes("\n".join(TEXTS).encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "plan"])
def test_hostile_texts_stay_texts(
    view: str, state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    """No script runs, no request leaves, no policy is breached: ``open_page`` fails on each of these."""
    url = page_server(state)
    page = open_page(url)
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    address = url.partition("?")[0] + address_of(view, RUN, ("task-1", 1))
    page.goto(address)
    wait_until_drawn(page, view)
    page.wait_for_timeout(300)
    assert page.url == address
    assert page.locator(_STRANGERS).count() == 0
    assert dialogs == []


def test_the_texts_are_really_shown(
    state: Path, page_server: Callable[..., str], open_page: Callable[..., Page]
) -> None:
    url = page_server(state)
    page = open_page(url)
    page.goto(f"{url.partition('?')[0]}runs/{RUN}/log?task=task-1&n=1&line=1")
    shown = {
        "<script>alert(1)</script>": "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
        "gnp.exe": "invoice<U+202E>gnp.exe",
    }
    for searched, text in shown.items():
        page.get_by_role("searchbox", name="Find in the log").fill(searched)
        page.locator(".log-lines .line.hit", has_text=text).first.wait_for()


def test_tasks_may_have_the_names_of_what_every_object_of_a_browser_has(
    tmp_path: Path,
    page_server: Callable[..., str],
    open_page: Callable[..., Page],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["constructor", "__proto__", "hasOwnProperty", "toString"]
    after = {name: {"dependentTasks": [before]} for before, name in pairwise(names)}
    pipeline = ir({name: task("work", **after.get(name, {})) for name in names})
    monkeypatch.setattr("tests.page.made_runs._pipeline", lambda _: pipeline)
    make_run(tmp_path / "state", "r", Kind(1))
    url = page_server(tmp_path / "state")
    page = open_page(url)
    for view in ("timeline", "timeline?by=node", "graph", "tasks", "account", "nodes", "history", "about"):
        page.goto(f"{url.partition('?')[0]}runs/r/{view}")
        expect(page.get_by_role("main")).to_contain_text("succeeded")
    page.goto(f"{url.partition('?')[0]}runs/r/graph")
    for name in names:
        expect(page.locator(".node").filter(has_text=name)).to_be_visible()
    tops = [page.locator(".node").filter(has_text=name).bounding_box() for name in names]
    assert [box["y"] for box in tops if box] == sorted({box["y"] for box in tops if box})
