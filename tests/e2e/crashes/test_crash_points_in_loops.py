"""``kill -9`` of the engine in the middle of loops, conditions and exit handlers: the same end as without."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance import compiling
from tests.conformance.expected import EXPECTED
from tests.conformance.running import FinishedRun
from tests.e2e.crashes.soundness import assert_sound
from tests.e2e.project import QUICK, Project
from tests.sampling import every

POINTS = [
    ("loop_limit", kind, count) for kind, count in (("unfolded", 1), ("ended", 3), ("decided", 5), ("completed", 1))
] + [
    ("conditions_nested", "skipped", 2),
    ("conditions_nested", "unfolded", 2),
    ("exit_after_success", "completed", 1),
    ("exit_after_success", "bound", 2),
]  # fmt: skip
MOMENTS = ("before", "committed")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The conformance pipelines."""
    folder = tmp_path_factory.mktemp("compiled")
    compiling.compile_all(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind", "count", "moment"), every(7, ((*point, moment) for point in POINTS for moment in MOMENTS))
)
def test_a_run_whose_engine_was_killed_here_is_resumed_with_the_same_values(
    project: Project, compiled: Path, name: str, kind: str, count: int, moment: str
) -> None:
    project.config(QUICK)
    options = ("--cache", "off", "--config", "spotwright.yaml")
    killed = project.run(compiled / f"{name}.yaml", *options, crash=(f"{moment}:{kind}", count))
    assert killed.code == -9, killed
    done = project.spotwright("resume", "r")
    assert done.code == 0, done
    assert_sound(project)
    ran = FinishedRun(project.here("show", "r", "--json").json())
    assert (ran.values, ran.tasks_with("skipped")) == (EXPECTED[name].values, EXPECTED[name].skipped)
