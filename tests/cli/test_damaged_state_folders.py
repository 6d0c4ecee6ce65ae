"""Whatever bytes a file of the state folder has: commands say what is wrong with it, and none ends with a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.terminals import in_this_process
from tests.page.recorded import a_story, log_of, recorded

BYTES = [b"\xff\xfe\x00", b'{"text": "\xff"}', b"\xc3\x28" * 5000, b"", b"9" * 5000, b"[" * 50_000]
COMMANDS = [("runs",), ("show", "a-run"), ("logs", "a-run"), ("report",), ("prune", "--dry-run")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "state"
    reader = recorded(folder, a_story().ends("eval", exit_code=1))
    log_of(reader.folder, 1, b"a log\n")
    return folder


@pytest.mark.parametrize("file", ["format", "runs/a-run/plan-1.json", "runs/a-run/journal.db", "runs/a-run/kfp.json"])
@pytest.mark.parametrize("content", BYTES, ids=range(len(BYTES)))
def test_a_file_of_any_bytes_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: Path, file: str, content: bytes
) -> None:
    state = tmp_path / "state"
    shutil.copytree(whole, state)
    (state / file).write_bytes(content)
    for command in COMMANDS:
        sent = in_this_process(monkeypatch, *command, "--state", str(state)).decode()
        assert "Traceback" not in sent


def test_a_log_of_any_bytes_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "state")
    (log,) = (tmp_path / "state").glob("runs/a-run/tasks/eval/attempt-1/log.txt")
    log.write_bytes(bytes(range(256)))
    assert "<U+0000>" in in_this_process(monkeypatch, "logs", "a-run", "--state", str(tmp_path / "state")).decode()
