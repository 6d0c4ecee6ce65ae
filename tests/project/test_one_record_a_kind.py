"""Knowledge of a kind is in its record: outside spotwright/kinds no table has kinds, and kinds are not compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from spotwright.kinds.kind import Reads, all_kinds

SOURCE = Path(__file__).resolve().parents[2] / "src" / "spotwright"
CORE = {"ConfigMap", "Pod", "Service"}
"""Kinds of Kubernetes' core that are not workloads by themselves; other things have these names too."""

NAMES = {kind.name for kind in all_kinds().values()} - CORE
GROUPS = {kind.group for kind in all_kinds().values() if "." in kind.group}
ALLOWED = {
    "clouds/node_labels.py": "the domain of labels that Ray puts on nodes",
    "kfp/compiled_files.py": "it tells a file of kfp 1 from one of kfp 2, and reads nothing of the Workflow in it",
    "linter/rules/fields.py": "at which level the API server of a group drops which fields, which no other module asks",
    "linter/rules/placement.py": "rules about one API alone",
    "linter/rules/retries.py": "rules about one API alone",
    "linter/rules/stateful.py": "a PodDefault is no workload",
    "placing/context.py": "a LocalQueue is no workload",
}
"""Files that name groups, each with its reason."""


def texts_in(node: ast.expr) -> set[str]:
    """The texts in an expression: itself, the items of a list, tuple or set, the keys of a dict."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return {text for part in parts if part is not None for text in texts_in(part)}


def compared_in(node: ast.AST) -> list[ast.expr]:
    """The sides of a comparison, and the arguments of ``startswith``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        return node.args
    return [node.left, *node.comparators] if isinstance(node, ast.Compare) else []


def found_in(source: Path) -> Iterator[tuple[str, int, str]]:
    """The tables of kinds and the comparisons with one, each with its file, its line and the names."""
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        if file.startswith("kinds/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            texts = set().union(*map(texts_in, compared_in(node)))
            names = texts & NAMES
            if isinstance(node, ast.Dict | ast.List | ast.Set | ast.Tuple):
                texts = texts_in(node)
                names = texts & NAMES if len(texts & NAMES) > 1 else names
            if file not in ALLOWED:
                names |= {text for text in texts if text.partition("/")[0] in GROUPS}
            if names:
                yield file, getattr(node, "lineno", 0), ", ".join(sorted(names))


def test_no_kind_is_known_outside_its_record() -> None:
    assert [f"{file}:{line}: {names}" for file, line, names in found_in(SOURCE)] == []


def test_tables_and_comparisons_are_found_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "job.py").write_text('TABLE = ("Job", "JobSet")\n')
    (tmp_path / "other.py").write_text(
        'A = {"Job": 1, "JobSet": 2}\nB = kind == "TFJob"\nC = kind in ("TFJob", "x")\nD = ["Job"]\nE = ("", "Job") != pair\n'
        'F = frozenset({"Workflow", "CronWorkflow"})\nG = group == "tekton.dev"\nH = version.startswith("ray.io/")\n'
        'I = ("trainer.kubeflow.org", "v1")\n'
    )

    assert sorted(line for _, line, _ in found_in(tmp_path)) == [1, 2, 3, 5, 6, 7, 8, 9]


def test_every_exception_is_still_one() -> None:
    texts = {file: (SOURCE / file).read_text(encoding="utf-8") for file in ALLOWED}
    assert [file for file, text in texts.items() if not any(f'"{group}' in text for group in GROUPS)] == []


def test_no_two_records_are_of_one_kind_and_no_two_runs_have_one_name() -> None:
    modules = [import_module(f"spotwright.kinds.{path.stem}") for path in (SOURCE / "kinds").glob("*.py")]
    records = [kind for module in modules for kind in getattr(module, "KINDS", ())]
    assert sorted((kind.group, kind.name) for kind in records) == list(all_kinds())
    runs = [kind.name for kind in records if kind.reads is Reads.RUNS]
    assert len(runs) == len(set(runs))
