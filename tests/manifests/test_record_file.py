"""Records that are too large for an annotation go to a file that the user names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml
from tests.placing.placed import FILE, REQUIRE, a_config

import spotwright as spot
from spotwright.cli import cli
from spotwright.manifests.files import place_text, unplace_text
from spotwright.manifests.record import MAX_RECORD
from spotwright.placing.documents import ManifestError

POLICY = "{default: {spot: require, timeout: 1h}}"
CONFIG = f"""\
version: 1
pools:
  spotpool: {{capacity: spot, provider: aks}}
  agentpool: {{capacity: on-demand, provider: aks}}
policy: {POLICY}
"""


def jobset(name: str, jobs: int) -> str:
    """A set of many jobs, each with a few edits of its own."""
    head = f"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: {name}\nspec:\n  replicatedJobs:\n"
    return head + "".join(
        f"  - name: job{number}  # the {number}th\n    template:\n      spec:\n        template:\n          spec:\n"
        "            containers:\n            - name: main\n              image: python\n"
        for number in range(jobs)
    )


LARGE, SMALL = jobset("large", 60), jobset("small", 1)


def spotwright(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def annotation(text: str, document: int = 0) -> dict[str, object]:
    placed = list(plain_yaml.load_all(text))[document]["metadata"]["annotations"]["spotwright.dev/placed"]
    return dict(json.loads(placed))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spotwright.yaml").write_text(CONFIG)
    Path("large.yaml").write_text(LARGE)
    Path("small.yaml").write_text(SMALL)
    return tmp_path


def test_a_record_that_is_too_large_is_refused_with_the_option_that_helps() -> None:
    with pytest.raises(ManifestError, match=rf"work.yaml:3: .*an annotation may have {MAX_RECORD}: .*--record FILE"):
        place_text(LARGE, FILE, a_config(REQUIRE))


def test_the_annotation_has_the_digest_of_a_record_that_is_kept_outside() -> None:
    outside: dict[str, str] = {}
    placed = place_text(LARGE, FILE, a_config(REQUIRE), outside=outside).text

    assert [annotation(placed)["record"]] == list(outside)
    assert len(str(annotation(placed))) < 200
    assert unplace_text(placed, FILE, outside).text == LARGE


def test_a_small_record_stays_in_its_annotation() -> None:
    outside: dict[str, str] = {}
    placed = place_text(SMALL, FILE, a_config(REQUIRE), outside=outside).text

    assert not outside
    assert "edits" in annotation(placed)


@pytest.mark.long
def test_a_reformatted_document_becomes_equal_with_a_record_outside() -> None:
    outside: dict[str, str] = {}
    placed = place_text(LARGE, FILE, a_config(REQUIRE), outside=outside).text
    back = unplace_text(plain_yaml.dump(plain_yaml.load(placed)), FILE, outside)

    assert plain_yaml.load(back.text) == plain_yaml.load(LARGE)


def test_without_its_record_a_document_is_not_unplaced() -> None:
    placed = place_text(LARGE, FILE, a_config(REQUIRE), outside={}).text
    nowhere: list[dict[str, str] | None] = [None, {}]
    for outside in nowhere:
        with pytest.raises(ManifestError, match=r"work.yaml:\d+: .*name the file that place wrote, with --record FILE"):
            unplace_text(placed, FILE, outside)


def test_a_record_that_somebody_changed_is_not_believed() -> None:
    outside: dict[str, str] = {}
    placed = place_text(LARGE, FILE, a_config(REQUIRE), outside=outside).text
    [known] = outside
    with pytest.raises(ManifestError, match="--record FILE"):
        unplace_text(placed, FILE, {known: outside[known] + " "})


@pytest.mark.usefixtures("folder")
def test_one_file_has_the_records_of_many_documents() -> None:
    Path("other.yaml").write_text(jobset("other", 70))
    assert spotwright("place", "large.yaml", "other.yaml", "--in-place", "--record", "records.json").return_value == 0
    assert len(json.loads(Path("records.json").read_text())["records"]) == 2
    assert spotwright("unplace", "large.yaml", "other.yaml", "--in-place", "--record", "records.json").return_value == 0
    assert Path("large.yaml").read_text() == LARGE
    assert Path("other.yaml").read_text() == jobset("other", 70)


@pytest.mark.usefixtures("folder")
def test_placing_twice_changes_neither_the_file_nor_its_records() -> None:
    spotwright("place", "large.yaml", "--in-place", "--record", "records.json")
    before = [Path(name).read_bytes() for name in ("large.yaml", "records.json")]
    spotwright("place", "large.yaml", "--in-place", "--record", "records.json")
    assert [Path(name).read_bytes() for name in ("large.yaml", "records.json")] == before


@pytest.mark.usefixtures("folder")
def test_no_record_file_is_made_where_none_is_needed() -> None:
    spotwright("place", "small.yaml", "--in-place", "--record", "records.json")
    assert not Path("records.json").exists()


@pytest.mark.usefixtures("folder")
def test_nothing_is_written_where_the_records_cannot_be() -> None:
    result = spotwright("place", "large.yaml", "--in-place", "--record", "no/such/records.json")
    assert "cannot be written" in str(result.exception)
    assert Path("large.yaml").read_text() == LARGE


@pytest.mark.usefixtures("folder")
def test_no_records_are_written_where_a_result_cannot_be() -> None:
    result = spotwright("place", "large.yaml", "-o", "no/such/out.yaml", "--record", "records.json")
    assert "cannot be written" in str(result.exception)
    assert not Path("records.json").exists()


@pytest.mark.usefixtures("folder")
def test_a_difference_writes_no_records() -> None:
    assert spotwright("place", "large.yaml", "--diff", "--record", "records.json").return_value == 1
    assert not Path("records.json").exists()


@pytest.mark.usefixtures("folder")
def test_the_record_file_cannot_be_one_of_the_manifests() -> None:
    result = spotwright("place", "large.yaml", "-o", "out.yaml", "--record", "out.yaml")
    assert "name another one" in str(result.exception)
    assert not Path("out.yaml").exists()


@pytest.mark.usefixtures("folder")
def test_a_file_that_holds_no_records_is_refused() -> None:
    for text in ("{}", "x: [", '{"version": 1, "records": {"a": 1}}'):
        Path("records.json").write_text(text)
        result = spotwright("place", "large.yaml", "--record", "records.json")
        assert "not a file of records" in str(result.exception)
        assert Path("records.json").read_text() == text


@pytest.mark.usefixtures("folder")
def test_explain_needs_no_file_for_what_is_not_placed_yet() -> None:
    assert spotwright("explain", "large.yaml").return_value == 0


@pytest.mark.usefixtures("folder")
def test_explain_reads_the_records_of_what_is_placed() -> None:
    spotwright("place", "large.yaml", "--in-place", "--record", "records.json")
    assert "--record" in str(spotwright("explain", "large.yaml").exception)
    assert spotwright("explain", "large.yaml", "--record", "records.json").return_value == 0


@pytest.mark.long
def test_objects_keep_their_large_records_in_a_mapping() -> None:
    policy = {key: value for key, value in plain_yaml.load(CONFIG).items() if key != "version"}
    records: dict[str, str] = {}
    with pytest.warns(UserWarning, match="maxRestarts"):
        placed = spot.place(plain_yaml.load(LARGE), policy, records=records)

    assert len(records) == 1
    assert spot.unplace(placed, records=records) == plain_yaml.load(LARGE)
