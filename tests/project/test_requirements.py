"""The locked sets are complete: every package pinned and hashed, without an index address."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"), key=lambda path: path.name)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, list[str]] = {
    name: [entry for entry in entries if isinstance(entry, str)]
    for name, entries in PROJECT["dependency-groups"].items()
}
RUN: list[str] = PROJECT["project"]["dependencies"]
DEMO = RUN + GROUPS["demo"]
CLUSTER = RUN + PROJECT["project"]["optional-dependencies"]["cluster"]
DOCS = CLUSTER + GROUPS["docs"]
DEV = DEMO + CLUSTER + GROUPS["docs"] + GROUPS["stores"] + GROUPS["boosting"] + GROUPS["dev"]
DECLARED = {
    "audit": GROUPS["audit"],
    "build": GROUPS["build"],
    "image": GROUPS["image"],
    "katib": GROUPS["katib"],
    "page": GROUPS["page"],
    "run": RUN,
    "cluster": CLUSTER,
    "demo": DEMO,
    "docs": DOCS,
    "dev": DEV,
    "networks": DEV + GROUPS["networks"],
    "torch": DEV + GROUPS["torch"],
}


def entries(path: Path) -> list[str]:
    """Give the requirements of a lock file, each with its hashes on one line."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def pinned(name: str) -> dict[str, set[str]]:
    """Give the versions that a set pins, by package; a package may have one for each Python."""
    versions: dict[str, set[str]] = {}
    for entry in entries(ROOT / "requirements" / f"{name}.txt"):
        requirement = Requirement(entry.partition("--hash")[0])
        version = str(requirement.specifier).removeprefix("==")
        versions.setdefault(canonicalize_name(requirement.name), set()).add(version)
    return versions


def test_there_is_a_lock_for_every_set() -> None:
    assert [path.stem for path in LOCKS] == sorted(DECLARED)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    whole = re.compile(r"[\w.-]+==[\w.+!]+( ; .+?)?\s+(--hash=sha256:[0-9a-f]{64}\s*)+")
    assert [entry for entry in entries(path) if not whole.fullmatch(entry)] == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_no_lock_says_where_packages_come_from(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search("^-", text, re.MULTILINE)  # an option of pip


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("run", "cluster"),
        ("cluster", "dev"),
        ("run", "demo"),
        ("demo", "dev"),
        ("cluster", "docs"),
        ("docs", "dev"),
        ("dev", "networks"),
        ("dev", "torch"),
    ],
)
def test_a_set_grows_into_the_next_without_changing_a_version(smaller: str, larger: str) -> None:
    held, grown = pinned(smaller), pinned(larger)
    assert {name: grown.get(name) for name in held} == held


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_declared_dependency_is_locked_at_a_version_it_allows(name: str) -> None:
    versions = pinned(name)
    for text in DECLARED[name]:
        requirement = Requirement(text)
        locked = versions.get(canonicalize_name(requirement.name), set())
        assert locked, f"{text}: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in locked), f"{text}: run `make lock`"
