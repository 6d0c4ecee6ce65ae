"""Shows the output artifacts of a run: where each lies, and what KFP shows of metrics, Markdown and HTML.

Numbers of ``dsl.Metrics`` stand in a list, those of ``dsl.ClassificationMetrics`` as a confusion matrix and a table of the ROC
curve, a Markdown artifact as its text. HTML is not rendered, neither in a terminal nor in a notebook, because it could load
scripts: its path stands there. Metadata is whatever the code has written: where it does not have the SDK's form, it is shown as
names and values.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.views.phrasing import value_text
from spotwright.views.table import Rows, fitted, shorten, table
from spotwright.views.table_rows import in_pipeline_order

__all__ = ["artifact_lines"]

_SHOWN = ("Metrics", "ClassificationMetrics", "Markdown")  # types of which there is more to show than where they lie
_MANY = 20  # of a task with more iterations, the artifacts are counted only
_POINTS = 10  # most rows of a ROC curve
_LINES = 30  # most lines of a Markdown text
_BYTES = 16 * 1024  # most bytes that are read of it
_WIDTH = 100
_VALUE = 60  # most columns of the value of a metric


def artifact_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """The lines about the output artifacts of all tasks of a JSON view, in the order of the pipeline.

    An artifact that the run lists as its output has a line only if there is more to show than where it lies.
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
            continue  # the outputs of a pipeline are those of a task inside
        written = task["written"]
        if iterations[written] <= _MANY:
            yield from _artifacts_of(task, listed)
        elif written not in counted:
            counted.add(written)
            yield f"  {written}: artifacts of {iterations[written]:,} iterations; --json lists them"


def _artifacts_of(task: Mapping[str, Any], listed: Collection[str]) -> Iterator[str]:
    for name, value in task["outputs"]["artifacts"].items():
        for artifact in value if isinstance(value, list) else [value]:
            if isinstance(artifact, Mapping) and (_kind(artifact) in _SHOWN or artifact.get("uri") not in listed):
                yield from _artifact(f"{task['path']} {name}", artifact)


def _artifact(title: str, artifact: Mapping[str, Any]) -> Iterator[str]:
    kind = _kind(artifact)
    yield from fitted(f"  {title}{f' ({kind})' if kind else ''}  {artifact.get('uri', '')}", hang=" " * 4)
    metadata = artifact.get("metadata")
    lines: list[str] = []
    if kind == "Markdown":
        lines = _text_of(str(artifact.get("uri", "")))
    elif kind in _SHOWN and isinstance(metadata, Mapping):
        lines = _metrics(metadata)
    for line in lines:
        yield from fitted(f"    {line}".rstrip(), hang=" " * 4)


def _kind(artifact: Mapping[str, Any]) -> str:
    """The artifact's type without its namespace: ``Metrics`` for ``system.Metrics``; empty for a plain artifact."""
    schema = artifact.get("type")
    title = str(schema.get("schemaTitle", "")) if isinstance(schema, Mapping) else ""
    return title.rpartition(".")[2].removesuffix("Artifact")


def _metrics(metadata: Mapping[str, Any]) -> list[str]:
    """Metrics as tables; the forms of ``log_confusion_matrix`` and ``log_roc_curve`` are those of kfp 2."""
    rest = dict(metadata)
    lines = []
    for key, read in (("confusionMatrix", _confusion_matrix), ("confidenceMetrics", _roc_curve)):
        try:
            lines += read(rest[key])
        except (KeyError, TypeError, ValueError):
            continue  # absent, or of another form: it stays among the names and values
        del rest[key]
    named = [[_plain(str(name)), shorten(_plain(value_text(value)), _VALUE)] for name, value in rest.items()]
    return [*table(Rows(["Metric", "Value"], named, "lr"))[1:], *lines] if named else lines


def _confusion_matrix(matrix: Mapping[str, Any]) -> list[str]:
    names = [_plain(str(spec["displayName"])) for spec in matrix["annotationSpecs"]]
    cells = [[_number(value) for value in row["row"]] for row in matrix["rows"]]
    if not names or len(cells) != len(names) or any(len(row) != len(names) for row in cells):
        raise ValueError("not a square matrix with a name for each row")
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    matrix_lines = table(Rows(["Actual \\ predicted", *names], rows, "l" + "r" * len(names)))
    return ["Confusion matrix", *matrix_lines]


def _roc_curve(points: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [_number(point[key]) for key in ("confidenceThreshold", "falsePositiveRate", "recall")]
        for point in _evenly(points)
    ]
    if not rows:
        raise ValueError("a curve without points")
    shown = f", {len(rows)} of {len(points):,} points" if len(rows) < len(points) else ""
    head = ["Threshold", "False positive rate", "True positive rate"]
    return [f"ROC curve{shown}", *table(Rows(head, rows, "rrr"))]


def _evenly(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most :data:`_POINTS` points, the first and the last among them."""
    if len(points) <= _POINTS:
        return list(points)
    return [points[index * (len(points) - 1) // (_POINTS - 1)] for index in range(_POINTS)]


def _number(value: Any) -> str:
    """A number to four significant digits. Raises :class:`TypeError` or :class:`ValueError` for anything else."""
    return f"{float(value):,.0f}" if float(value).is_integer() else f"{float(value):.4g}"


def _text_of(uri: str) -> list[str]:
    """The beginning of a text file on this machine; nothing of an address or a missing file."""
    if not uri.startswith("/") or not os.path.isfile(uri):  # noqa: PTH113 - Path.is_file raises for some texts
        return []
    with Path(uri).open("rb") as stream:
        data = stream.read(_BYTES + 1)
    lines = data[:_BYTES].decode("utf-8", "replace").splitlines()
    cut = len(data) > _BYTES or len(lines) > _LINES
    return [*(_shortened(line) for line in lines[:_LINES]), *(["..."] if cut else [])]


def _shortened(line: str) -> str:
    """A line of a text, cut to the width of a view, with its indent."""
    plain = _plain(line.expandtabs(4))
    return plain if len(plain) <= _WIDTH else f"{plain[: _WIDTH - 3]}..."


def _plain(text: str) -> str:
    """The text without control characters, which could rewrite the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
