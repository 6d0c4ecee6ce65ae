"""One training step, written once, runs unchanged in every body of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.containers.container_tasks import container, log, pipeline
from tests.e2e.project import Project
from tests.local.wheels import wheel
from tests.platforms.podman import Podman
from tests.sampling import every

from spotwright.version import __version__

pytestmark = pytest.mark.slow

BODY = """
from spotwright.checkpoint import Checkpoint, notice, progress

ckpt = Checkpoint()
state = ckpt.load(default={"total": 0})
progress(ckpt.step / 5)
for step in ckpt.steps(5):
    state["total"] += step
    ckpt.step_done(state)
    progress((step + 1) / 5)
print("total", state["total"], "notice", notice())
"""


def component(arguments: str) -> str:
    body = BODY.replace("\n", "\n    ")
    return f"""
from kfp import dsl

@dsl.component({arguments})
def train() -> int:{body}
    return state["total"]

@dsl.pipeline(name="portable")
def portable() -> int:
    return train().output
"""


def saved(project: Project, task: str) -> bool:
    return any((project.state / "runs" / "r" / "checkpoints" / task).glob("state-*"))


@pytest.mark.parametrize(
    "packages",
    every(
        3,
        [
            [],
            ["littlepackage @ file://WHEEL"],
            ["spotwright"],
            [f"spotwright == {__version__}", "littlepackage @ file://WHEEL"],
        ],
    ),
)
def test_it_runs_as_a_component_with_and_without_packages_to_install(
    project: Project, tmp_path: Path, packages: list[str]
) -> None:
    made = wheel(tmp_path / "wheels")
    listed = [package.replace("WHEEL", str(made)) for package in packages]
    project.extra |= {"PIP_NO_INDEX": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = project.run(project.write("portable.py", component(f"packages_to_install={listed}" if listed else "")))

    assert done.code == 0, done.err
    assert "total 10 notice None" in log(project, "train")
    assert saved(project, "train")


def test_it_runs_in_a_container_component_that_is_a_process_of_this_machine(project: Project) -> None:
    says = container(command=[sys.executable, "-S", "-c", BODY])
    done = project.run(pipeline(project, says=says), "--containers", "host")

    assert done.code == 0, done.err
    assert "total 10 notice None" in log(project, "says")
    assert saved(project, "says")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """An engine with an image that has Python and nothing else."""
    made = Podman(tmp_path_factory.mktemp("podman"))
    try:
        made.prepare()
        yield made
    finally:
        made.remove()


@pytest.mark.parametrize("own_path", ["", "/opt/of-the-image"])
def test_it_runs_in_a_container_of_an_image_with_nothing_but_python(
    project: Project, podman: Podman, own_path: str
) -> None:
    project.extra |= {key: value for key, value in podman._env.items() if key.startswith(("HOME", "XDG_", "CONTAINER"))}
    env = [{"name": "PYTHONPATH", "value": own_path}] if own_path else []
    script = f"import sys\n{BODY}\nprint(sys.path)"
    says = container(command=["/usr/local/bin/python3", "-c", script], image=podman.base, env=env)
    done = project.run(pipeline(project, says=says), "--containers", "podman")

    assert done.code == 0, done.err + log(project, "says")
    assert "total 10 notice None" in log(project, "says")
    assert own_path in log(project, "says")
    assert saved(project, "says")
