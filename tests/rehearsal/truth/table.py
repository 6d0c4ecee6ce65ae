"""Read the table of scripts with a known verdict, for the test that proves it and for the benchmark that rehearses it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

__all__ = ["Truth", "Verdict", "can_import", "path_with_this_python", "read"]

_FOLDER = Path(__file__).parent


class Verdict(StrEnum):
    """What is true of a step that is interrupted again and again."""

    RESUMES = "resumes"
    WITH_NOTICE = "resumes with a notice only"
    STARTS_OVER = "starts over"
    GOES_BACK = "goes back"
    NOT_SAFE = "not safe"
    NEVER_FINISHES = "never finishes"
    UNDECIDED = "undecided"


class Truth(NamedTuple):
    """One line of the table; the table's first lines say what each field means."""

    name: str
    verdict: Verdict
    cause: str
    report: str
    also: tuple[Verdict, ...] = ()
    options: tuple[str, ...] = ("--keep", "kept", "--output", "model.json")
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    moment: str = ""
    folder: str = "scripts"
    waits: bool = False
    days: bool = False

    @property
    def source(self) -> Path:
        """The script."""
        folder = (_FOLDER / self.folder).resolve()
        return next(path for path in (folder / f"{self.name}.py", folder / f"{self.name}.sh") if path.exists())

    @property
    def command(self) -> tuple[str, ...]:
        """How the script is started in a folder that holds it."""
        return ("bash" if self.source.suffix == ".sh" else sys.executable, self.source.name)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The paths that are compared."""
        return tuple(
            value for option, value in zip(self.options, self.options[1:], strict=False) if option == "--output"
        )

    @property
    def is_kept(self) -> bool:
        """Whether the folder ``kept`` outlives an attempt; else only that of ``SPOTWRIGHT_CHECKPOINT`` does."""
        return "--keep" in self.options

    def put_into(self, folder: Path) -> None:
        """Copy the script and the scripts that it starts."""
        for name in (self.source.name, *self.files):
            shutil.copy(self.source.with_name(name), folder)


def read() -> Mapping[str, Truth]:
    """The table, by the names of the scripts."""
    lines = yaml.safe_load((_FOLDER / "truth.yaml").read_text(encoding="utf-8"))
    return {name: _truth(name, line) for name, line in lines.items()}


@functools.cache
def can_import(module: str) -> bool:
    """Whether a script can import a package: PyTorch may be installed and still lack a library of its own."""
    return subprocess.run([sys.executable, "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


def path_with_this_python() -> str:
    """The ``PATH`` of a script: its ``python3`` is the interpreter that runs this."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def _truth(name: str, line: Mapping[str, Any]) -> Truth:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in line.items()}
    fields["verdict"] = Verdict(fields["verdict"])
    fields["also"] = tuple(Verdict(each) for each in fields.get("also", ()))
    return Truth(name, **fields)
