"""The choice of the configuration file of a run, and the messages for files that cannot be read."""

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


@pytest.mark.parametrize("git", ["folder", "file"])
def test_the_nearest_file_up_to_the_root_of_the_repository_is_used_and_named(tmp_path: Path, git: str) -> None:
    if git == "folder":
        (tmp_path / ".git").mkdir()
    else:  # a worktree or a submodule
        (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    pipelines = tmp_path / "team" / "pipelines"
    pipelines.mkdir(parents=True)
    (tmp_path / "spotwright.yaml").write_text(FILE.replace("mine", "root"))
    found = config.find(pipelines / "pipeline.py")
    assert (list(found.pools), found.path) == (["root"], str(tmp_path / "spotwright.yaml"))
    assert found.notes == (f"using {tmp_path / 'spotwright.yaml'}: no spotwright.yaml in {pipelines}",)
    (tmp_path / "team" / "spotwright.yaml").write_text(FILE.replace("mine", "team"))
    assert list(config.find(pipelines / "pipeline.py").pools) == ["team"]
    (pipelines / "spotwright.yaml").write_text(FILE)
    beside = config.find(pipelines / "pipeline.py")
    assert (list(beside.pools), beside.notes) == (["mine"], ())


def test_a_file_above_the_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text(FILE)
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "pipelines").mkdir()
    assert config.find(repository / "pipelines" / "pipeline.py").is_built_in
    assert config.find(repository / "pipeline.py").is_built_in


def test_without_a_repository_a_folder_above_the_pipeline_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text(FILE)
    (tmp_path / "pipelines").mkdir()
    assert config.find(tmp_path / "pipelines" / "pipeline.py").is_built_in


def test_without_a_repository_the_file_of_the_current_folder_is_used_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "spotwright.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    found = config.find("pipelines/pipeline.py")
    assert list(found.pools) == ["mine"]
    assert found.notes == (f"using {tmp_path / 'spotwright.yaml'}: no spotwright.yaml in {tmp_path / 'pipelines'}",)
    (tmp_path / "pipelines" / "spotwright.yaml").write_text(FILE.replace("mine", "beside"))
    assert list(config.find("pipelines/pipeline.py").pools) == ["beside"]


def test_a_relative_path_is_looked_for_above_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "spotwright.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path / "pipelines")
    assert list(config.find("pipeline.py").pools) == ["mine"]


def test_a_file_of_the_other_suffix_above_the_pipeline_is_not_ignored(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "spotwright.yml").write_text(FILE)
    with pytest.raises(ConfigError, match=r"spotwright\.yml: Spotwright does not read this name"):
        config.find(tmp_path / "pipelines" / "pipeline.py")


def test_a_mapping_gives_the_configuration_that_its_file_would_give() -> None:
    given = config.from_mapping({"pools": {"mine": {"capacity": "spot"}}})
    assert given.pools == config.parse(FILE).pools
    assert (given.path, given.is_file) == (str(Path.cwd() / "<config>"), False)
    assert config.parse(given.text, given.path) == given


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"pools": {"mine": {"capacity": "sport"}}}, r"^<config>:1: pools\.mine\.capacity: .*sport"),
        ({"pols": {}}, r"^<config>:1: pols"),
        ({"pools": {"mine": object()}}, r"^<config>: .*expected texts, numbers, booleans, lists and mappings$"),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_messages_of_a_file(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.from_mapping(data)


def test_the_named_file_is_used_before_the_one_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text("version: wrong\n")
    (tmp_path / "other.yaml").write_text(FILE)
    assert list(config.find(tmp_path / "pipeline.py", tmp_path / "other.yaml").pools) == ["mine"]


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"other\.yaml: cannot be read: No such file or directory$"):
        config.find(tmp_path / "pipeline.py", tmp_path / "other.yaml")


def test_without_a_file_the_built_in_pools_are_used_with_a_note(tmp_path: Path) -> None:
    found = config.find(tmp_path / "pipeline.py")
    assert found == config.built_in()
    assert found.note == (
        "no spotwright.yaml: using the built-in pools spot (spot), on-demand (on-demand), spot preferred"
    )


def test_a_file_of_the_other_suffix_is_not_ignored(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yml").write_text(FILE)
    with pytest.raises(
        ConfigError, match=r"spotwright\.yml: Spotwright does not read this name: rename it to spotwright\.yaml"
    ):
        config.find(tmp_path / "pipeline.py")


def test_a_dangling_link_is_not_ignored(tmp_path: Path) -> None:
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
    assert (
        error_of(path)
        == f"{path}:2: expected UTF-8 text, found the byte 0xff: save it as UTF-8 (in PowerShell, > writes UTF-16)"
    )


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spotwright.yaml"
    path.write_bytes(b"#" * 1_000_001)
    assert error_of(path) == f"{path}: expected at most 1000000 bytes, found more"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "spotwright.yaml"
    path.write_text(FILE)
    path.chmod(0)
    assert error_of(path) == f"{path}: cannot be read: Permission denied"
