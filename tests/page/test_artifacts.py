"""A task's output artifacts on the page: which content it shows, and which it does not open."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from tests.page.hostile_texts import HOSTILE
from tests.page.recorded import a_recorded_run

from spotwright.errors import InputError, UnknownRun
from spotwright.page.artifacts import artifact_raw, task_artifacts
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

_OUTSIDE = "it is outside the state folder, which the page does not open"
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 50


def an_artifact(kind: str, uri: str | Path = "", **metadata: Any) -> dict[str, Any]:
    return {"name": "x", "type": {"schemaTitle": f"system.{kind}"}, "uri": str(uri), "metadata": metadata}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def out(state: Path) -> Path:
    """The folder of the outputs of the attempt that succeeded."""
    return state / "runs" / "a-run" / "tasks" / "eval" / "attempt-2" / "out"


def described(state: Path, artifact: dict[str, Any]) -> dict[str, Any]:
    (found,) = task_artifacts(a_recorded_run(state, {"result": artifact}), "eval")
    json.dumps(found, allow_nan=False)
    return found


def of_file(state: Path, out: Path, content: bytes | str, kind: str = "Artifact") -> dict[str, Any]:
    """The metadata of an artifact with a content."""
    reader = a_recorded_run(state, {"result": an_artifact(kind, out / "result")})
    out.mkdir(parents=True)
    (out / "result").write_bytes(content.encode() if isinstance(content, str) else content)
    (found,) = task_artifacts(reader, "eval")
    json.dumps(found, allow_nan=False)
    return found


def test_metrics_are_names_and_values(state: Path) -> None:
    found = described(
        state, an_artifact("Metrics", "gs://b/m", accuracy=0.75, count=3, note="good", worst=float("nan"))
    )
    assert (found["name"], found["type"], found["uri"], found["kind"]) == (
        "result",
        "system.Metrics",
        "gs://b/m",
        "metrics",
    )
    assert found["metrics"] == [["accuracy", 0.75], ["count", 3], ["note", "good"], ["worst", "NaN"]]


def test_classification_metrics_have_a_matrix_and_a_curve(state: Path) -> None:
    metrics = dsl.ClassificationMetrics(name="c", uri="", metadata={"accuracy": 0.9})
    metrics.log_confusion_matrix(["cat", "dog"], [[10, 2], [3, 4]])
    metrics.log_roc_curve([0.0, 0.25, 1.0], [0.0, 0.75, 1.0], [float("inf"), 0.5, 0.0])
    found = described(state, an_artifact("ClassificationMetrics", "", **metrics.metadata))
    assert found["kind"] == "confusion"
    assert found["matrix"] == {"names": ["cat", "dog"], "rows": [[10.0, 2.0], [3.0, 4.0]]}
    assert found["curve"] == [[None, 0.0, 0.0], [0.5, 0.25, 0.75], [0.0, 1.0, 1.0]]
    assert (found["points"], found["metrics"]) == (3, [["accuracy", 0.9]])


@pytest.mark.parametrize(
    "matrix",
    [None, 3, "x", [], {"rows": []}, {"annotationSpecs": [{"displayName": "a"}], "rows": [{"row": ["x"]}]}],
)  # fmt: skip
def test_a_matrix_of_another_form_is_a_value(state: Path, matrix: object) -> None:
    found = described(state, an_artifact("ClassificationMetrics", "", confusionMatrix=matrix, confidenceMetrics=matrix))
    assert found["kind"] == "metrics"
    assert [name for name, _ in found["metrics"]] == ["confusionMatrix", "confidenceMetrics"]


def test_large_metrics_are_bounded(state: Path) -> None:
    names = [{"displayName": str(number)} for number in range(101)]
    matrix = {"annotationSpecs": names, "rows": [{"row": [0] * 101}] * 101}
    curve = [
        {"confidenceThreshold": 1 - n / 9000, "falsePositiveRate": n / 9000, "recall": n / 9000} for n in range(9001)
    ]
    found = described(state, an_artifact("ClassificationMetrics", confusionMatrix=matrix, confidenceMetrics=curve))
    assert found["matrix"] is None
    assert found["why"] == "the confusion matrix has 101 classes, more than 100"
    assert (len(found["curve"]), found["curve"][0], found["curve"][-1]) == (500, [1.0, 0.0, 0.0], [0.0, 1.0, 1.0])
    assert found["points"] == 9001


def test_html_is_bytes_for_a_sandbox(state: Path, out: Path) -> None:
    page = "<script>alert(1)</script><h1>Result</h1>"
    found = of_file(state, out, page, "HTML")
    assert (found["kind"], found["media"], found["bytes"]) == ("html", "text/html", len(page))
    assert "text" not in found


@pytest.mark.parametrize(
    ("head", "media"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a;", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"\n<svg onload='alert(1)'></svg>", "image/svg+xml"),
    ],
)
def test_images_are_known_by_their_first_bytes(state: Path, out: Path, head: bytes, media: str) -> None:
    found = of_file(state, out, head)
    assert (found["kind"], found["media"]) == ("image", media)
    raw = artifact_raw(reader_of(state), "eval", "result")
    assert raw == (media, head)


def reader_of(state: Path) -> RunReader:
    return RunReader(StateFolder.existing(state).find("a-run"), lambda _: False)


def test_markdown_is_text(state: Path, out: Path) -> None:
    found = of_file(state, out, "# Result\n\n<img src=x onerror=alert(1)>\n", "Markdown")
    assert (found["kind"], found["cut"]) == ("markdown", False)
    assert found["text"] == "# Result\n\n<img src=x onerror=alert(1)>\n"


@pytest.mark.parametrize(
    ("text", "header", "rows"),
    [
        ("a,b\n1,2\n3,4\n", ["a", "b"], [["1", "2"], ["3", "4"]]),
        ("a;b\n1,5;2\n", ["a", "b"], [["1,5", "2"]]),
        ("a\tb\n1\t2\n", ["a", "b"], [["1", "2"]]),
        ('a,b\n"x\ny",2\n', ["a", "b"], [["x\ny", "2"]]),
        ("\ufeffa,b\n1,2\n", ["a", "b"], [["1", "2"]]),
        ('[{"a": 1, "b": "x"}, {"b": null, "c": [1]}]', ["a", "b", "c"], [["1", "x", ""], ["", "null", "[1]"]]),
        ("[[1, 2], [3]]", ["", ""], [["1", "2"], ["3"]]),
        ('{"loss": 0.5, "steps": [1, 2]}', ["", ""], [["loss", "0.5"], ["steps", "[1, 2]"]]),
        ('{"a": 1}\n{"a": 2}\n\n', ["a"], [["1"], ["2"]]),
    ],
)
def test_tables(state: Path, out: Path, text: str, header: list[str], rows: list[list[str]]) -> None:
    found = of_file(state, out, text, "Dataset")
    assert (found["kind"], found["header"], found["rows"], found["cut"]) == ("table", header, rows, False)


@pytest.mark.parametrize(
    "text",
    ["", "one line", "some words, and more\nno table here\n", "[1, 2", "[" * 100_000, '{"a": ' * 100_000, "[]", "[1, [2]]", '"'],
    ids=range(9),
)  # fmt: skip
def test_other_texts_stay_text(state: Path, out: Path, text: str) -> None:
    found = of_file(state, out, text)
    assert found["kind"] == "text"
    assert text.startswith(found["text"])


def test_a_large_table_is_its_beginning(state: Path, out: Path) -> None:
    lines = ["x,y", *(f"{number},{'z' * 300}" for number in range(30_000))]
    found = of_file(state, out, "\n".join(lines))
    assert (found["kind"], len(found["rows"]), found["cut"]) == ("table", 100, True)
    assert found["rows"][99] == ["99", f"{'z' * 197}..."]


def test_a_wide_table_has_its_first_columns(state: Path, out: Path) -> None:
    found = of_file(state, out, "\n".join([",".join(map(str, range(5000)))] * 3))
    assert (len(found["header"]), len(found["rows"][0]), found["cut"]) == (50, 50, True)


def test_json_lines_that_are_long(state: Path, out: Path) -> None:
    found = of_file(state, out, "".join(f'{{"step": {number}}}\n' for number in range(100_000)))
    assert (found["kind"], len(found["rows"]), found["cut"]) == ("table", 100, True)


def test_a_long_text_is_cut_between_characters(state: Path, out: Path) -> None:
    found = of_file(state, out, "a" + "\N{SNOWMAN}" * 200_000)
    assert (found["kind"], found["cut"], found["bytes"]) == ("text", True, 600_001)
    assert found["text"].endswith("\N{SNOWMAN}")


def test_other_files_have_their_size(state: Path, out: Path) -> None:
    found = of_file(state, out, b"\x00\x01model", "Model")
    assert (found["kind"], found["bytes"], found["why"]) == ("file", 7, "")


def test_a_folder_has_its_names(state: Path, out: Path) -> None:
    reader = a_recorded_run(state, {"result": an_artifact("Model", out / "result")})
    (out / "result" / "shards").mkdir(parents=True)
    (out / "result" / "config.json").write_text("{}")
    (out / "result" / "secret").symlink_to("/etc/passwd")
    (found,) = task_artifacts(reader, "eval")
    assert (found["kind"], found["cut"]) == ("file", False)
    link = (out / "result" / "secret").lstat().st_size
    assert found["files"] == [["config.json", 2], ["secret", link], ["shards", None]]


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("gs://bucket/result", "it is stored remotely, and the page does not open addresses"),
        ("https://example.com/result.html", "it is stored remotely, and the page does not open addresses"),
        ("result", "it is stored remotely, and the page does not open addresses"),
        ("", "it has no recorded location"),
        ("/etc/passwd", _OUTSIDE),
        ("file:///etc/passwd", _OUTSIDE),
        (f"STATE/runs/a-run/{'../' * 40}etc/passwd", _OUTSIDE),
        ("STATE/runs/a-run/link", _OUTSIDE),
        ("STATE/runs/a-run/folder-link/outside", _OUTSIDE),
        ("STATE/runs/a-run/circle", None),
        ("STATE/runs/a-run/gone", "it no longer exists"),
        ("STATE/runs/a-run/pipe", "it is not a file"),
        ("/dev/zero", _OUTSIDE),
        ("/nul\x00byte", "it cannot be read (invalid path)"),
        (f"/{'long' * 2000}", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["HTML", "Markdown", "Dataset"])
def test_what_lies_elsewhere_is_not_opened(tmp_path: Path, state: Path, uri: str, why: str | None, kind: str) -> None:
    reader = a_recorded_run(state, {"result": an_artifact(kind, uri.replace("STATE", str(state)))})
    outside = tmp_path / "outside"
    outside.write_text("secret")
    run = reader.folder.path
    (run / "link").symlink_to(outside)
    (run / "folder-link").symlink_to(tmp_path)
    (run / "circle").symlink_to(run / "circle")
    os.mkfifo(run / "pipe")
    (found,) = task_artifacts(reader, "eval")
    assert found["kind"] == "none"
    assert found["why"] if why is None else found["why"] == why
    assert "secret" not in json.dumps(found)
    with pytest.raises(InputError, match="artifact result of task eval is not shown: it "):
        artifact_raw(reader, "eval", "result")


def test_large_html_is_not_shown(state: Path, out: Path) -> None:
    found = of_file(state, out, b"<p>" + b"x" * 5_000_000, "HTML")
    assert (found["kind"], found["why"]) == ("file", "it has 5,000,003 bytes, and the limit is 5,000,000")
    with pytest.raises(InputError, match="is not shown: it has"):
        artifact_raw(reader_of(state), "eval", "result")


def test_only_html_and_images_are_handed_on(state: Path, out: Path) -> None:
    of_file(state, out, "<script>alert(1)</script>", "Markdown")
    with pytest.raises(InputError, match="artifact result of task eval is neither HTML nor an image"):
        artifact_raw(reader_of(state), "eval", "result")
    with pytest.raises(UnknownRun, match="task eval of run a-run has no output artifact 'other'"):
        artifact_raw(reader_of(state), "eval", "other")
    with pytest.raises(UnknownRun, match="run a-run has no task 'nothing'"):
        task_artifacts(reader_of(state), "nothing")


def test_several_artifacts_of_one_output_have_numbers(state: Path) -> None:
    some = [an_artifact("Model", "gs://b/1"), an_artifact("Model", "gs://b/2")]
    found = task_artifacts(a_recorded_run(state, {"models": some, "other": an_artifact("Model", "gs://b/3")}), "eval")
    assert [(each["name"], each["uri"]) for each in found] == [
        ("models.0", "gs://b/1"), ("models.1", "gs://b/2"), ("other", "gs://b/3"),
    ]  # fmt: skip


@pytest.mark.parametrize("begin", range(0, len(HOSTILE), 40))
def test_hostile_texts_as_names_metadata_and_contents(state: Path, out: Path, begin: int) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE[begin : begin + 40]]
    outputs = {
        f"{number} {text}": an_artifact("Dataset", out / str(number), note=text) for number, text in enumerate(texts)
    }
    reader = a_recorded_run(state, outputs)
    out.mkdir(parents=True)
    for number, text in enumerate(texts):
        (out / str(number)).write_bytes(
            text.encode() + b"\n" + HOSTILE[begin + number].encode("utf-8", "surrogatepass")
        )
    found = task_artifacts(reader, "eval")
    assert len(found) == len(texts)
    json.dumps(found, allow_nan=False)
