"""The page's modules from npm: one table and one lock, and a script that takes only the named files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.project.wheel import ASSETS, ROOT, copy_of_project, put_stand_ins

TABLE: dict[str, dict[str, Any]] = json.loads((ROOT / ASSETS / "vendor.json").read_text(encoding="utf-8"))
ASKED: dict[str, str] = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["dependencies"]
LOCK: dict[str, Any] = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
PACKAGES: dict[str, dict[str, Any]] = {
    path.removeprefix("node_modules/"): entry for path, entry in LOCK["packages"].items() if path
}

NPM = """#!/bin/sh
# Gives what was put into the folder beside it, as npm gives what a registry has.
echo "$@" > "{folder}/asked"
cp -R "{folder}/node_modules" node_modules
"""


def package_of(source: str) -> str:
    parts = source.split("/")
    return "/".join(parts[: 2 if source.startswith("@") else 1])


def test_every_package_is_locked_with_its_integrity_and_without_an_address() -> None:
    assert [name for name, entry in PACKAGES.items() if not str(entry["integrity"]).startswith("sha512-")] == []
    assert [name for name, entry in PACKAGES.items() if "resolved" in entry] == []


def test_the_lock_has_the_versions_that_are_asked_for() -> None:
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in ASKED.values())
    assert {name: PACKAGES[name]["version"] for name in ASKED} == ASKED
    assert LOCK["packages"][""]["dependencies"] == ASKED


def test_no_package_is_locked_that_runs_a_script_when_it_is_installed() -> None:
    assert [name for name, entry in PACKAGES.items() if "hasInstallScript" in entry] == []


def test_the_table_takes_every_package_that_is_asked_for_with_its_licence() -> None:
    assert {package_of(entry["source"]) for entry in TABLE.values()} == set(ASKED)
    assert {package_of(entry["licence"]["source"]) for entry in TABLE.values() if "licence" in entry} == set(ASKED)


def test_no_two_files_of_the_table_have_one_name() -> None:
    files = [entry["file"] for module in TABLE.values() for entry in (module, module.get("licence")) if entry]
    assert sorted(files) == sorted(set(files))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project with stand-ins for the modules, and an ``npm`` that would give the same ones."""
    source = tmp_path / "clone"
    copy_of_project(source)
    put_stand_ins(source)
    (source / "scripts").mkdir()
    for name in ("package.json", "package-lock.json", "scripts/page_assets.py"):
        shutil.copy(ROOT / name, source / name)
    for module in TABLE.values():
        for entry in filter(None, (module, module.get("licence"))):
            given = tmp_path / "npm" / "node_modules" / entry["source"]
            given.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / ASSETS / "vendor" / entry["file"], given)
    npm = tmp_path / "npm" / "npm"
    npm.write_text(NPM.format(folder=npm.parent), encoding="utf-8")
    npm.chmod(0o755)
    return source


def run(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": f"{clone.parent / 'npm'}:{os.environ['PATH']}"}
    command = [sys.executable, str(clone / "scripts" / "page_assets.py"), *arguments]
    return subprocess.run(command, env=env, check=False, capture_output=True, text=True)


def ensure(clone: Path) -> str:
    """The error of the copy's ``ensure_vendor``; empty if it succeeds."""
    code = (
        "from spotwright.errors import InputError\nfrom spotwright.page.vendor import ensure_vendor\n"
        "try:\n    ensure_vendor()\nexcept InputError as error:\n    print(error)"
    )
    env = os.environ | {"PATH": f"{clone.parent / 'npm'}:{os.environ['PATH']}", "PYTHONPATH": str(clone / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    return done.stdout


def vendor(clone: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (clone / ASSETS / "vendor").glob("*")}


def test_npm_is_not_asked_where_all_files_are_there(clone: Path) -> None:
    done = run(clone)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (clone.parent / "npm" / "asked").exists()


def test_missing_changed_and_strange_files_are_mended_without_running_scripts_of_packages(clone: Path) -> None:
    whole = vendor(clone)
    (clone / ASSETS / "vendor" / "htm.js").unlink()
    (clone / ASSETS / "vendor" / "preact.js").write_text("changed", encoding="utf-8")
    (clone / ASSETS / "vendor" / "strange.js").touch()
    checked = run(clone, "--check")
    made = run(clone)

    assert checked.returncode == 1
    assert "htm.js is missing" in checked.stderr
    assert "preact.js is not the file of vendor.json" in checked.stderr
    assert "strange.js is not in vendor.json" in checked.stderr
    assert made.returncode == 0
    assert len(made.stdout.splitlines()) == 1
    assert vendor(clone) == whole
    assert {"ci", "--ignore-scripts"} <= set((clone.parent / "npm" / "asked").read_text(encoding="utf-8").split())


def test_another_file_than_that_of_the_table_is_refused_and_nothing_is_copied(clone: Path) -> None:
    shutil.rmtree(clone / ASSETS / "vendor")
    (clone.parent / "npm" / "node_modules" / "preact" / "dist" / "preact.mjs").write_text("evil()", encoding="utf-8")
    done = run(clone)

    assert done.returncode == 1
    assert "npm gave another preact/dist/preact.mjs than vendor.json names" in done.stderr
    assert vendor(clone) == {}


def test_the_table_takes_over_new_files_when_that_is_asked_for(clone: Path) -> None:
    (clone.parent / "npm" / "node_modules" / "preact" / "dist" / "preact.mjs").write_text("newer", encoding="utf-8")

    assert run(clone, "--record").returncode == 0
    assert run(clone, "--check").returncode == 0
    assert vendor(clone)["preact.js"] == b"newer"


def test_a_clone_makes_the_files_when_the_page_is_first_opened(clone: Path) -> None:
    whole = vendor(clone)
    shutil.rmtree(clone / ASSETS / "vendor")

    assert ensure(clone) == ""
    assert vendor(clone) == whole


def test_a_clone_whose_npm_fails_says_what_to_type(clone: Path) -> None:
    shutil.rmtree(clone / ASSETS / "vendor")
    (clone.parent / "npm" / "npm").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")

    assert "make page" in ensure(clone)


def test_an_installation_without_the_files_says_which_are_missing(clone: Path) -> None:
    (clone / ASSETS / "vendor" / "htm.js").unlink()
    shutil.rmtree(clone / "scripts")

    assert "htm.js is missing; install spotwright again" in ensure(clone)
