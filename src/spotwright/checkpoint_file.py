"""Make the checkpoint library as one small file, for Python programs in images without Spotwright.

The file is a zip that Python imports from (``PYTHONPATH=spotwright_checkpoint.pyz``): :mod:`spotwright.checkpoint` and whatever
it imports, read from this package. It needs Python 3.11 and the standard library. Docstrings and comments are left out, but
lines keep their numbers for tracebacks. The same versions of Spotwright and zlib make the same bytes.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import io
import re
import tokenize
import zipfile
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

__all__ = [
    "FILE_NAME",
    "PYTHON",
    "checkpoint_file",
    "config_map",
    "config_map_name",
    "imported_names",
    "imports_spotwright",
    "library_modules",
    "names_not_in_file",
    "uses_pytorch",
]

FILE_NAME = "spotwright_checkpoint.pyz"

PYTHON = (3, 11)
"""The oldest Python that imports the file and the package."""

_PACKAGE = Path(__file__).parent
_MAIN = (
    "from spotwright.version import __version__\n"
    "print(f'spotwright.checkpoint {__version__}: put this file on PYTHONPATH and import spotwright.checkpoint')\n"
)
_OTHERS = (
    "\n__path__ += [f'{each}/spotwright' for each in __import__('sys').path if each and not each.endswith('.pyz')]\n"
)
"""The end of ``spotwright/__init__.py`` in the file: an image that has Spotwright installed keeps its other modules."""
_WHEN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_PUBLIC_NAME = "SpotwrightError"  # the one public name of spotwright/__init__.py whose module is in the file
_FRAMEWORKS = frozenset({"torch", "transformers", "accelerate", "lightning", "pytorch_lightning"})
_PYTORCH = re.compile(rf"\b(?:{'|'.join(sorted(_FRAMEWORKS))}|dcp|huggingface|group)\b")
_IMPORT = re.compile(r"\b(?:from\s+|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*)spotwright\b(?!\s*=)")


def imports_spotwright(source: str) -> bool:
    """Whether a program's text visibly imports Spotwright, also in a notebook or a script inside a command."""
    return "spotwright" in source and _IMPORT.search(source) is not None


def imported_names(source: str) -> frozenset[str]:
    """The modules and names of Spotwright that a Python program uses, such as ``spotwright.checkpoint`` and ``spotwright.run``.

    Empty for invalid Python.
    """
    if "spotwright" not in source:
        return frozenset()
    try:
        nodes = list(_running(ast.parse(source)))
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return frozenset()
    names: set[str] = set()
    aliases: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            aliases |= {alias.asname or "spotwright" for alias in node.names if alias.name == "spotwright"}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    names |= {
        f"spotwright.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
    }
    return frozenset(name for name in names if name.partition(".")[0] == "spotwright")


def names_not_in_file(names: Iterable[str]) -> list[str]:
    """The names that a pod with only the file cannot import: other modules of Spotwright, and its public functions."""
    held = frozenset(zipfile.ZipFile(io.BytesIO(checkpoint_file())).namelist())
    return sorted(name for name in names if not _is_in_file(name.split(".")[1:], held))


def _is_in_file(parts: list[str], held: AbstractSet[str]) -> bool:
    for depth in range(1, len(parts) + 1):
        if any(_in_file(path) not in held for path in _files_of(parts[:depth])):
            return False
    if not parts or any(_files_of(parts[:1])):
        return True
    return parts[0] == _PUBLIC_NAME or parts[0].startswith("__")


def uses_pytorch(source: str) -> bool:
    """Whether a program's text names PyTorch, a framework on top of it, or a process group, and so needs their modules."""
    return _PYTORCH.search(source) is not None


@functools.cache
def checkpoint_file(*, for_pytorch: bool = True, compressed: bool = True) -> bytes:
    """The content of the file; for programs without PyTorch (:func:`uses_pytorch`), without its modules.

    A file without individually ``compressed`` modules is smaller once compressed whole.
    """
    content = io.BytesIO()
    left_out = frozenset() if for_pytorch else _for_pytorch_only()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in [("__main__.py", _MAIN), *(each for each in _modules() if each[0] not in left_out)]:
            entry = zipfile.ZipInfo(name, _WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, compresslevel=9)
    return content.getvalue()


