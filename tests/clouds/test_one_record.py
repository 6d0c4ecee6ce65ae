"""A provider is one record: whoever differs by provider asks it, so that a new provider is one record more and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.model.pools import GENERIC
from spotwright.pools.catalogue import TOOLS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "spotwright"
NAMES = frozenset(PROVIDERS)
MOST = 3
"""In how many files a provider may be named: its record, what writes its commands, and what reads its lists or its notices."""

BY_NAME = {"pools/catalogue.py": "its keys are names of tools, and two tools have the name of their provider"}
"""Files outside the clouds that look something up by a name which is also a provider's."""


def meant(node: ast.AST) -> str:
    """The name of a provider that a text, a variable or a member of an enumeration is, in whatever letters; empty for others."""
    word = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        word = node.value
    elif isinstance(node, ast.Name):
        word = node.id
    elif isinstance(node, ast.Attribute):
        word = node.attr
    elif isinstance(node, ast.alias):
        word = node.name
    name = word.strip("_").lower()
    return name if name in NAMES else ""


def named(tree: ast.AST) -> set[str]:
    """The providers that a module names."""
    return {meant(node) for node in ast.walk(tree)} - {""}


def told_apart(tree: ast.AST) -> list[str]:
    """The expressions of a module that tell providers apart by their names: comparisons, cases, and tables by name."""
    return [ast.unparse(node) for node in ast.walk(tree) if any(_asks_for_names(node))]


def _asks_for_names(node: ast.AST) -> Iterator[bool]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        yield any(
            meant(part) for side in sides for part in (side, *getattr(side, "elts", ()), *getattr(side, "keys", ()))
        )
        of_pools = [side for side in sides if isinstance(side, ast.Attribute) and side.attr == "provider"]
        yield 0 < len(of_pools) < len(sides)  # two pools of one provider may be told by it
    elif isinstance(node, ast.MatchValue):
        yield bool(meant(node.value))
    elif isinstance(node, ast.Dict):
        yield any(meant(key) for key in node.keys if key is not None)


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.AST]:
    texts = {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))
    }
    words = re.compile(
        "|".join(["provider", *NAMES]), re.IGNORECASE
    )  # nothing is found in a module without one of them
    return {path: ast.parse(text) for path, text in texts.items() if words.search(text)}


def test_a_provider_is_named_in_few_files(modules: dict[str, ast.AST]) -> None:
    found: dict[str, list[str]] = {name: [] for name in NAMES - {GENERIC}}
    for path, tree in modules.items():
        for name in named(tree) - {GENERIC}:
            found[name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > MOST} == {}


def test_nobody_but_the_clouds_tells_providers_apart_by_their_names(modules: dict[str, ast.AST]) -> None:
    others = {path: tree for path, tree in modules.items() if not path.startswith("clouds/")}
    found = {path: asked for path, tree in others.items() if (asked := told_apart(tree))}
    assert found.keys() == BY_NAME.keys(), "\n".join(f"{path}: {one}" for path in found for one in found[path])


@pytest.mark.parametrize(
    "source",
    [
        "pool.provider is Provider.AKS",
        "order['provider'] == 'gke'",
        "pool.provider not in (Provider.GKE, Provider.KARPENTER)",
        "pool.provider in {'eks'}",
        "pool.provider == GENERIC",
        "{Provider.EKS: 'AWS'}.get(pool.provider)",
        "match pool.provider:\n    case 'karpenter':\n        pass",
    ],
)
def test_a_question_for_a_name_would_be_found(source: str) -> None:
    assert told_apart(ast.parse(source))


@pytest.mark.parametrize("source", ["one.provider == pool.provider", "providers.of(pool).has_groups", "'aks' + name"])
def test_other_questions_are_none(source: str) -> None:
    assert told_apart(ast.parse(source)) == []


def test_a_name_would_be_found_in_every_form() -> None:
    assert named(ast.parse("from clouds import AKS\nProvider.GKE\n'eks'\n_KARPENTER = 1")) == {
        "aks",
        "gke",
        "eks",
        "karpenter",
    }
    assert named(ast.parse("'a pool of AKS'")) == set()


def test_every_tool_belongs_to_one_provider() -> None:
    assert sorted(tool for one in PROVIDERS.values() for tool in one.tools) == sorted(TOOLS)
