"""place, unplace and explain as commands: files in, files out, exit codes, nothing half written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.placed_pods import BROKEN, CONFIG, POD

from spotwright.cli import cli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spotwright.yaml").write_text(CONFIG)
    Path("pod.yaml").write_text(POD)
    return tmp_path


def spotwright(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=given, standalone_mode=False)


def test_the_result_goes_to_standard_output() -> None:
    assert "kubernetes.azure.com/scalesetpriority" in spotwright("place", "pod.yaml").stdout
    assert Path("pod.yaml").read_text() == POD


def test_unplace_gives_the_bytes_of_before() -> None:
    spotwright("place", "pod.yaml", "--in-place")
    assert Path("pod.yaml").read_text() != POD
    spotwright("unplace", "pod.yaml", "--in-place")
    assert Path("pod.yaml").read_text() == POD


def test_a_file_in_place_keeps_its_permissions() -> None:
    Path("pod.yaml").chmod(0o640)
    spotwright("place", "pod.yaml", "--in-place")
    assert Path("pod.yaml").stat().st_mode & 0o777 == 0o640


def test_diff_gives_1_when_there_is_a_difference_and_writes_nothing() -> None:
    result = spotwright("place", "pod.yaml", "--diff")
    assert result.return_value == 1
    assert "+  tolerations:" in result.stdout
    assert Path("pod.yaml").read_text() == POD


def test_diff_gives_0_when_there_is_none() -> None:
    spotwright("place", "pod.yaml", "--in-place")
    assert spotwright("place", "pod.yaml", "--diff").return_value == 0


def test_standard_input_is_a_dash() -> None:
    placed = spotwright("place", "-", given=POD).stdout
    assert spotwright("unplace", "-", given=placed).stdout == POD


def test_several_files_come_out_as_one_stream_of_documents() -> None:
    Path("other.yaml").write_text(POD.replace("train", "other"))
    stream = spotwright("place", "pod.yaml", "other.yaml").stdout
    assert stream.count("\n---\n") == 1


def test_an_output_folder_takes_each_file_by_its_name(folder: Path) -> None:
    Path("other.yaml").write_text(POD.replace("train", "other"))
    spotwright("place", "pod.yaml", "other.yaml", "-o", "out")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["other.yaml", "pod.yaml"]


def test_nothing_is_written_when_one_file_is_wrong() -> None:
    Path("broken.yaml").write_text(BROKEN)
    result = spotwright("place", "pod.yaml", "broken.yaml", "--in-place")
    assert "broken.yaml:4: not valid YAML" in str(result.exception)
    assert Path("pod.yaml").read_text() == POD


def test_findings_go_to_the_error_output() -> None:
    result = spotwright("place", "pod.yaml")
    assert "pod.yaml:2: warning: a bare Pod is not scheduled again" in result.stderr


def test_a_missing_file_is_named() -> None:
    assert "nope.yaml: cannot be read" in str(spotwright("place", "nope.yaml").exception)


def test_two_ways_to_write_exclude_each_other() -> None:
    assert "exclude each other" in str(spotwright("place", "pod.yaml", "--diff", "--in-place").exception)


def test_explain_names_the_source_of_every_value() -> None:
    text = spotwright("explain", "pod.yaml").stdout
    assert "pools, in order: spotpool (spot), agentpool (on-demand)" in text
    assert re.search(r"^  spot  +prefer  +spotwright.yaml:5  +preferred node affinity", text, re.MULTILINE)
    assert re.search(r"^  pending_timeout  +10m  +built in  +nothing$", text, re.MULTILINE)


def test_explain_prints_what_makes_the_autoscaler_obey() -> None:
    assert "cluster-autoscaler-priority-expander" in spotwright("explain", "pod.yaml").stdout


def test_explain_says_the_same_as_json() -> None:
    facts = json.loads(spotwright("explain", "pod.yaml", "--json").stdout)
    role = facts["files"]["pod.yaml"]["roles"][0]
    assert [pool["name"] for pool in role["pools"]] == ["spotpool", "agentpool"]
    assert role["policy"]["spot"] == {
        "value": "prefer",
        "source": "spotwright.yaml:5",
        "enforced_by": "object",
        "field": "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        "enforcement": "preferred node affinity, best effort",
    }