@functools.cache
def config_map_name(digest: str = "") -> str:
    """The name of that ConfigMap; ``digest`` is as for :func:`config_map`."""
    return f"spotwright-checkpoint-{(digest or hashlib.sha256(checkpoint_file()).hexdigest())[:10]}"


def config_map(digest: str = "", namespace: str | None = None) -> dict[str, Any]:
    """A ConfigMap with the file. Its name ends with the first ten characters of ``digest``, by default the file's.

    So each version of the library has its own ConfigMap, and a mounted one never changes.
    """
    content, name = checkpoint_file(), config_map_name(digest)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name} if namespace is None else {"name": name, "namespace": namespace},
        "immutable": True,
        "binaryData": {FILE_NAME: base64.b64encode(content).decode()},
    }


def library_modules() -> list[Path]:
    """The modules of the library, by their path in the package: ``checkpoint``, and what it imports of Spotwright."""
    waiting = [path.relative_to(_PACKAGE) for path in (_PACKAGE / "checkpoint").rglob("*.py")]
    known: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in known:
            continue
        known.add(path)
        waiting += [Path(*above, "__init__.py") for above in _packages_around(path)]
        waiting += _imported(ast.parse((_PACKAGE / path).read_text(encoding="utf-8")))
    return sorted(known)


def _modules() -> Iterator[tuple[str, str]]:
    """The modules by their path in the file, with their texts there."""
    texts = {
        _in_file(path): _without_comments((_PACKAGE / path).read_text(encoding="utf-8")) for path in library_modules()
    }
    texts["spotwright/__init__.py"] += _OTHERS
    yield from sorted(texts.items())


def _for_pytorch_only() -> frozenset[str]:
    """The modules, by their path in the file, that cannot be imported without PyTorch, and those that only they import."""
    trees = {name: ast.parse(text) for name, text in _modules()}
    first = {name: set(_imported_first(tree)) for name, tree in trees.items()}
    found: set[str] = {name for name, names in first.items() if not names.isdisjoint(_FRAMEWORKS)}
    while more := {name for name, names in first.items() if name not in found and not names.isdisjoint(found)}:
        found |= more
    by_others = {_in_file(path) for name, tree in trees.items() if name not in found for path in _imported(tree)}
    by_them = {_in_file(path) for name in found for path in _imported(trees[name])}
    return frozenset(found | (by_them - by_others))


def _in_file(path: Path) -> str:
    return f"spotwright/{path.as_posix()}"


def _imported_first(tree: ast.AST) -> Iterator[str]:
    """A module's imports outside functions: packages by name, modules of Spotwright by their path in the file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = ast.Module([node], [])
            yield from (_in_file(path) for path in _imported(module) if path.name != "__init__.py")
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (name.partition(".")[0] for name in names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from _imported_first(node)


def _packages_around(path: Path) -> Iterator[tuple[str, ...]]:
    parts = path.parts[:-1]
    return (parts[:depth] for depth in range(len(parts) + 1))


def _imported(tree: ast.Module) -> Iterator[Path]:
    """The modules of Spotwright that a module imports when it runs, also inside functions."""
    for node in _running(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.startswith("spotwright."):
                yield from _files_of(name.split(".")[1:])


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree without those that only type checkers see."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _running(child)


def _files_of(parts: list[str]) -> Iterator[Path]:
    for path in (Path(*parts).with_suffix(".py"), Path(*parts, "__init__.py")):
        if (_PACKAGE / path).is_file():
            yield path


def _without_comments(text: str) -> str:
    """A module's text with empty docstrings and without comments; each line keeps its number."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [lines[first][: node.col_offset] + '""', *[""] * (last - first - 1)]
    return "\n".join(lines) + "\n"
