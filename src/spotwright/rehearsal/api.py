"""The Python API of rehearsals: ``spot.rehearse(...)``, for scripts, notebooks and the pytest plugin.

In a notebook the report is HTML without scripts or style sheets, in the notebook's light or dark colours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from spotwright.errors import StateError
from spotwright.records.state_folder import nearest_state
from spotwright.runs.run_options import ConfigSource, config_option
from spotwright.runs.subprocess_rpc import answers, ask, stop
from spotwright.visible_text import visible

__all__ = ["RehearsalReport", "rehearsal_html", "rehearse"]


_PLAIN = "color:inherit;background:none"
_TABLE = f"border-collapse:collapse;margin:.4em 0;{_PLAIN}"
_CELL = f"padding:.2em .7em;border-bottom:1px solid rgba(128,128,128,.35);text-align:left;vertical-align:top;{_PLAIN}"
_NAME, _TEXT = f"{_CELL};white-space:nowrap", f"{_CELL};overflow-wrap:anywhere"  # a path in a message may be long
_SAFE, _CAREFUL, _UNSAFE, _NONE = "#2fa36b", "#d08a1d", "#e0564f", "#8a8a8a"  # readable on white and on black
_COLOURS = {
    "safe and resumes": _SAFE,
    "safe and resumes only with a notice": _CAREFUL,
    "safe but goes back to an older save": _CAREFUL,
    "safe but starts over": _CAREFUL,
    "undecided": _CAREFUL,
    "survived": _SAFE,
    "broken": _UNSAFE,
    "not interrupted": _NONE,
    "not tried": _NONE,
}


def rehearsal_html(report: Mapping[str, Any]) -> str:
    """The verdict on every step with its figures, its probable cause, and a table of its injection points."""
    steps = "".join("".join(_step(step)) for step in report["steps"])
    return f"<div style='{_PLAIN}'>{steps}</div>"


def _step(step: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h4 style='margin:.6em 0 .2em;{_PLAIN}'>{escape(step['task'])}: {_word(step['verdict'])}</h4>"
    lines = [line for line in _figures(step) if line]
    if lines:
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        yield f"<ul style='margin:.2em 0'>{items}</ul>"
    for lives in step["lives"]:
        yield f"<p style='margin:.4em 0 .1em;{_PLAIN}'>{escape(_lives(lives))}</p>{''.join(map(_bar, lives['attempts']))}"
    if step["points"]:
        rows = "".join(_row(_point(point)) for point in step["points"])
        head = "".join(f"<th style='{_CELL}'>{name}</th>" for name in ("Interrupted", "Result", "Details"))
        yield f"<table style='{_TABLE}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _lives(lives: Mapping[str, Any]) -> str:
    count = len(lives["attempts"])
    kept = f"the step ended in life {count}"
    if not lives["ended"]:
        kept = f"after {count - 1} lives {lives['kept']:.0%} of the work was kept"
    return f"{lives['name']}: {kept}"


def _bar(life: Mapping[str, Any]) -> str:
    """Draw a life as a bar, from the attempt's begin to its end within the work."""
    if life["began"] is None:
        return (
            f"<div style='{_PLAIN}'>{life['number']}: {life['work']:.0%} of the work; where it began is not known</div>"
        )
    began, ended = 100 * life["began"], 100 * life["ended"]
    colour = _CAREFUL if life["interrupted"] else _SAFE
    words = f"attempt {life['number']}: {began:.0f}% to {ended:.0f}%"
    return (
        f"<div role='img' aria-label='{words}' title='{words}' style='max-width:30em;height:.6em;margin:.15em 0;"
        "background:rgba(128,128,128,.2)'>"
        f"<div style='margin-left:{began:.1f}%;width:{max(1.0, ended - began):.1f}%;height:100%;background:{colour}'></div></div>"
    )


