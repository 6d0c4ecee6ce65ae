"""Helpers that compile a pipeline of one step and rehearse it in the test's folder."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Param, document, step
from tests.e2e.project import Project

from spotwright.rehearsal.session import Rehearsal, RehearsalOptions, run_rehearsal

_IMPORTS = "import json, os, signal, sys, time\nfrom pathlib import Path\nfrom typing import Any\nfrom kfp import dsl\n"

Rehearse = Callable[..., Rehearsal]


def source_of(function: Callable[..., Any]) -> str:
    """The source of a component's module."""
    return f"{_IMPORTS}\n{textwrap.dedent(inspect.getsource(function))}"


def pipeline_of(folder: Path, function: Callable[..., Any]) -> Path:
    """Compile a pipeline of one step; the step's parameters are the pipeline's parameters."""
    parameters = {
        name: p.annotation for name, p in inspect.signature(function).parameters.items() if p.annotation in ("str", str)
    }
    made = step(function, {name: Param(name) for name in parameters}, source=source_of(function))
    path = folder / f"{function.__name__}.yaml"
    path.write_text(document({"step": made}, dict.fromkeys(parameters, "str")))
    return path


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    left = made.processes()
    made.end_all()
    assert not left, f"left behind: {left}"


@pytest.fixture
def rehearse(tmp_path: Path) -> Rehearse:
    """Rehearse a step, with options of :class:`RehearsalOptions`."""

    def run(function: Callable[..., Any] | None = None, **options: Any) -> Rehearsal:
        if function is not None:
            options["pipeline"] = pipeline_of(tmp_path, function)
            options.setdefault("task", "step")
        defaults: dict[str, Any] = {"seed": 1, "interruptions": 3, "state": tmp_path / "state"}
        return run_rehearsal(RehearsalOptions(**defaults | options), _print_line)

    return run


def _print_line(message: object) -> None:
    if isinstance(message, str):
        print(message, file=sys.stderr)  # noqa: T201 (pytest shows it with a failing test)
