"""The tables that text and notebooks share: headers and cells, made from the JSON view of a run.

Output artifacts have rows too: their addresses, and KFP's views of metrics, Markdown and HTML.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from spotwright.model.quantities import format_money
from spotwright.views.account_report import price_unit
from spotwright.views.run_deadline import missed_words
from spotwright.views.text import Rows, fitted, shorten, span, table, value_text
from spotwright.views.waiting import status_word
from spotwright.visible_text import visible

__all__ = [
    "LONGEST_VALUE",
    "artifact_lines",
    "artifact_type",
    "attempt_rows",
    "confusion_matrix",
    "cost_of",
    "in_pipeline_order",
    "number_of",
    "output_rows",
    "roc_curve",
    "run_title",
]


LONGEST_VALUE = 76
"""Most columns of the value of an argument or output."""

_LONGEST_NAME = 40  # columns of a display name
_MANY = 20  # with more iterations of a task, those that succeeded at once share a line


def run_title(view: Mapping[str, Any]) -> str:
    """The status of the run in one sentence."""
    took = span(view["seconds"])
    if view["status"] == "running":
        left = (
            "was left unfinished by its engine" if not view["orchestrator"] else "was running when it was last watched,"
        )
        word = f"has been running for {took}" if view["driven"] else f"{left} after {took}"
    else:
        word = f"{ {'cancelled': 'was cancelled', 'stopped': 'was stopped'}.get(view['status'], view['status']) } after {took}"
    why = f": {view['why']}" if view["why"] else ""
    late = missed_words(view["deadline"])
    return f"Run {view['run']} {word}{f', {late}' if late else ''}{why}"


def cost_of(amount: Mapping[str, Any] | None, beside: Fraction, unit: str = "") -> str:
    """An amount of the JSON view as a number. ``beside`` is the total shown with it."""
    if amount is None:
        return ""
    return format_money(number_of(amount), "nh" if unit and amount["money"] is None else unit, beside=beside)


def number_of(amount: Mapping[str, Any]) -> Fraction:
    """An amount of the JSON view: its money, or node-hours without prices."""
    return Fraction(amount["seconds"]) / 3600 if amount["money"] is None else Fraction(amount["money"])


def _total(view: Mapping[str, Any]) -> Fraction:
    """The cost of all attempts of a run."""
    attempts = (attempt for task in [*view["tasks"], *view["left_behind"]] for attempt in task["attempts"])
    return sum((number_of(attempt["cost"]) for attempt in attempts if attempt["cost"] is not None), Fraction(0))


def attempt_rows(view: Mapping[str, Any], *, by_start: bool = False) -> Rows:
    """A line per attempt, and a line with the status of each task without attempts.

    If a task has many iterations, those that succeeded at once and those that were skipped share one line each. The order is
    the tasks', each named once, with its status. With ``by_start`` it is that of the attempts' begin, and the status of a task
    without attempts is in the column of causes, which saves an almost empty column.
    """
    unit = price_unit(view["prices"], view["currency"]) if view["has_prices"] else "Node-hours"
    headers = ["Task", "Status", "Attempt", "Pool", "Node", "Cause", "Began", "Seconds", unit]
    tasks = [*in_pipeline_order(view["tasks"]), *view["left_behind"]]
    groups = list(_together(tasks).values())
    total = _total(view)
    alike = {task["path"] for group in groups for task in group}
    of_many = {group[0]["path"]: group for group in groups}
    rows: list[tuple[float, list[str]]] = []
    for task in tasks:
        if task["path"] in of_many:
            began, row = _row_of_many(view, of_many[task["path"]], total)
            rows.append((began, _without_status(row) if by_start else row))
        if task["path"] in alike:
            continue
        for index, (began, row) in enumerate(_task_rows(view, task, total)):
            if index and not by_start:
                row[:2] = ["", ""]
            rows.append((began, _without_status(row) if by_start else row))
    if by_start:
        rows.sort(key=lambda row: row[0])
    return Rows(headers, [row for _, row in rows], "llrlllrr.", ("Began", "Node", unit, "Seconds"))


def _without_status(row: list[str]) -> list[str]:
    """A row without a status column; the task's status is in the column of causes."""
    return [row[0], "", *row[2:5], row[5] or row[1], *row[6:]]