def _figures(step: Mapping[str, Any]) -> Iterator[str]:
    yield step["fails_undisturbed"] or ""
    yield step["undecided"] or ""
    yield f"not traced: {step['not_traced']}" if step["not_traced"] else ""
    yield f"probable cause: {step['probable_cause']}" if step["probable_cause"] else ""
    if step["cost_per_interruption"] is not None:
        yield f"one interruption costs {_duration(step['cost_per_interruption'])} on average"
    if step["done_again"] is not None:
        yield f"{step['done_again']:.0%} of the interrupted work was redone, measured by {step['measured_by']}"
    if step["lost_files"] and step["verdict"] != "safe and resumes":
        yield f"written where nothing outlives an attempt: {', '.join(step['lost_files'])}"
    if step["connections"]:
        yield f"connected to {', '.join(step['connections'])}: what it changed there is not compared"
    if step["mapped_saves"]:
        yield f"changed through a memory map, which cannot be traced: {', '.join(step['mapped_saves'])}"


def _point(point: Mapping[str, Any]) -> Sequence[str]:
    name = escape(point["name"])
    if point["problem"]:
        return name, _word("broken"), escape(point["problem"])
    if point["run"] is None:
        return name, _word("not tried"), ""
    if not point["interrupted"]:
        why = f"not traced: {escape(point['not_traced'])}" if point["not_traced"] else "the step finished before"
        return name, _word("not interrupted"), why
    lost = point["lost_seconds"]
    return (
        name,
        _word("survived"),
        f"{_duration(lost)} lost" if lost is not None else "the step finished during the notice",
    )


def _row(cells: Sequence[str]) -> str:
    styles = (_NAME, _NAME, _TEXT)
    return (
        "<tr>"
        + "".join(f"<td style='{style}'>{cell}</td>" for style, cell in zip(styles, cells, strict=True))
        + "</tr>"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"


def _word(word: str) -> str:
    colour = _COLOURS.get(word, _UNSAFE)
    return f"<span style='color:{colour}' aria-hidden='true'>\N{BLACK CIRCLE}</span>&nbsp;{escape(word)}"


_WORST_FIRST = (
    "fails without any interruption",
    "not safe",
    "never finishes",
    "undecided",
    "safe but starts over",
    "safe but goes back to an older save",
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


def rehearse(  # noqa: PLR0913 (one argument per option)
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
    ranks: int | None = None,
    outputs: Sequence[str] = (),
    keep: Sequence[str] = (),
    stdout: bool = False,
    folder: str | Path = ".",
    config: ConfigSource | None = None,
    policy: Mapping[str, Any] | None = None,
    containers: str = "auto",
    state: str | Path | None = None,
    progress: bool = True,
) -> RehearsalReport:
    """Interrupt a step at its most vulnerable moments, before a provider does, and return the report.

    ``subject`` is a function with ``@dsl.pipeline``, the path of a .py or compiled YAML file, or a command as a list of words,
    which runs in copies of ``folder``. The options equal ``spotwright rehearse``'s; ``notice`` and ``budget`` are in
    seconds, ``config`` the path of a ``spotwright.yaml`` or a mapping in its shape, ``policy`` and ``state`` as for
    :func:`run`.

    Raises :class:`InputError` for wrong input, before anything is executed. An unsafe step does not raise: check
    :attr:`RehearsalReport.safe`.
    """
    given = config_option(config)
    texts = {name: _argument_text(value) for name, value in (arguments or {}).items()}
    request: dict[str, Any] = {
        **_subject(subject), "arguments": texts, "task": task,
        "seed": seed, "interruptions": interruptions, "tolerance": tolerance, "compare": compare, "notice": notice,
        "budget": budget, "ranks": ranks, "outputs": list(outputs), "keep": list(keep),
        "stdout": stdout, "folder": str(Path(folder).absolute()),
        "config": given if isinstance(given, Mapping) or given is None else str(given), "containers": containers,
        "policy": dict(policy or {}),
        "state": str((nearest_state() if state is None else Path(state)).absolute()),
    }  # fmt: skip
    process = ask("spotwright.rehearsal.process", request)
    try:
        with closing(answers(process)) as messages:
            for answer in messages:
                if "report" in answer:
                    return RehearsalReport(answer["text"], answer["report"])
                if progress:
                    print(visible(answer["line"], block=True))  # noqa: T201 (the user asked for progress)
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
    """An argument as typed on the command line."""
    return value if isinstance(value, str) else json.dumps(value)
