"""A pipeline of one step, rehearsed in a folder of the test."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Param, document, step

from spotwright.rehearsal.opening import Options, perform
from spotwright.rehearsal.playing import Rehearsal

_IMPORTS = "import json, os, signal, sys, time\nfrom pathlib import Path\nfrom typing import Any\nfrom kfp import dsl\n"

Rehearse = Callable[..., Rehearsal]


def source_of(function: Callable[..., Any]) -> str:
    """A component's module."""
    return f"{_IMPORTS}\n{textwrap.dedent(inspect.getsource(function))}"


def pipeline_of(folder: Path, function: Callable[..., Any]) -> Path:
    """The compiled pipeline of one step, whose parameters are those of the pipeline."""
    given = {
        name: p.annotation for name, p in inspect.signature(function).parameters.items() if p.annotation in ("str", str)
    }
    made = step(function, {name: Param(name) for name in given}, source=source_of(function))
    path = folder / f"{function.__name__}.yaml"
    path.write_text(document({"step": made}, dict.fromkeys(given, "str")))
    return path


@pytest.fixture
def rehearse(tmp_path: Path) -> Rehearse:
    """Rehearse a step; options as those of :class:`Options`."""

    def run(function: Callable[..., Any] | None = None, **options: Any) -> Rehearsal:
        if function is not None:
            options["pipeline"] = pipeline_of(tmp_path, function)
            options.setdefault("task", "step")
        defaults: dict[str, Any] = {"seed": 1, "interruptions": 3, "state": tmp_path / "state"}
        return perform(Options(**defaults | options), _say)

    return run


def _say(what: object) -> None:
    if isinstance(what, str):
        print(what, file=sys.stderr)  # noqa: T201 (shown with a test that fails)