def in_pipeline_order(tasks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tasks in the pipeline's order: those in a loop, branch or nested pipeline directly after it.

    The journal has them in the order of their pipelines' opening. The path of a task begins with its pipeline's.
    """
    inside: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        inside.setdefault(task["path"].rpartition("/")[0], []).append(task)
    ordered = []
    waiting = list(reversed(inside.pop("", [])))
    while waiting:
        task = waiting.pop()
        ordered.append(task)
        waiting += reversed(inside.pop(task["path"], []))
    return [*ordered, *(task for rest in inside.values() for task in rest)]


def _titled(task: Mapping[str, Any]) -> str:
    """The path of a task, with its display name if that differs from its own."""
    name = shorten(task["display_name"], _LONGEST_NAME)
    return f"{task['path']} ({name})" if name and name != task["written"].rpartition("/")[2] else str(task["path"])


def _together(tasks: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The iterations that share a line: many of one task that succeeded at once, or were skipped."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for task in tasks:
        plain = len(task["attempts"]) <= 1 and task["cached_from"] is None
        if task["path"] != task["written"] and task["status"] in ("succeeded", "skipped") and plain:
            groups.setdefault((task["written"], task["status"]), []).append(task)
    return {key: group for key, group in groups.items() if len(group) > _MANY}


def _row_of_many(
    view: Mapping[str, Any], group: Sequence[Mapping[str, Any]], total: Fraction
) -> tuple[float, list[str]]:
    attempts = [attempt for task in group for attempt in task["attempts"]]
    began = min((a["bound_at"] for a in attempts if a["bound_at"] is not None), default=math.inf)
    seconds = sum(a["seconds"] or 0.0 for a in attempts)
    costs = [a["cost"] for a in attempts if a["cost"] is not None]
    money = None if any(c["money"] is None for c in costs) else sum(c["money"] for c in costs)
    cost = {"seconds": sum(c["seconds"] for c in costs), "money": money}
    return began, [
        f"{group[0]['written']} ({len(group):,} iterations)", str(group[0]["status"]), "",
        ", ".join(sorted({a["pool"] for a in attempts if a["pool"]})), "", "succeeded" if attempts else "",
        f"+{span(began - view['started_at'])}" if attempts else "", f"{seconds:.1f}" if attempts else "",
        cost_of(cost, total) if attempts else "",
    ]  # fmt: skip


def _status(task: Mapping[str, Any]) -> str:
    if task["cached_from"] is not None:
        return f"result of {task['cached_from']['run']}"
    waiting = task["waits_for"]
    return status_word(str(task["status"]), None if waiting is None else waiting["kind"], len(task["attempts"]))


def _task_rows(view: Mapping[str, Any], task: Mapping[str, Any], total: Fraction) -> Iterator[tuple[float, list[str]]]:
    status = _status(task)
    for attempt in task["attempts"]:
        began = attempt["bound_at"] if attempt["bound_at"] is not None else attempt["placed_at"]
        yield began, [
            _titled(task), status, str(attempt["number"]), attempt["pool"] or "", attempt["node"] or "",
            attempt["cause"] or attempt["status"],
            f"+{span(began - view['started_at'])}",
            f"{attempt['seconds']:.1f}" if attempt["seconds"] is not None else "",
            cost_of(attempt["cost"], total),
        ]  # fmt: skip
    if not task["attempts"]:
        yield math.inf, [_titled(task), status, *[""] * 7]


def output_rows(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The outputs of the run by name. Long values are cut; ``--json`` has them whole."""
    return [(name, _output_text(output)) for name, output in view["outputs"].items()]


def _output_text(output: Mapping[str, Any]) -> str:
    if output["kind"] == "artifact":
        return str(output["uri"])
    value = [each["uri"] for each in output["artifacts"]] if output["kind"] == "artifacts" else output["value"]
    return shorten(value_text(value), LONGEST_VALUE)


_SHOWN = ("Metrics", "ClassificationMetrics", "Markdown")  # types with more to show than their address
_POINTS = 10  # most rows of a ROC curve
_LINES = 30  # most lines of a Markdown text
_BYTES = 16 * 1024  # bytes of it that are read at most
_WIDTH = 100
_VALUE = 60  # most columns of the value of a metric


def artifact_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """The lines about the output artifacts of all tasks of a JSON view, in the order of the pipeline.

    An artifact among the run's outputs has a line only if there is more to show than its address.
    """
    tasks = [*in_pipeline_order(view["tasks"]), *view["left_behind"]]
    listed = {output["uri"] for output in view["outputs"].values() if output["kind"] == "artifact"}
    iterations: dict[str, int] = {}
    for task in tasks:
        if task["outputs"]["artifacts"]:
            iterations[task["written"]] = iterations.get(task["written"], 0) + 1
    counted: set[str] = set()
    for task in tasks:
        if task["is_pipeline"] or not task["outputs"]["artifacts"]:
            continue  # a pipeline's outputs come from a task inside
        written = task["written"]
        if iterations[written] <= _MANY:
            yield from _artifacts_of(task, listed)
        elif written not in counted:
            counted.add(written)
            yield f"  {written}: artifacts of {iterations[written]:,} iterations; --json lists them"


def _artifacts_of(task: Mapping[str, Any], listed: Collection[str]) -> Iterator[str]:
    for name, value in task["outputs"]["artifacts"].items():
        for artifact in value if isinstance(value, list) else [value]:
            if isinstance(artifact, Mapping) and (
                artifact_type(artifact) in _SHOWN or artifact.get("uri") not in listed
            ):
                yield from _artifact(f"{task['path']} {name}", artifact)


def _artifact(title: str, artifact: Mapping[str, Any]) -> Iterator[str]:
    kind = artifact_type(artifact)
    yield from fitted(f"  {title}{f' ({kind})' if kind else ''}  {artifact.get('uri', '')}", hang=" " * 4)
    metadata = artifact.get("metadata")
    lines: list[str] = []
    if kind == "Markdown":
        lines = _text_of(str(artifact.get("uri", "")))
    elif kind in _SHOWN and isinstance(metadata, Mapping):
        lines = _metrics(metadata)
    for line in lines:
        yield from fitted(f"    {line}".rstrip(), hang=" " * 4)


def artifact_type(artifact: Mapping[str, Any]) -> str:
    """The artifact's type without its namespace: ``Metrics`` for ``system.Metrics``; empty for a plain artifact."""
    schema = artifact.get("type")
    title = str(schema.get("schemaTitle", "")) if isinstance(schema, Mapping) else ""
    return title.rpartition(".")[2].removesuffix("Artifact")


def _metrics(metadata: Mapping[str, Any]) -> list[str]:
    """Metrics as tables; the forms of ``log_confusion_matrix`` and ``log_roc_curve`` are kfp 2's."""
    rest = dict(metadata)
    lines = []
    for key, read in (("confusionMatrix", _confusion_matrix), ("confidenceMetrics", _roc_curve)):
        try:
            lines += read(rest[key])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # absent or of another form: it stays among the values
        del rest[key]
    named = [[str(name), shorten(value_text(value), _VALUE)] for name, value in rest.items()]
    return [*table(Rows(["Metric", "Value"], named, "lr"))[1:], *lines] if named else lines


def _confusion_matrix(matrix: Any) -> list[str]:
    names, numbers = confusion_matrix(matrix)
    rows = [[name, *map(_number, row)] for name, row in zip(names, numbers, strict=True)]
    matrix_lines = table(Rows(["Actual \\ predicted", *names], rows, "l" + "r" * len(names)))
    return ["Confusion matrix", *matrix_lines]


def confusion_matrix(matrix: Any) -> tuple[list[str], list[list[float]]]:
    """The names of the classes, and a row of numbers for each: its counts by predicted class.

    Raises :class:`KeyError`, :class:`TypeError`, :class:`ValueError` or :class:`OverflowError` for a value of another form than
    that of kfp 2.
    """
    names = [str(spec["displayName"]) for spec in matrix["annotationSpecs"]]
    rows = [[float(value) for value in row["row"]] for row in matrix["rows"]]
    if not names or len(rows) != len(names) or any(len(row) != len(names) for row in rows):
        raise ValueError("not a square matrix with a name for each row")
    return names, rows


def _roc_curve(curve: Any) -> list[str]:
    points = roc_curve(curve)
    shown = _evenly(points)
    of_all = f", {len(shown)} of {len(points):,} points" if len(shown) < len(points) else ""
    head = ["Threshold", "False positive rate", "True positive rate"]
    return [f"ROC curve{of_all}", *table(Rows(head, [list(map(_number, point)) for point in shown], "rrr"))]


def roc_curve(curve: Any) -> list[tuple[float, float, float]]:
    """The points of a curve: threshold, false positive rate, true positive rate. Raises as :func:`confusion_matrix` does."""
    points = [
        (float(point["confidenceThreshold"]), float(point["falsePositiveRate"]), float(point["recall"]))
        for point in curve
    ]
    if not points:
        raise ValueError("a curve without points")
    return points


def _evenly(points: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """At most :data:`_POINTS` points, the first and the last among them."""
    if len(points) <= _POINTS:
        return list(points)
    return [points[index * (len(points) - 1) // (_POINTS - 1)] for index in range(_POINTS)]


def _number(value: float) -> str:
    """A number to four significant digits."""
    return f"{value:,.0f}" if value.is_integer() else f"{value:.4g}"


def _text_of(uri: str) -> list[str]:
    """The beginning of a text file on this machine; empty for an address or a missing file."""
    if not uri.startswith("/") or not os.path.isfile(uri):  # noqa: PTH113 - Path.is_file raises for some texts
        return []
    with Path(uri).open("rb") as stream:
        data = stream.read(_BYTES + 1)
    lines = data[:_BYTES].decode("utf-8", "replace").splitlines()
    cut = len(data) > _BYTES or len(lines) > _LINES
    return [*(_shortened(line) for line in lines[:_LINES]), *(["..."] if cut else [])]


def _shortened(line: str) -> str:
    """A line of a text, cut to the width of a view, with its indent."""
    plain = visible(line.expandtabs(4))
    return plain if len(plain) <= _WIDTH else f"{plain[: _WIDTH - 3]}..."
