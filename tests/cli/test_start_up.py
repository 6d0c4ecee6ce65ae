"""What starting costs and what is public: nothing heavy is imported before it is needed, and names change on purpose only."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.building import document, step

import spotwright
from spotwright.runs.api import Run

HEAVY = {"kfp", "google", "rich", "asyncio", "yaml", "sqlite3", "numpy", "pandas", "kubernetes"}
HELP = "sys.argv = ['spotwright', *{command}]\nfrom spotwright.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"

FOR_OTHER_RUNS = {
    "aiohttp", "asyncio", "cryptography", "csv", "difflib", "email", "fsspec", "http", "jsonschema", "kfp",
    "lightkube", "matplotlib", "numpy", "rich", "shutil", "sysconfig", "tarfile", "tempfile", "zipfile",
    "spotwright.checkpoint", "spotwright.checkpoint_file", "spotwright.cli.kfp", "spotwright.cluster",
    "spotwright.config.price_sheets", "spotwright.deadlines", "spotwright.forecast", "spotwright.kfp.dsl_compiler",
    "spotwright.kubeflow", "spotwright.linter", "spotwright.local.build_environment",
    "spotwright.local.container_attempt", "spotwright.local.imds_server", "spotwright.local.supervisor.containers",
    "spotwright.manifests", "spotwright.market", "spotwright.notices", "spotwright.pools",
    "spotwright.records.reader", "spotwright.rehearsal", "spotwright.runs.api", "spotwright.runs.resume",
    "spotwright.views.live_table", "spotwright.views.notebook",
}  # fmt: skip
"""Modules for clusters, containers, packages, deadlines, errors, interruptions of a run and mistakes of a user."""


def all_imported(code: str) -> set[str]:
    """The names of the modules that are there after this code."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def imported(code: str) -> set[str]:
    """The top-level names of the modules that are there after this code."""
    return {name.partition(".")[0] for name in all_imported(code)}


def one() -> int:
    return 1


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import spotwright") & (HEAVY | {"click", "subprocess"}) == set()


@pytest.mark.parametrize("command", [["--help"], ["--version"], []])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    assert imported(HELP.format(command=command)) & HEAVY == set()


def test_a_run_imports_nothing_that_only_other_runs_need(tmp_path: Path) -> None:
    pipeline, state = tmp_path / "plain.yaml", tmp_path / "state"
    pipeline.write_text(document({"one": step(one)}))
    modules = all_imported(HELP.format(command=["run", str(pipeline), "--state", str(state)]))
    assert "spotwright.local.backend" in modules
    assert modules & FOR_OTHER_RUNS == set()


@pytest.mark.slow
def test_a_plan_imports_matplotlib_only_for_a_picture(tmp_path: Path) -> None:
    pipeline = tmp_path / "plain.yaml"
    pipeline.write_text(document({"one": step(one)}))
    plan = ["plan", str(pipeline), "--markets", "20"]
    without = all_imported(HELP.format(command=plan))
    assert "spotwright.forecast.report" in without
    assert {name for name in without if name.startswith("matplotlib")} == set()
    drawn = all_imported(HELP.format(command=[*plan, "--picture", str(tmp_path / "plan.svg")]))
    assert "matplotlib" in drawn
    assert "matplotlib.pyplot" not in drawn


def test_the_modules_that_only_other_runs_need_exist() -> None:
    ours = [name for name in FOR_OTHER_RUNS if name.startswith("spotwright.")]
    assert [name for name in ours if importlib.util.find_spec(name) is None] == []


def test_the_public_names_of_the_package() -> None:
    pinned = {"Run", "SpotwrightError", "defaults", "never", "open_run", "prefer", "require", "run"}
    assert pinned <= set(spotwright.__all__)
    assert all(getattr(spotwright, name) is not None for name in spotwright.__all__)


def test_the_public_names_of_a_run() -> None:
    public = {name for name in vars(Run) if not name.startswith("_")}
    assert public == {"account", "cancel", "logs", "name", "outputs", "report", "resume", "status", "tasks", "wait"}


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        spotwright.nonsense  # noqa: B018 (looking it up is the test)
