"""Places for checkpoints: their addresses, and the messages for places that cannot be used."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from spotwright.checkpoint import Checkpoint, PlaceError, SaveFailed
from spotwright.checkpoint.store import FolderStore

FULL = """
import resource, signal, sys
from spotwright.checkpoint import Checkpoint, SaveFailed

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ckpt = Checkpoint(sys.argv[1])
ckpt.save(b"a" * 50_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    ckpt.save(b"b" * 500_000)
except SaveFailed as error:
    print(error)
ckpt.save(b"c" * 50_000)
"""


def test_the_environment_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTWRIGHT_CHECKPOINT", str(tmp_path / "place"))
    with Checkpoint() as ckpt:
        ckpt.save(1)

    assert Checkpoint(tmp_path / "place", writer=False).load() == 1


def test_a_file_url_is_its_folder(tmp_path: Path) -> None:
    with Checkpoint((tmp_path / "with space").as_uri()) as ckpt:
        ckpt.save(1)

    assert Checkpoint(tmp_path / "with space", writer=False).load() == 1


def test_an_empty_place_is_refused() -> None:
    with pytest.raises(PlaceError, match=r'is empty.*Checkpoint\("checkpoints"\)'):
        Checkpoint("")


@pytest.mark.parametrize("place", ["file://elsewhere/folder", "file://", "pvc://claim/folder", "nosuchscheme://x/y"])
def test_an_address_that_cannot_be_a_place_is_refused(place: str) -> None:
    with pytest.raises(PlaceError, match=place.partition(":")[0]):
        Checkpoint(place)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)

    with pytest.raises(PlaceError, match=r"pip install 'spotwright-train\[s3\]'"):
        Checkpoint("s3://bucket/folder")


def test_no_folder_is_created_before_a_save_or_load(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "place")

    assert not (tmp_path / "place").exists()


def test_a_file_at_the_folders_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("x")

    with pytest.raises(PlaceError, match="place"):
        Checkpoint(tmp_path / "place").load()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    code = (
        "import os, sys; from spotwright.checkpoint import Checkpoint, PlaceError\n"
        "if os.geteuid() == 0: os.setuid(65534)  # root may write anywhere\n"
        "try: Checkpoint(sys.argv[1]).load()\n"
        "except PlaceError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "closed" / "place")], capture_output=True, text=True, check=False
    )

    assert "cannot be" in done.stdout, done.stderr
    assert "(Permission denied); name another place" in done.stdout


def test_a_file_system_without_folder_sync_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    with Checkpoint(tmp_path / "place") as ckpt:
        ckpt.save(1)
    assert Checkpoint(tmp_path / "place", writer=False).load() == 1


def test_a_place_below_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(PlaceError, match="file"):
        Checkpoint(tmp_path / "file" / "place").load()


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="name another place"):
        Checkpoint(tmp_path / ("x" * 300)).load()


def test_on_a_full_disk_the_previous_save_stays_and_the_failed_one_is_removed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "place")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "could not be written (File too large); the previous one is untouched" in done.stdout
    assert Checkpoint(tmp_path / "place", writer=False).load() == b"c" * 50_000
    assert sum(path.stat().st_size for path in (tmp_path / "place").iterdir()) < 110_000


@pytest.mark.parametrize("room", [*range(0, 1200, 40)])
def test_at_whatever_byte_the_disk_is_full_the_previous_save_is_loaded_and_saving_can_go_on(
    tmp_path: Path, room: int
) -> None:
    """The limit of a file's size replaces the end of a disk: it truncates the state file, or the entry."""
    ckpt = Checkpoint(tmp_path)
    ckpt.load()
    ckpt.save("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            ckpt.save({"x": b"x" * 400})
            expected: object = {"x": b"x" * 400}
        except SaveFailed:
            expected = "before"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert Checkpoint(tmp_path, writer=False).load() == expected
    ckpt.save("after")
    assert Checkpoint(tmp_path, writer=False).load() == "after"
    assert len(list(tmp_path.glob("state-*"))) == 2
    ckpt.close()


def interrupt(file: BinaryIO) -> None:
    file.write(b"half")
    raise KeyboardInterrupt


def test_an_exception_in_a_save_leaves_no_file(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))

    with pytest.raises(KeyboardInterrupt), store.write("state-1") as file:
        interrupt(file)
    assert list(tmp_path.iterdir()) == []
