"""lint as a command: lines with their rule, exit codes, and files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spotwright.cli import FAILED, SUCCEEDED, WRONG, cli
from spotwright.errors import InputError

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}
      containers:
      - {name: main, image: "trainer:1"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    Path("sound.yaml").write_text(
        JOB.replace("      nodeSelector: {kubernetes.azure.com/scalesetpriority: spot}\n", "")
    )


def spotwright(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=given, standalone_mode=False)


def test_a_finding_is_a_line_with_its_place_and_its_rule() -> None:
    done = spotwright("lint", "job.yaml")

    assert done.return_value == FAILED
    assert "job.yaml:9: error: Job train asks for spot nodes" in done.stdout
    assert "[affinity-without-toleration]" in done.stdout


def test_without_an_error_the_exit_code_is_0() -> None:
    done = spotwright("lint", "sound.yaml")

    assert (done.return_value, done.stdout) == (SUCCEEDED, "nothing found (1 object in 1 file)\n")


def test_our_own_configuration_is_no_finding() -> None:
    Path("spotwright.yaml").write_text("version: 1\npools: {spot: {capacity: spot, provider: aks}}\n")
    Path("values.yaml").write_text("version: 1\n")

    assert spotwright("lint", "spotwright.yaml").stdout.startswith("nothing found")
    assert "values.yaml:1: note: this has no kind" in spotwright("lint", "values.yaml").stdout


QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: team}\nspec: {hard: {limits.cpu: 8}}\n"


def test_facts_of_other_files_count_and_are_not_linted_themselves() -> None:
    Path("quota.yaml").write_text(QUOTA + "---\n" + JOB.replace("name: train", "name: other"))
    done = spotwright("lint", "sound.yaml", "--with", "quota.yaml")

    assert done.return_value == FAILED
    assert "sound.yaml:7: error: Job train: ResourceQuota team refuses pods" in done.stdout
    assert "quota.yaml" not in done.stdout
    assert "other" not in done.stdout
    assert done.stdout.endswith("(1 object in 1 file)\n")


def test_an_object_of_the_file_counts_before_one_of_its_name_beside_it() -> None:
    Path("quota.yaml").write_text(QUOTA)
    Path("both.yaml").write_text(QUOTA.replace("limits.cpu: 8", "pods: 8") + "---\n" + JOB)

    assert "quota-refuses-pods" not in spotwright("lint", "both.yaml", "--with", "quota.yaml").stdout


def test_a_file_of_facts_that_cannot_be_read_is_an_error() -> None:
    done = spotwright("lint", "job.yaml", "--with", "missing.yaml")

    assert isinstance(done.exception, InputError)
    assert "missing.yaml" in str(done.exception)


@pytest.mark.parametrize("around", ["{}", "kind: List\napiVersion: v1\nitems: [{}]\n"])
def test_a_fact_whose_quantity_cannot_be_read_is_an_error_and_not_left_out(around: str) -> None:
    fact = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: team}, spec: {hard: {limits.cpu: much}}}"
    Path("quota.yaml").write_text(around.replace("{}", fact))
    done = spotwright("lint", "job.yaml", "--with", "quota.yaml")

    assert isinstance(done.exception, InputError)
    assert "ResourceQuota team cannot be read: spec.hard.limits.cpu: 'much' is not a quantity" in str(done.exception)


def test_standard_input_is_linted() -> None:
    assert "standard input:9: error" in spotwright("lint", "-", given=JOB).stdout


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.yaml", b"kind: Job\nspec: {a: [\n", "broken.yaml:3: not valid YAML"),
        ("broken.py", b"import kfp\ndef f(:\n", "broken.py:2: not valid Python"),
        ("empty.yaml", b"", "empty.yaml: nothing to lint: the file is empty"),
        ("comments.yaml", b"# nothing\n---\n", "comments.yaml: nothing to lint: the file is empty"),
        ("empty.py", b"# nothing\n", "empty.py: nothing to lint: the file is empty"),
        ("image.yaml", b"\x89PNG\0\0\0", "image.yaml: expected text, found a binary file"),
        ("old.yaml", "kind: \xe9".encode("latin-1"), "old.yaml:1: expected UTF-8 text"),
        ("deep.py", b"x = " + b"(" * 5000 + b")" * 5000, "deep.py"),
        ("deep.yaml", b"[" * 5000, "deep.yaml:1: nested deeper than 200 levels"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_message_and_the_others_are_linted(
    name: str, content: bytes, message: str
) -> None:
    Path(name).write_bytes(content)

    done = spotwright("lint", name, "job.yaml")

    assert done.return_value == WRONG
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert "job.yaml:9: error" in done.stdout


@pytest.mark.parametrize("command", [["lint"], ["place"], ["pools", "import"]])
def test_no_command_reads_more_of_a_file_than_its_limit(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.cli.pools_nodes._MOST", 2**20)
    with Path("huge.yaml").open("wb") as file:
        file.truncate(2**40)  # of zeros, that take no room on the disk and would take all memory

    done = spotwright(*command, "huge.yaml")

    limit, advice = ("1Mi", "select nodes") if command[0] == "pools" else ("64Mi", "split it")
    assert f"huge.yaml: expected at most {limit}, found more: {advice}" in f"{done.stderr}{done.exception}"


def test_folders_are_linted_when_asked_for() -> None:
    Path("jobs/.hidden").mkdir(parents=True)
    Path("jobs/job.yaml").write_text(JOB)
    Path("jobs/values.yaml").write_text("a: 1\n")
    Path("jobs/pipeline.py").write_text("import kfp.gcp\n")
    Path("jobs/.hidden/other.py").write_text("def (:\n")
    done = spotwright("lint", "-R", "jobs")

    assert "jobs/job.yaml:9: error" in done.stdout
    assert "jobs/pipeline.py:1: error" in done.stdout
    assert done.stdout.endswith("(2 objects in 2 files)\n")
    assert "this is a folder: -R takes all" in spotwright("lint", "jobs").stderr


def test_fix_writes_the_file_and_unplace_takes_it_back() -> None:
    done = spotwright("lint", "--fix", "job.yaml")

    assert done.return_value == SUCCEEDED
    assert done.stdout.endswith("2 fixed (1 object in 1 file)\n")
    assert "tolerations" in Path("job.yaml").read_text()
    spotwright("unplace", "--in-place", "job.yaml")
    assert Path("job.yaml").read_text() == JOB


def test_standard_input_is_not_mended() -> None:
    assert "standard input cannot be written in place" in str(spotwright("lint", "--fix", "-", given=JOB).exception)


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_other_formats_are_one_json_document(form: str) -> None:
    done = spotwright("lint", "job.yaml", "--format", form)

    assert done.return_value == FAILED
    assert "affinity-without-toleration" in json.dumps(json.loads(done.stdout))


def test_the_rules_are_listed() -> None:
    assert "affinity-without-toleration      error    " in spotwright("lint", "--rules").stdout


def test_a_rule_that_is_switched_off_and_does_not_exist_is_refused() -> None:
    Path("spotwright.yaml").write_text("version: 1\nlint: {off: {no-such-rule: a typo}}\n")

    assert "no rule has the name no-such-rule" in str(spotwright("lint", "job.yaml").exception)


def test_a_file_that_is_not_there_is_one_message() -> None:
    done = spotwright("lint", "missing.yaml")

    assert (done.return_value, done.stderr) == (
        WRONG,
        "error: missing.yaml: cannot be read: No such file or directory\n",
    )
