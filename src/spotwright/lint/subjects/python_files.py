"""A pipeline file in Python under lint: its text and its syntax tree. It is parsed and never run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

from spotwright.errors import InputError

__all__ = ["PythonFile", "parse_python"]


@dataclass(frozen=True, slots=True, eq=False)
class PythonFile:
    """A file with its tree. ``nodes`` are all nodes of the tree, ``calls`` those that call something."""

    file: str
    text: str
    tree: ast.Module
    nodes: list[ast.AST] = field(default_factory=list, repr=False)

    @property
    def calls(self) -> list[ast.Call]:
        """Every call in the file."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @property
    def uses_kfp(self) -> bool:
        """Whether the file imports ``kfp`` or one of its parts."""
        return any(name == "kfp" or name.startswith("kfp.") for name in self.modules())

    def modules(self) -> list[str]:
        """The names of the modules that the file imports."""
        names = [alias.name for node in self.nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in self.nodes if isinstance(node, ast.ImportFrom)]
        return names


def parse_python(text: str, file: str) -> PythonFile:
    """Parse a file. Raises :class:`InputError` with the line where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's escapes in texts: they are no finding
            tree = ast.parse(text, file)
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno or 1}: not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)
        raise InputError(f"{file}: not valid Python: {reason}") from error
    return PythonFile(file, text, tree, list(ast.walk(tree)))
