"""The Python API: ``spot.rehearse(...)`` in scripts and notebooks, and under the pytest plugin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.runs.asking import answers, ask

__all__ = ["RehearsalReport", "rehearse"]

_WORST = ("fails without any interruption", "not safe", "never finishes", "safe but starts over", "safe and resumes")


@dataclass(frozen=True)
class RehearsalReport:
    """What a rehearsal found. Printed, it is the text of ``spotwright rehearse``; ``data`` is its JSON."""

    text: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)

    @property
    def safe(self) -> bool:
        """Whether no step was changed by an interruption."""
        return bool(self.data["safe"])

    @property
    def resumes(self) -> bool:
        """Whether every step is safe and goes on where it was interrupted."""
        return self.verdict == _WORST[-1]

    @property
    def verdict(self) -> str:
        """The worst verdict: ``safe and resumes``, ``safe but starts over``, ``never finishes``, ``not safe``, ..."""
        return str(min((step["verdict"] for step in self.steps), key=_WORST.index))

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """Every step as plain data: its verdict, what an interruption costs in seconds, and how each point went."""
        return list(self.data["steps"])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def rehearse(  # noqa: PLR0913 (each is an option of its own)
    subject: Callable[..., Any] | str | Path | Sequence[str],
    arguments: Mapping[str, Any] | None = None,
    *,
    task: str | None = None,
    seed: int | None = None,
    interruptions: int = 5,
    tolerance: float = 0.0,
    compare: str | None = None,
    notice: float | None = None,
    outputs: Sequence[str] = (),
    keep: Sequence[str] = (),
    stdout: bool = False,
    folder: str | Path = ".",
    config: str | Path | None = None,
    containers: str = "auto",
    state: str | Path = ".spotwright",
    progress: bool = True,
) -> RehearsalReport:
    """Interrupt a step where it hurts, before a provider does, and return what was found.

    ``subject`` is a function with ``@dsl.pipeline``, the path of a .py or compiled YAML file, or a command as a list of words,
    which runs in copies of ``folder``. The options are those of ``spotwright rehearse``; ``notice`` is in seconds.

    Raises :class:`InputError` for anything wrong before something was executed. A step that is not safe raises nothing: look
    at :attr:`RehearsalReport.safe`.
    """
    request: dict[str, Any] = {
        **_subject(subject), "arguments": {name: _text(value) for name, value in (arguments or {}).items()}, "task": task,
        "seed": seed, "interruptions": interruptions, "tolerance": tolerance, "compare": compare, "notice": notice,
        "outputs": list(outputs), "keep": list(keep), "stdout": stdout, "folder": str(Path(folder).absolute()),
        "config": str(Path(config).absolute()) if config is not None else None, "containers": containers,
        "state": str(Path(state).absolute()),
    }  # fmt: skip
    process = ask("spotwright.rehearsal.child", request)
    try:
        for said in answers(process):
            if "found" in said:
                return RehearsalReport(said["text"], said["found"])
            if progress:
                print(said["line"])  # noqa: T201 (the user asked to see it)
    finally:
        process.wait()
    raise StateError(f"the rehearsal's process ended with {process.returncode} before it had a verdict")


def _subject(subject: Callable[..., Any] | str | Path | Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"pipeline": None, "compiled": None, "command": []}
    if isinstance(subject, str | Path):
        found["pipeline"] = str(Path(subject).absolute())
    elif callable(subject):
        from spotwright.pipelines.source import compile_function

        found["compiled"] = compile_function(subject).to_data()
    else:
        found["command"] = list(subject)
    return found


def _text(value: Any) -> str:
    """An argument as it would be typed."""
    return value if isinstance(value, str) else json.dumps(value)
