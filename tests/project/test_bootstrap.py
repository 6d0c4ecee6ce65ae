"""scripts/bootstrap does only the needed steps, and never takes half an environment for a complete one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Bootstrap:
    """A copy of the project's scaffolding whose two slow steps are recorded instead of done."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.steps: list[str] = []
        self.fails = False
        (root / "requirements").mkdir()
        (root / "scripts").mkdir()
        for name in ("build", "run", "demo", "docs", "dev", "networks", "torch"):
            (root / "requirements" / f"{name}.txt").write_text(f"{name}==1\n", encoding="utf-8")
        shutil.copy(ROOT / "pyproject.toml", root)
        shutil.copy(ROOT / "scripts" / "bootstrap.py", root / "scripts")
        self.module = load(root / "scripts" / "bootstrap.py")
        monkeypatch.setattr(self.module, "install", self.install)
        monkeypatch.setattr(self.module, "run", lambda _: None)
        monkeypatch.setattr(self.module, "succeeds", self.make_venv)

    def make_venv(self, command: list[str]) -> bool:
        assert command[1:3] == ["-m", "venv"]
        self.steps.append("create")
        python = self.root / ".venv" / "bin" / "python"
        python.parent.mkdir()
        python.touch()
        return True

    def install(self, name: str) -> None:
        if self.fails:
            raise KeyboardInterrupt
        self.steps.append(name)

    def __call__(self, *arguments: str) -> int:
        code: int = self.module.main(list(arguments))
        return code

    def does(self, name: str) -> list[str]:
        """Bring up a set and give the steps that were taken for it."""
        self.steps.clear()
        assert self(name) == 0
        return list(self.steps)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bootstrap:
    return Bootstrap(tmp_path, monkeypatch)


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_fresh_clone_gets_an_environment_and_the_set(bootstrap: Bootstrap) -> None:
    assert bootstrap.does("demo") == ["create", "demo"]


def test_nothing_is_done_when_nothing_changed(bootstrap: Bootstrap) -> None:
    bootstrap.does("demo")
    assert bootstrap.does("demo") == []


def test_a_larger_set_is_added_to_what_is_there(bootstrap: Bootstrap) -> None:
    bootstrap.does("run")
    assert bootstrap.does("dev") == ["dev"]


def test_a_larger_set_serves_for_a_smaller_one(bootstrap: Bootstrap) -> None:
    bootstrap.does("dev")
    assert bootstrap.does("demo") == []
    assert bootstrap.does("dev") == []


def test_two_large_sets_stand_beside_each_other(bootstrap: Bootstrap) -> None:
    bootstrap.does("networks")
    assert bootstrap.does("torch") == ["torch"]
    assert bootstrap.does("networks") == []
    assert bootstrap.does("dev") == []


@pytest.mark.parametrize("name", ["run", "build"])
def test_a_changed_lock_makes_the_environment_anew(bootstrap: Bootstrap, name: str) -> None:
    bootstrap.does("run")
    append(bootstrap.root / "requirements" / f"{name}.txt", "more==1\n")
    assert bootstrap.does("run") == ["create", "run"]


def test_a_setting_of_a_linter_changes_nothing(bootstrap: Bootstrap) -> None:
    bootstrap.does("run")
    append(bootstrap.root / "pyproject.toml", "[tool.other]\nkey = 1\n")
    assert bootstrap.does("run") == []


def test_an_environment_that_has_lost_its_python_is_made_anew(bootstrap: Bootstrap) -> None:
    bootstrap.does("run")
    (bootstrap.root / ".venv" / "bin" / "python").unlink()
    assert bootstrap.does("run") == ["create", "run"]


def test_another_python_makes_the_environment_anew(bootstrap: Bootstrap, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.does("run")
    monkeypatch.setattr(bootstrap.module, "interpreter", lambda: "/opt/python3.13")
    assert bootstrap.does("run") == ["create", "run"]


@pytest.mark.parametrize("before", [[], ["run"]], ids=["fresh", "growing"])
def test_after_an_installation_that_was_stopped_the_environment_is_made_anew(
    bootstrap: Bootstrap, before: list[str]
) -> None:
    for name in before:
        bootstrap.does(name)
    bootstrap.fails = True
    assert bootstrap("dev") == 130
    bootstrap.fails = False
    append(bootstrap.root / ".venv" / "half", "written")
    assert bootstrap.does("dev") == ["create", "dev"]
    assert not (bootstrap.root / ".venv" / "half").exists()


def test_an_environment_of_somebody_else_is_left_alone(
    bootstrap: Bootstrap, capsys: pytest.CaptureFixture[str]
) -> None:
    (bootstrap.root / ".venv").mkdir()
    append(bootstrap.root / ".venv" / "mine", "precious")
    assert bootstrap("run") == 1
    assert bootstrap.steps == []
    assert [path.name for path in (bootstrap.root / ".venv").iterdir()] == ["mine"]
    assert "move it away or delete it" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["all"], ["run", "dev"]])
def test_what_is_no_set_is_answered_with_the_usage(
    bootstrap: Bootstrap, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap(*arguments) == 1
    assert capsys.readouterr().err == "bootstrap: usage: scripts/bootstrap run|demo|docs|dev|networks|torch\n"


def test_without_any_pip_one_message_says_what_to_install(
    bootstrap: Bootstrap, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = load(bootstrap.root / "scripts" / "bootstrap.py")
    monkeypatch.setattr(fresh, "succeeds", lambda _: False)
    monkeypatch.setattr(fresh, "run", lambda _: None)
    assert fresh.main(["run"]) == 1
    assert "apt-get install python3-venv" in capsys.readouterr().err


def test_a_python_that_is_too_old_or_missing_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "bootstrap", "run"],
        env={**os.environ, "PYTHON": str(tmp_path / "python3.8")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "python3.8" in done.stderr


def test_a_link_to_the_environment_of_another_folder_is_refused_and_that_stays_as_it_is(
    bootstrap: Bootstrap, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "spotwright.json").write_text('["", "run"]', encoding="utf-8")
    (other / "kept").touch()
    (bootstrap.root / ".venv").symlink_to(other)

    assert bootstrap("run") == 1
    assert f"is a link to {other}, which belongs to another folder: remove the link" in capsys.readouterr().err
    assert sorted(each.name for each in other.iterdir()) == ["kept", "spotwright.json"]
