"""A rehearsal's report in a notebook: HTML without scripts or style sheets, in the colours of the notebook, light or dark.

It is made from the JSON of the rehearsal. Every text is escaped. A colour only repeats the word beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["rehearsal_html"]

_PLAIN = "color:inherit;background:none"
_TABLE = f"border-collapse:collapse;margin:.4em 0;{_PLAIN}"
_CELL = f"padding:.2em .7em;border-bottom:1px solid rgba(128,128,128,.35);text-align:left;vertical-align:top;{_PLAIN}"
_NAME, _TEXT = f"{_CELL};white-space:nowrap", f"{_CELL};overflow-wrap:anywhere"  # a path in a message may be long
_SAFE, _CAREFUL, _UNSAFE, _NONE = "#2fa36b", "#d08a1d", "#e0564f", "#8a8a8a"  # readable on white and on black
_COLOURS = {
    "safe and resumes": _SAFE,
    "safe and resumes only with a notice": _CAREFUL,
    "safe but starts over": _CAREFUL,
    "safe": _CAREFUL,
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
    if step["points"]:
        rows = "".join(_row(_point(point)) for point in step["points"])
        head = "".join(f"<th style='{_CELL}'>{name}</th>" for name in ("Interrupted", "Result", "Details"))
        yield f"<table style='{_TABLE}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _figures(step: Mapping[str, Any]) -> Iterator[str]:
    yield step["fails_undisturbed"] or ""
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
