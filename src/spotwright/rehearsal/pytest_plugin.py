"""The pytest plugin: ``@pytest.mark.spot_safe(...)`` makes a rehearsal a test.

::

    @pytest.mark.spot_safe("pipeline.py", task="train", must_resume=True)
    def test_training_survives_spot(rehearsal):
        assert rehearsal.steps[0]["cost_per_interruption"] < 5

The mark suffices: the test fails with the report if a step is not safe. Its body may check more facts of the rehearsal. The
extra ``spotwright[pytest]`` registers the plugin, and pytest then loads it in every project of that environment, so it imports
heavy modules only on use.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spotwright.rehearsal.api import RehearsalReport

__all__ = ["pytest_configure", "pytest_pyfunc_call", "rehearsal"]

_HELP = (
    "spot_safe(subject, task=None, must_resume=False, **options): the test passes if spotwright rehearse finds the step "
    "safe; subject and options are those of spotwright.rehearse, paths are relative to the test's file"
)
_REPORT: pytest.StashKey[Any] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", _HELP)


@pytest.fixture
def rehearsal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RehearsalReport:
    """The report of the rehearsal that the test's mark requests."""
    if request.node.get_closest_marker("spot_safe") is None:
        pytest.fail("the fixture rehearsal needs @pytest.mark.spot_safe(...) on the test", pytrace=False)
    return _rehearsed(request.node, tmp_path_factory)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Fail a marked test whose rehearsal does not pass, before its body runs."""
    mark = pyfuncitem.get_closest_marker("spot_safe")
    if mark is not None:
        report = _rehearsed(pyfuncitem, pyfuncitem._request.getfixturevalue("tmp_path_factory"))  # noqa: SLF001 (the item's own)
        passes = report.resumes if mark.kwargs.get("must_resume") else report.safe
        if not passes:
            pytest.fail(str(report), pytrace=False)
    return (yield)


def _rehearsed(item: pytest.Item, tmp_folders: pytest.TempPathFactory) -> RehearsalReport:
    """The report on the subject of the test's mark, rehearsed once per test."""
    if _REPORT not in item.stash:
        from spotwright.rehearsal.api import rehearse

        mark = item.get_closest_marker("spot_safe")
        if mark is None or len(mark.args) != 1:
            pytest.fail(
                "@pytest.mark.spot_safe: expected one subject, a pipeline or a command as a list", pytrace=False
            )
        (subject,), options = mark.args, {name: value for name, value in mark.kwargs.items() if name != "must_resume"}
        here = item.path.parent
        if isinstance(subject, str | Path):
            subject = here / subject
        options = {"seed": 0, "folder": here, "state": tmp_folders.mktemp("rehearsal"), "progress": False, **options}
        options["folder"] = here / options["folder"]
        item.stash[_REPORT] = rehearse(subject, **options)
    report: RehearsalReport = item.stash[_REPORT]
    return report
