"""An attempt of a command begins with a copy of its folder, with links to Python environments, which hold thousands of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.errors import InputError
from spotwright.local.protocol import WORK, StartOrder
from spotwright.rehearsal import workspaces
from spotwright.rehearsal.persisted_paths import PersistedPaths
from spotwright.rehearsal.workspaces import CommandWorkspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with its code, and with environments of venv and conda under names of their owner."""
    made = tmp_path / "project"
    for name in ("train.py", "data/rows.csv", "env-3.13/pyvenv.cfg", "tools/conda/conda-meta/history"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    return made


def workspace(folder: Path) -> CommandWorkspace:
    state = folder.parent / "state"
    return CommandWorkspace(folder=folder, state=state, persisted=PersistedPaths([], state / "kept"))


def test_an_attempt_gets_copies_of_files_and_links_to_environments(folder: Path, tmp_path: Path) -> None:
    order = StartOrder(
        "a#1", str(tmp_path / "attempt-1"), "r", "command", 1, 1, env={"SPOTWRIGHT_CHECKPOINT": str(tmp_path / "saves")}
    )
    workspace(folder).prepare(order)

    work = tmp_path / "attempt-1" / WORK
    assert (work / "train.py").read_text() == "train.py"
    assert (work / "data/rows.csv").read_text() == "data/rows.csv"
    links = [path for path in work.rglob("*") if path.is_symlink()]
    assert [(str(path.relative_to(work)), path.readlink()) for path in sorted(links)] == [
        ("env-3.13", folder / "env-3.13"),
        ("tools/conda", folder / "tools/conda"),
    ]


def test_environments_do_not_count_towards_the_size_of_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_MAX_BYTES", 1000)
    (folder / "env-3.13" / "large").write_bytes(bytes(2000))
    workspace(folder).check()
    (folder / "data" / "large").write_bytes(bytes(2000))
    with pytest.raises(InputError, match="rehearse the command in a smaller folder"):
        workspace(folder).check()
