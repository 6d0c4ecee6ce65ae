"""A release's files are built twice to the same bytes, whatever the folder, the umask and the times of the clone."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from tests.project.wheel import ROOT, copy_of_project, put_stand_ins

EPOCH = 1_767_225_600  # 2026-01-01


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE = load()


def built(folder: Path, umask: int) -> dict[str, str]:
    """The digest of every file, built in a copy in this folder."""
    before = os.umask(umask)
    try:
        folder.mkdir()
        out = folder / "out"
        out.mkdir()
        for name in RELEASE.DISTRIBUTIONS:
            source = folder / name
            copy_of_project(source)
            put_stand_ins(source)
            RELEASE.build(name, source, out, EPOCH)
    finally:
        os.umask(before)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.mark.slow
def test_two_builds_are_equal_to_the_byte_and_whole(tmp_path: Path) -> None:
    first, second = built(tmp_path / "first", 0o022), built(tmp_path / "a-second-place", 0o077)

    assert first == second
    version = RELEASE.versions(ROOT)
    stems = ("spotwright", "spotwright_pytest", "spotwright_train")
    assert set(first) == {f"{stem}-{version}{end}" for stem in stems for end in (".tar.gz", "-py3-none-any.whl")}
    out = tmp_path / "first" / "out"
    whole = zipfile.ZipFile(out / f"spotwright-{version}-py3-none-any.whl")
    assert {entry.date_time[:3] for entry in whole.infolist()} == {(2026, 1, 1)}
    assert "spotwright/page/assets/vendor/preact.js" in whole.namelist()
    with tarfile.open(out / f"spotwright-{version}.tar.gz") as sources:
        assert {(entry.mtime, entry.uid, entry.uname) for entry in sources} == {(EPOCH, 0, "")}
        assert f"spotwright-{version}/src/spotwright/page/assets/vendor/preact.js" in sources.getnames()


def test_the_notes_are_the_newest_section_of_the_changelog() -> None:
    changelog = "# Changes\n\n## 0.2.0 (2027-01-01)\n\n### What it does\n\n- b\n\n## 0.1.0\n\n- a\n"

    assert RELEASE.release_notes(changelog, "0.2.0") == "# Spotwright 0.2.0\n\n### What it does\n\n- b\n"


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        ("# Changes\n\n## 0.1.0\n\n- a\n", "begins with 0.1.0, and the version is 0.2.0"),
        ("# Changes\n\n## 0.2.0\n\n## 0.1.0\n\n- a\n", "has no section for 0.2.0"),
    ],
)
def test_a_changelog_that_says_nothing_of_the_version_is_refused(changelog: str, message: str) -> None:
    with pytest.raises(RELEASE.RefusalError, match=message):
        RELEASE.release_notes(changelog, "0.2.0")


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    notes = RELEASE.release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), RELEASE.versions(ROOT))

    assert "### What it does" in notes


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files that decide whether a release may be built."""
    for name in ("pyproject.toml", "CHANGELOG.md", "scripts/release.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "distributions", tmp_path / "distributions")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    return tmp_path


def refusal(clone: Path, **env: str) -> str:
    script = [sys.executable, str(clone / "scripts" / "release.py")]
    done = subprocess.run(script, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not (clone / "dist").exists()
    return done.stderr


def test_a_tree_with_changes_is_refused(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text() + "\nmore\n")

    assert refusal(clone) == "release: 1 files are not committed, such as CHANGELOG.md: commit or stash them first\n"


def test_versions_that_differ_are_refused(clone: Path) -> None:
    path = clone / "distributions" / "train" / "pyproject.toml"
    path.write_text(path.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))

    assert "the versions differ: spotwright 0.1.0, spotwright-train 0.2.0" in refusal(clone)


def test_a_time_that_is_no_number_is_refused(clone: Path) -> None:
    assert "SOURCE_DATE_EPOCH=yesterday: expected seconds since 1970" in refusal(clone, SOURCE_DATE_EPOCH="yesterday")


def test_the_list_of_contents_names_the_packages_of_npm() -> None:
    assert {"pkg:npm/preact", "pkg:npm/%40dagrejs/dagre"} <= {
        str(each["purl"]).rpartition("@")[0] for each in RELEASE.page_components(ROOT)
    }
