"""Output artifacts of a run in text and in notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from tests.views.builders import Story, a_plan, a_task

from spotwright.views.account import account
from spotwright.views.notebook import run_html
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text

ROC = ([0.0, 0.25, 1.0], [0.0, 0.75, 1.0], [1.0, 0.5, 0.0])


def a_run(**artifacts: dict[str, Any]) -> Story:
    """A run of one task with these outputs, and of a task that uses them, so that they are not outputs of the run."""
    story = Story(a_plan(a_task("eval", display_name="Evaluate the model"), a_task("last", "eval")))
    story.boots("cpu-spot-1").binds("eval", "cpu-spot-1").after(1).ends("eval", {"artifacts": artifacts})
    return story.binds("last", "cpu-spot-1").after(1).ends("last").gives_back("cpu-spot-1")


def an_artifact(kind: str, uri: str = "/state/out/x", metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "x", "type": {"schemaTitle": f"system.{kind}"}, "uri": uri, "metadata": metadata or {}}


def shown(story: Story) -> str:
    """The lines about artifacts."""
    return show_text(run_view(story.state, "iris")).partition("\n\nArtifacts\n")[2]


def classification() -> dict[str, Any]:
    metrics = dsl.ClassificationMetrics(name="c", uri="", metadata={})
    metrics.log_confusion_matrix(["cat", "dog"], [[10, 2], [3, 4]])
    metrics.log_roc_curve(*ROC)
    return dict(metrics.metadata)


def test_an_artifact_has_its_task_name_type_and_where_it_lies() -> None:
    assert shown(a_run(model=an_artifact("Model", "gs://b/m"))) == "  eval model (Model)  gs://b/m"


def test_metrics_are_names_and_values() -> None:
    text = shown(a_run(m=an_artifact("Metrics", metadata={"accuracy": 0.75, "count": 3})))
    assert text.splitlines()[1:] == ["    accuracy   0.75", "    count         3"]


def test_a_classification_has_its_confusion_matrix_and_roc_curve() -> None:
    text = shown(a_run(c=an_artifact("ClassificationMetrics", metadata=classification())))
    assert text.splitlines()[1:] == [
        "    Confusion matrix",
        "    Actual \\ predicted  cat  dog",
        "    cat                  10    2",
        "    dog                   3    4",
        "    ROC curve",
        "    Threshold  False positive rate  True positive rate",
        "            1                    0                   0",
        "          0.5                 0.25                0.75",
        "            0                    1                   1",
    ]


def test_a_long_roc_curve_is_shown_by_ten_points_with_both_ends() -> None:
    points = [{"confidenceThreshold": 1 - n / 100, "falsePositiveRate": n / 100, "recall": n / 100} for n in range(101)]
    text = shown(a_run(c=an_artifact("ClassificationMetrics", metadata={"confidenceMetrics": points})))
    assert "ROC curve, 10 of 101 points" in text
    rows = [line.split() for line in text.splitlines()[3:]]
    assert (len(rows), rows[0], rows[-1]) == (10, ["1", "0", "0"], ["0", "1", "1"])


@pytest.mark.parametrize(
    "matrix", [None, 3, {"annotationSpecs": [{"displayName": "a"}], "rows": [{"row": ["x"]}]}, {"rows": []}]
)
def test_a_confusion_matrix_of_another_form_is_shown_as_a_value(matrix: object) -> None:
    text = shown(a_run(c=an_artifact("ClassificationMetrics", metadata={"confusionMatrix": matrix})))
    assert "    confusionMatrix  " in text


def test_markdown_is_shown_as_text_and_html_by_where_it_lies(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("# Result\n\n- good\x1b[2J\n")
    text = shown(a_run(md=an_artifact("Markdown", str(page)), html=an_artifact("HTML", str(page))))
    assert text.splitlines() == [
        f"  eval md (Markdown)  {page}", "    # Result", "", "    - good<U+001B>[2J", f"  eval html (HTML)  {page}",
    ]  # fmt: skip


def test_a_long_markdown_text_is_cut(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("line\n" * 1000)
    lines = shown(a_run(md=an_artifact("Markdown", str(page)))).splitlines()
    assert (len(lines), lines[-1]) == (32, "    ...")


def test_markdown_that_is_gone_is_shown_by_where_it_lay() -> None:
    assert shown(a_run(md=an_artifact("Markdown", "/gone"))) == "  eval md (Markdown)  /gone"


def test_a_notebook_shows_the_same_escaped(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("<script>alert(1)</script>")
    story = a_run(
        c=an_artifact("ClassificationMetrics", metadata=classification()), md=an_artifact("Markdown", str(page))
    )
    html = run_html(run_view(story.state, "iris"), account(story.state))
    assert "Confusion matrix" in html
    assert "&lt;script&gt;" in html
    assert "<script" not in html


def test_a_display_name_stands_beside_the_path() -> None:
    assert "eval (Evaluate the model)  succeeded" in show_text(run_view(a_run().state, "iris"))
