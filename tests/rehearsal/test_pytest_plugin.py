"""``@pytest.mark.spot_safe`` makes a rehearsal a test."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = "pytester"
pytestmark = pytest.mark.long

PLUGIN = "spotwright.rehearsal.pytest_plugin"
INSTALLED = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
PROJECTS = (".", "distributions/pytest")
COUNTS = "import time; open('kept', 'a').write('x'); time.sleep(0.1)"


def run(pytester: pytest.Pytester, tests: str) -> pytest.RunResult:
    pytester.makepyfile(f"import sys\nimport pytest\nCOUNTS = {COUNTS!r}\n{tests}")
    return pytester.runpytest_subprocess("-q", "--strict-markers", *(() if INSTALLED else ("-p", PLUGIN)))


FAKE = """
from spotwright.rehearsal import api as rehearsal_api

def rehearse(subject, **options):
    words = {"good": "safe and resumes", "slow": "safe but starts over", "bad": "not safe"}
    step = {"verdict": words[subject[0]], "cost_per_interruption": 3.0}
    return rehearsal_api.RehearsalReport(f"report of {subject[0]}", {"safe": subject[0] != "bad", "steps": [step]})

rehearsal_api.rehearse = rehearse
"""


def test_the_verdict_decides_and_a_failure_shows_the_report(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FAKE)
    done = run(
        pytester,
        """
@pytest.mark.spot_safe(["good"], must_resume=True)
def test_good(rehearsal):
    assert rehearsal.steps[0]["cost_per_interruption"] == 3.0

@pytest.mark.spot_safe(["slow"])
def test_slow():
    pass

@pytest.mark.spot_safe(["slow"], must_resume=True)
def test_must_resume():
    raise ValueError("the body must not run")

@pytest.mark.spot_safe(["bad"])
def test_bad(rehearsal):
    raise ValueError("the body must not run")

@pytest.mark.spot_safe(["good"])
def test_asks_for_more(rehearsal):
    assert rehearsal.steps[0]["cost_per_interruption"] < 1.0
""",
    )

    done.assert_outcomes(passed=2, failed=3)
    done.stdout.fnmatch_lines(["report of slow", "report of bad", "*assert 3.0 < 1.0"])
    assert "the body must not run" not in done.stdout.str()


def test_a_marked_command_is_rehearsed_with_real_processes(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
@pytest.mark.spot_safe([sys.executable, "-c", COUNTS], keep=["kept"], outputs=["kept"], interruptions=1)
def test_unsafe():
    pass
""",
    )

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*command: not safe", "*kept, line 1: 'xx' instead of 'x'*"])
    assert not (pytester.path / ".spotwright").exists()
    assert not (pytester.path / "kept").exists()


def test_the_distribution_of_the_extra_alone_registers_the_plugin() -> None:
    root = Path(__file__).resolve().parents[2]
    projects = [tomllib.loads((root / folder / "pyproject.toml").read_text())["project"] for folder in PROJECTS]

    assert [project.get("entry-points") for project in projects] == [None, {"pytest11": {"spotwright": PLUGIN}}]


def test_a_mark_without_a_subject_fails_with_a_message(pytester: pytest.Pytester) -> None:
    done = run(pytester, "@pytest.mark.spot_safe\ndef test_nothing():\n    pass\n")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*expected one subject, a pipeline or a command as a list*"])


def test_the_fixture_without_the_mark_fails_with_a_message(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_nothing(rehearsal):\n    pass\n")

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*needs @pytest.mark.spot_safe*"])


def test_loading_the_plugin_imports_no_engine_and_no_sdk(pytester: pytest.Pytester) -> None:
    code = f"import sys, {PLUGIN}; print([name for name in sys.modules if name.startswith(('spotwright.', 'kfp', 'yaml'))])"

    done = pytester.run(sys.executable, "-c", code)

    assert done.outlines == ["['spotwright.version', 'spotwright.rehearsal', 'spotwright.rehearsal.pytest_plugin']"]
