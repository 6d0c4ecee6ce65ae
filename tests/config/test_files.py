"""Which file a run uses, and what is said of one that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spotwright import config
from spotwright.errors import ConfigError

FILE = "version: 1\npools: {mine: {capacity: spot}}\n"


def error_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    return str(caught.value)


def test_the_file_beside_the_pipeline_is_used(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text(FILE)
    assert list(config.find(tmp_path / "pipeline.py").pools) == ["mine"]


def test_a_folder_stands_for_a_pipeline_in_it(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text(FILE)
    assert list(config.find(tmp_path).pools) == ["mine"]


def test_the_named_file_is_used_before_the_one_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text("version: wrong\n")
    (tmp_path / "other.yaml").write_text(FILE)
    assert list(config.find(tmp_path / "pipeline.py", tmp_path / "other.yaml").pools) == ["mine"]


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"other\.yaml: cannot be read: No such file or directory$"):
        config.find(tmp_path / "pipeline.py", tmp_path / "other.yaml")


def test_without_a_file_the_built_in_pools_are_used_and_it_says_so(tmp_path: Path) -> None:
    found = config.find(tmp_path / "pipeline.py")
    assert found == config.built_in()
    assert found.note == (
        "no spotwright.yaml: using the built-in pools spot (spot), on-demand (on-demand), spot preferred"
    )


def test_a_file_of_the_other_suffix_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yml").write_text(FILE)
    with pytest.raises(ConfigError, match=r"spotwright\.yml: this name is not read: rename it to spotwright\.yaml"):
        config.find(tmp_path / "pipeline.py")


def test_a_dangling_link_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        config.find(tmp_path / "pipeline.py")


def test_a_loaded_configuration_knows_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spotwright.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    assert config.load("spotwright.yaml").path == str(tmp_path / "spotwright.yaml")


def test_a_loaded_configuration_keeps_its_text(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_bytes(FILE.replace("\n", "\r\n").encode())
    assert config.load(tmp_path / "spotwright.yaml").text == FILE.replace("\n", "\r\n")


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    assert error_of(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert error_of(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: expected a file, found a folder or a device"


def test_a_file_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "spotwright.yaml"
    path.write_bytes(b"version: 1\ncurrency: \xff\n")
    assert error_of(path) == f"{path}:2: expected UTF-8 text, found the byte 0xff"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spotwright.yaml"
    path.write_bytes(b"#" * 1_000_001)
    assert error_of(path) == f"{path}: expected at most 1000000 bytes, found more"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "spotwright.yaml"
    path.write_text(FILE)
    path.chmod(0)
    assert error_of(path) == f"{path}: cannot be read: Permission denied"
