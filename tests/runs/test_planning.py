"""Planning reads nothing from this machine; secrets are read once at the start of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Param, step
from tests.e2e.inside import attempt
from tests.e2e.project import QUICK, Project
from tests.kfp.builders import compiled, component, ir, kubernetes, task

from spotwright.errors import ConfigError, InputError
from spotwright.kfp.compiled import Compiled
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare

SECRET = "correct horse"


def imported(module: str) -> list[str]:
    """The modules of the package that an interpreter has imported once it has imported this one."""
    code = f"import sys, {module}; print(*[name for name in sys.modules if name.startswith('spotwright.')])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def a_pipeline(**settings: Any) -> Compiled:
    """A pipeline of one task with the parameter ``token``."""
    root = {"inputDefinitions": {"parameters": {"token": {"parameterType": "STRING"}}}}
    return compiled(ir({"step": task("step")}, root=root), kubernetes("exec-step", **settings))


@pytest.fixture
def planning(tmp_path: Path) -> PlanOptions:
    """Options with a separate configuration and a token that this machine does not have."""
    config = tmp_path / "spotwright.yaml"
    config.write_text("version: 1\npools: {spot: {capacity: spot}, regular: {capacity: on-demand}}\n")
    return PlanOptions({"token": "@env:NO_SUCH_TOKEN"}, config=config)


def test_planning_imports_nothing_of_the_local_body() -> None:
    assert [name for name in imported("spotwright.runs.planning") if name.startswith("spotwright.local")] == []


def test_planning_reads_no_secret(planning: PlanOptions, tmp_path: Path) -> None:
    settings = {"secretAsEnv": [{"secretName": "db", "keyToEnv": [{"secretKey": "key", "envVar": "NO_SUCH_KEY"}]}]}
    pipeline = a_pipeline(**settings)
    planned = plan_run(pipeline, planning)
    assert str(planned.arguments["token"]) == "@env:NO_SUCH_TOKEN"
    assert [rung.pools for rung in planned.stored.plan.unfold()[0].ladder.rungs] == [("spot", "regular")]
    with pytest.raises(InputError, match="@env:NO_SUCH_TOKEN: environment variable NO_SUCH_TOKEN is not set"):
        prepare(pipeline, planning, RunOptions(state=tmp_path / "state"))


def test_an_argument_that_is_missing_is_found_by_planning(planning: PlanOptions) -> None:
    with pytest.raises(InputError, match=r"needs a value for token \(a text\)"):
        plan_run(a_pipeline(), PlanOptions(config=planning.config))


def test_a_local_plan_expects_the_boots_that_are_simulated(planning: PlanOptions) -> None:
    assert isinstance(planning.config, Path)
    planning.config.write_text(
        "version: 1\npools:\n"
        "  spot: {capacity: spot, boot: 5m, simulate: {boot: 7s}}\n"
        "  regular: {capacity: on-demand, boot: 5m}\n"
    )
    stored = plan_run(a_pipeline(), planning).stored
    assert [pool.boot for pool in stored.config.pools.values()] == [300.0, 300.0]
    assert [pool.boot for pool in stored.plan.config.pools.values()] == [7.0, 2.0]


def in_a_loop() -> Compiled:
    """A pipeline of the task ``plain`` and a loop ``llm-train`` with the task ``node``."""
    loop = task("inner", parameterIterator={"itemInput": "item", "items": {"raw": "[1, 2]"}})
    inner = component("inner", {"parameters": {"item": {"parameterType": "NUMBER_INTEGER"}}})
    del inner["executorLabel"]
    inner["dag"] = {"tasks": {"node": task("node")}}
    return compiled(
        ir({"plain": task("node"), "llm-train": loop}, {"comp-inner": inner, "comp-node": component("node")})
    )


def patterned(pattern: str) -> dict[str, Any]:
    return {"pools": {"spot": {"capacity": "spot"}}, "policy": {"tasks": {pattern: {"spot": "prefer"}}}}


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("*train*", ": did you mean 'llm-train/node'?"),
        ("llm-train", ": did you mean 'llm-train/node'?"),
        ("plain-1", ": did you mean 'plain'?"),
        ("llm-train-1/node", ": did you mean 'llm-train/node'?"),
        ("nodes", ": did you mean 'llm-train/node'?"),
        ("zebra", ""),
    ],
)
def test_a_pattern_that_matches_no_task_is_an_error(pattern: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_run(in_a_loop(), PlanOptions(config=patterned(pattern)))
    said = f"policy.tasks '{pattern}' matches no task{hint}; the tasks are llm-train/node, plain"
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize(
    "pattern", ["node", "llm-train/node", "llm-train/node-2", "node-0", "nod*", "*node*", "plain", "*", "**"]
)
def test_a_pattern_that_matches_a_task_or_an_iteration_of_it_is_none(pattern: str) -> None:
    assert plan_run(in_a_loop(), PlanOptions(config=patterned(pattern)))


class Fifo:
    """A file that gives its text to every reader and counts them."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self.readers = path, 0
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        while True:
            with self.path.open("w") as pipe:  # opens when somebody reads
                self.readers += 1
                pipe.write(SECRET)
            while self._is_read():
                time.sleep(0.001)

    def _is_read(self) -> bool:
        """Whether the reader has not closed the file yet."""
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: nobody has it open for reading
            return False
        return True


def fails_at_first(token: str) -> int:
    import sys

    if attempt() == 1:
        sys.exit("not yet")
    return len(token)


def test_a_secret_is_read_once_a_start(project: Project) -> None:
    argument, configured = Fifo(project.folder / "token"), Fifo(project.folder / "password")
    project.config(f"{QUICK}\nsecrets: {{db: {{password: '@file:password'}}}}\n")
    password = {"secretAsEnv": [{"secretName": "db", "keyToEnv": [{"secretKey": "password", "envVar": "PASSWORD"}]}]}
    steps = {"it": step(fails_at_first, {"token": Param("token")}, kubernetes=password)}
    pipeline = project.pipeline(steps, {"token": "str"})
    assert project.run(pipeline, "--arg", f"token=@file:{argument.path}").code == 1
    assert (argument.readers, configured.readers) == (1, 1)
    assert project.spotwright("resume", "r").code == 0
    assert (argument.readers, configured.readers) == (2, 2)
    assert project.show()["tasks"]["it"]["outputs"]["parameters"]["Output"] == len(SECRET)
