"""Settings of the whole suite: how hypothesis searches, which tests are slow, and what is made of skipped tests.

Hypothesis tries the same examples every time, so that `make test` gives one answer for one state of the code. `make test-long`
tries more of them; `pytest --hypothesis-profile=explore` tries still more, and other examples each time.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.browsers import browser_on_the_path, why_there_is_no_browser
from tests.distribution import KeepFixturesTogether
from tests.skips import SkipSummary, read
from xdist.remote import Producer

from spotwright.checkpoint import place_owners
from spotwright.notices.http_client import Answer, HttpClient

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TESTS = Path(__file__).parent

SLOW = (
    "checkpoint/test_objects.py",
    "cli",
    "cluster/controller/test_logs_in_a_store.py",
    "cluster/log_keeping/test_stored_logs.py",
    "conformance",
    "docs/test_how_to.py",
    "docs/test_kinds.py",
    "docs/test_rehearse.py",
    "docs/test_tutorial.py",
    "e2e",
    "examples",
    "forecast/test_engine_agrees.py",
    "integrations",
    "kfp/test_compiled_policies.py",
    "kfp/test_component_digests.py",
    "kfp/test_documents.py",
    "kfp/test_kfp1.py",
    "kfp/test_loader.py",
    "kubeflow/test_command.py",
    "kubeflow/test_controllers_record.py",
    "kubeflow/test_failures.py",
    "kubeflow/test_leaving.py",
    "local/test_attempt_processes.py",
    "local/test_components.py",
    "local/test_environment_variables.py",
    "local/test_environments.py",
    "local/test_recovery.py",
    "local/test_shim.py",
    "local/test_shim_reuse.py",
    "kinds/kfp/test_kfp_compile.py",
    "manifests/test_record_file.py",
    "platforms",
    "project/test_wheel.py",
    "rehearsal",
    "runs",
)
"""Folders and files whose tests start the real command, processes of tasks, the SDK's compiler, a server or pip, or take seconds
together. `make check` leaves them out."""

QUICK = ("cli/test_start_up.py", "e2e/test_attempts.py")
"""What `make check` runs of them all the same: that runs work at all, and start fast."""

settings.register_profile("steady", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("long", settings.get_profile("steady"), max_examples=100)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Summarize skips, once for all processes of the suite: in the process that prints.

    Ctrl-C works in the processes that tests start, also where the suite is a background job, which ignores it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipSummary(read(), strict=os.environ.get("CI") == "true"))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no items of thousands of tests that only ``-m many`` selects: each process of the suite would make them all."""
    is_many = any(getattr(mark, "name", "") == "many" for mark in getattr(obj, "pytestmark", ()))
    return [] if is_many and "not many" in collector.config.option.markexpr else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector all that collecting makes, which lasts until the end: thousands of tests and their modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests by their place."""
    slow, quick = ({TESTS / name for name in names} for names in (SLOW, QUICK))

    @functools.cache
    def is_slow(path: Path) -> bool:
        places = {path, *path.parents}
        return bool(places & slow) and not places & quick

    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> KeepFixturesTogether:
    """Spread tests over the processes of the suite."""
    return KeepFixturesTogether(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let text be as wide as in a file: a width that the caller's shell or a test runner names is for terminals."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")  # readline, which pytest imports, sets it for child processes without telling os.environ


@pytest.fixture
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request to a metadata server or an agent take a minute.

    A source asks again after an error, so its own limits are short, down to a second: less than a busy machine may let all
    processes of a test stand.
    """
    request = HttpClient.request

    def patient(client: HttpClient, path: str, *, timeout: float, **options: Any) -> Answer:
        return request(client, path, timeout=max(timeout, 60.0), **options)

    monkeypatch.setattr(HttpClient, "request", patient)


@pytest.fixture
def attempts_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each ``Checkpoint`` of a test be an attempt: in one process the second one at a place would be another training."""

    class Forgetful(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            """Keep nothing."""

    monkeypatch.setattr(place_owners, "_owners", Forgetful())


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Chromium, once for each process of the suite: Playwright cannot be started twice in one."""
    program = browser_on_the_path()
    if program is None:
        pytest.skip(why_there_is_no_browser())
    from tests.page.browser.chromium_pages import started_chromium  # few tests need Playwright

    with started_chromium(program) as browser:
        yield browser
