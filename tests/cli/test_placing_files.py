"""place --in-place and -o as what they do to files: whole or not at all, links and permissions kept, nothing else touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.placed_pods import BROKEN, CONFIG, POD

from spotwright.cli import cli
from spotwright.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spotwright.yaml").write_text(CONFIG)
    Path("pod.yaml").write_text(POD)
    return tmp_path


def spotwright(*arguments: str) -> None:
    CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_a_link_stays_a_link_and_what_it_points_to_is_written() -> None:
    Path("real").mkdir()
    Path("pod.yaml").rename("real/pod.yaml")
    Path("pod.yaml").symlink_to("real/pod.yaml")

    spotwright("place", "pod.yaml", "--in-place")

    assert Path("pod.yaml").is_symlink()
    assert "spotwright.dev/placed" in Path("real/pod.yaml").read_text()


def test_a_file_that_is_named_twice_is_written_once() -> None:
    Path("again.yaml").symlink_to("pod.yaml")
    spotwright("place", "pod.yaml", "again.yaml", "--in-place")
    assert Path("pod.yaml").read_text().count("spotwright.dev/placed") == 1
    assert names() == ["again.yaml", "pod.yaml", "spotwright.yaml"]


def test_a_device_is_written_to_and_stays_one() -> None:
    spotwright("place", "pod.yaml", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_file_that_may_not_be_written_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match=r"pod\.yaml: cannot be written: Permission denied"):
        spotwright("place", "pod.yaml", "--in-place")
    assert Path("pod.yaml").read_text() == POD


def test_one_file_that_cannot_be_written_leaves_all_as_they_are() -> None:
    Path("other.yaml").write_text(POD)
    Path("out").mkdir()
    (Path("out") / "other.yaml").mkdir()

    with pytest.raises(InputError, match=r"other\.yaml: cannot be written: Is a directory"):
        spotwright("place", "pod.yaml", "other.yaml", "-o", "out")

    assert list(Path("out").iterdir()) == [Path("out/other.yaml")]


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        spotwright("place", "pod.yaml", "--in-place")
    assert Path("pod.yaml").read_text() == POD
    assert names() == ["pod.yaml", "spotwright.yaml"]


def test_until_the_last_moment_the_file_is_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(Path("pod.yaml").read_text())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    spotwright("place", "pod.yaml", "--in-place")
    assert seen == [POD]
    assert Path("pod.yaml").read_text() != POD


def test_a_broken_file_among_many_leaves_all_as_they_are() -> None:
    Path("broken.yaml").write_text(BROKEN)
    with pytest.raises(InputError, match=r"broken\.yaml:\d+: "):
        spotwright("place", "pod.yaml", "broken.yaml", "--in-place")
    assert Path("pod.yaml").read_text() == POD
    assert names() == ["broken.yaml", "pod.yaml", "spotwright.yaml"]
