"""The Python API of rehearsals: ``spot.rehearse(...)``, for scripts, notebooks and the pytest plugin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.rehearsal.rehearsal_html import rehearsal_html
from spotwright.runs.run_options import ConfigSource, config_option
from spotwright.runs.subprocess_rpc import answers, ask, stop

__all__ = ["RehearsalReport", "rehearse"]

_WORST_FIRST = (
    "fails without any interruption",
    "not safe",
    "never finishes",
    "safe but starts over",
    "safe",
    "safe and resumes only with a notice",
    "safe and resumes",
)


@dataclass(frozen=True)
class RehearsalReport:
    """The result of a rehearsal. Printed, it is the text of ``spotwright rehearse``; ``data`` is its JSON.

    A notebook shows it as a table.
    """

    text: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)

    @property
    def safe(self) -> bool:
        """Whether every step survived every interruption with the same outputs."""
        return bool(self.data["safe"])

    @property
    def resumes(self) -> bool:
        """Whether every step is safe and resumes from where it was interrupted."""
        return self.verdict == _WORST_FIRST[-1]

    @property
    def verdict(self) -> str:
        """The worst verdict: ``safe and resumes``, ``safe but starts over``, ``never finishes``, ``not safe``, ..."""
        return str(min((step["verdict"] for step in self.steps), key=_WORST_FIRST.index))

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """Every step as plain data: its verdict, the cost of an interruption in seconds, and the outcome of each point."""
        return list(self.data["steps"])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return rehearsal_html(self.data)


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
    budget: float | None = None,
    outputs: Sequence[str] = (),
    keep: Sequence[str] = (),
    stdout: bool = False,
    folder: str | Path = ".",
    config: ConfigSource | None = None,
    containers: str = "auto",
    state: str | Path = ".spotwright",
    progress: bool = True,
) -> RehearsalReport:
    """Interrupt a step at its most vulnerable moments, before a provider does, and return the report.

    ``subject`` is a function with ``@dsl.pipeline``, the path of a .py or compiled YAML file, or a command as a list of words,
    which runs in copies of ``folder``. The options are those of ``spotwright rehearse``; ``notice`` and ``budget`` are in
    seconds, ``config`` the path of a ``spotwright.yaml`` or a mapping in its shape.

    Raises :class:`InputError` for wrong input; nothing was executed then. A step that is not safe raises nothing: look at
    :attr:`RehearsalReport.safe`.
    """
    given = config_option(config)
    texts = {name: _argument_text(value) for name, value in (arguments or {}).items()}
    request: dict[str, Any] = {
        **_subject(subject), "arguments": texts, "task": task,
        "seed": seed, "interruptions": interruptions, "tolerance": tolerance, "compare": compare, "notice": notice,
        "budget": budget, "outputs": list(outputs), "keep": list(keep), "stdout": stdout, "folder": str(Path(folder).absolute()),
        "config": given if isinstance(given, Mapping) or given is None else str(given), "containers": containers,
        "state": str(Path(state).absolute()),
    }  # fmt: skip
    process = ask("spotwright.rehearsal.rehearsal_process", request)
    try:
        with closing(answers(process)) as messages:
            for answer in messages:
                if "report" in answer:
                    return RehearsalReport(answer["text"], answer["report"])
                if progress:
                    print(answer["line"])  # noqa: T201 (the user asked for progress)
    except KeyboardInterrupt:
        stop(process)
        raise
    finally:
        process.wait()
    raise StateError(f"the rehearsal's process ended with exit code {process.returncode} before it had a verdict")


def _subject(subject: Callable[..., Any] | str | Path | Sequence[str]) -> dict[str, Any]:
    request: dict[str, Any] = {"pipeline": None, "compiled": None, "command": []}
    if isinstance(subject, str | Path):
        request["pipeline"] = str(Path(subject).absolute())
    elif callable(subject):
        from spotwright.kfp.loader import compile_function

        request["compiled"] = compile_function(subject).to_data()
    else:
        request["command"] = list(subject)
    return request


def _argument_text(value: Any) -> str:
    """An argument as it would be typed on the command line."""
    return value if isinstance(value, str) else json.dumps(value)
