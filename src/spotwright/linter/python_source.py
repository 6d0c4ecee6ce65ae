"""A pipeline file in Python under lint: its text and its syntax tree. It is parsed and never run.

Rules ask for a node's part of the file: the body of a component runs in a pod, all else when the file is loaded.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spotwright.clouds.providers import SPOT_LABELS, SPOT_TAINT_KEYS
from spotwright.errors import InputError

__all__ = [
    "PythonFile",
    "asks_for_spot",
    "calls_named",
    "components_code",
    "components_in",
    "in_components",
    "keyword",
    "name_of_call",
    "names_spot_label",
    "parse_python",
    "pipelines_in",
]


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
            warnings.simplefilter("ignore")  # about escapes in the user's strings: not findings
            tree = ast.parse(text, file)
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno or 1}: not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)
        raise InputError(f"{file}: not valid Python: {reason}") from error
    return PythonFile(file, text, tree, list(ast.walk(tree)))


_COMPONENTS = ("component", "container_component", "notebook_component")


def _decorators(node: ast.FunctionDef) -> list[str]:
    called = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return [ast.unparse(one).rpartition(".")[2] for one in called]


def in_components(file: PythonFile) -> set[int]:
    """The identities of the nodes inside components, which are a pod's code, not the pipeline's."""
    return {
        id(node) for function in components_in(file, *_COMPONENTS) for one in function.body for node in ast.walk(one)
    }


def components_in(file: PythonFile, *kinds: str) -> list[ast.FunctionDef]:
    """The functions under a decorator of these names, by default those whose body a pod executes."""
    wanted = kinds or ("component",)
    functions = [node for node in file.nodes if isinstance(node, ast.FunctionDef)]
    return [node for node in functions if any(name in wanted for name in _decorators(node))]


def components_code(file: PythonFile) -> dict[str, str]:
    """The source of each component of a file by its name, on one line: of a function, or of a text that is loaded as one."""
    found = {node.name: ast.get_source_segment(file.text, node) or "" for node in components_in(file, *_COMPONENTS)}
    for node in file.tree.body:
        value = node.value if isinstance(node, ast.Assign) else None
        if (
            isinstance(node, ast.Assign)
            and isinstance(value, ast.Call)
            and name_of_call(value) == "load_component_from_text"
        ):
            given = keyword(value, "text", 0)
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                found |= {one.id: given.value for one in node.targets if isinstance(one, ast.Name)}
    return {name: " ".join(text.split()) for name, text in found.items()}


def pipelines_in(file: PythonFile) -> dict[str, ast.FunctionDef]:
    """The functions under ``@dsl.pipeline``, by their names."""
    functions = (node for node in file.nodes if isinstance(node, ast.FunctionDef))
    return {node.name: node for node in functions if "pipeline" in _decorators(node)}


def name_of_call(call: ast.Call) -> str:
    """The last name of what is called: ``set_retry`` for ``task.set_retry(5)``."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def calls_named(file: PythonFile, *names: str) -> Iterator[ast.Call]:
    """The calls of these names."""
    return (call for call in file.calls if name_of_call(call) in names)


def keyword(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The argument of a call by its name, or by its position; ``None`` if it is not given."""
    if position is not None and len(call.args) > position:
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == name), None)


def asks_for_spot(file: PythonFile) -> bool:
    """Whether a file names spot nodes: a label or taint of a provider, a pool of kfp 1, or Spotwright."""
    if any(name == "spotwright" or name.startswith("spotwright.") for name in file.modules()):
        return True
    if not SPOT_TAINT_KEYS.isdisjoint(_texts(file.nodes)) or names_spot_label(file.nodes):
        return True
    return any(calls_named(file, "use_preemptible_nodepool"))


def names_spot_label(nodes: Iterable[ast.AST]) -> bool:
    """Whether a label of spot nodes is among the strings, with its value."""
    texts = _texts(nodes)
    return any(key in texts and not texts.isdisjoint(values) for key, values in SPOT_LABELS.items())


def _texts(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
