"""Rules on pipeline files in Python: kfp 1, calls that the current SDK does not accept, and what a program does on SIGTERM.

Each finding on kfp 1 has the current line, with the values of the file. ``run`` and ``compile`` give the same message when
such a file fails to load: :mod:`spotwright.kfp.kfp1` writes both.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TypeGuard

from spotwright.kfp.dsl_compiler import KUBERNETES, unknown_arguments
from spotwright.kfp.kfp1 import STILL_THERE, Kfp1Finding, kfp1_in
from spotwright.linter.python_source import (
    PythonFile,
    calls_named,
    components_in,
    in_components,
    keyword,
    name_of_call,
    pipelines_in,
)
from spotwright.linter.rule import Checks, Problem, Rename, Rule, Severity
from spotwright.linter.settings import Settings
from spotwright.model.not_judged import NotJudged, Subject

__all__ = [
    "KFP1_RULES",
    "PIPELINE_CALL_RULES",
    "PLAIN_PYTHON_RULES",
    "exit_on_sigterm",
    "preemptible_flag",
]


_MAKERS = frozenset(
    {
        "ContainerOp",
        "VolumeOp",
        "ResourceOp",
        "ComponentStore",
        "func_to_container_op",
        "create_component_from_func",
        "create_component_from_func_v2",
        "get_pipeline_conf",
        "InputPath",
        "OutputPath",
    }
)
_CALLED_WITH = frozenset(
    {
        "add_gpu_toleration",
        "use_preemptible_nodepool",
        "use_tpu",
        "use_gcp_secret",
        "use_k8s_secret",
        "use_aws_secret",
        "mount_pvc",
    }
)
_TODAY = frozenset({"kubernetes", "k8s"})


def _is_of_today(finding: Kfp1Finding, node: ast.AST, modules: frozenset[str]) -> bool:
    """Whether a name has its kfp 2 meaning: a function of ``kfp.kubernetes``, or an ``apply`` of another library."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = ast.unparse(node.value)
    if owner.rpartition(".")[2] in _TODAY or owner in modules:
        return True
    if finding.name == "apply":
        return "use_" not in finding.replacement and not finding.replacement.startswith(
            ("spot.", "kfp.kubernetes.use_", "kfp.kubernetes.mount")
        )
    return finding.name == "execution_options" and "caching_strategy" not in owner


def _aliases(file: PythonFile) -> frozenset[str]:
    """The names under which a file imports ``kfp.kubernetes``."""
    found = set()
    for node in file.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.asname for alias in node.names if alias.name == "kfp.kubernetes" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "kfp":
            found |= {alias.asname or alias.name for alias in node.names if alias.name == "kubernetes"}
    return frozenset(found)


def _check(wanted: Callable[[Kfp1Finding, ast.AST], bool]) -> Callable[[PythonFile, Settings], Iterator[Problem]]:
    """A check for some of the names of kfp 1."""

    def check(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
        known = _MAKERS | _CALLED_WITH
        is_fragment = any(isinstance(node, ast.Attribute) and node.attr in known for node in file.nodes)
        if not file.uses_kfp and not is_fragment and not _is_pipeline(file):
            return
        inside, modules = in_components(file), _aliases(file)
        found = [pair for pair in kfp1_in(file.tree) if id(pair[1]) not in inside and not _is_of_today(*pair, modules)]
        applied = {finding.line for finding, _ in found if finding.name == "apply"}
        for finding, node in found:
            is_said = finding.name in _CALLED_WITH and finding.line in applied  # by the apply around it
            if wanted(finding, node) and not is_said:
                yield Problem((), finding.message, f"Write {finding.replacement}.", line=finding.line)

    return check


def _is_pipeline(file: PythonFile) -> bool:
    """Whether a file has a function under ``@dsl.pipeline``, whatever it imports."""
    functions = (node for node in file.nodes if isinstance(node, ast.FunctionDef))
    return any("dsl.pipeline" in ast.unparse(one) for node in functions for one in node.decorator_list)


def _is_module(finding: Kfp1Finding, node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Import | ast.ImportFrom)
        and finding.name.startswith("kfp.")
        and finding.name not in STILL_THERE
    )


def _is_maker(finding: Kfp1Finding, _node: ast.AST) -> bool:
    return finding.name in _MAKERS


def _still_works(finding: Kfp1Finding) -> bool:
    """Whether the line loads with kfp 2: ``add_node_selector_constraint`` takes one argument there."""
    if finding.name == "add_node_selector_constraint":
        return "label_value=" not in finding.replacement
    return finding.name in STILL_THERE


def _is_method(finding: Kfp1Finding, node: ast.AST) -> bool:
    return not _is_module(finding, node) and not _is_maker(finding, node) and not _still_works(finding)


def _is_outdated(finding: Kfp1Finding, _node: ast.AST) -> bool:
    return _still_works(finding)


_HEAD = (
    "from kfp import dsl, kubernetes\n\n\n@dsl.component\ndef train(): ...\n\n\n"
    "@dsl.pipeline\ndef main():\n    task = train()\n"
)

KFP1_RULES = (
    Rule(
        id="kfp1-module",
        severity=Severity.ERROR,
        title="A module of kfp 1",
        why="kfp 2 has no kfp.gcp, kfp.aws, kfp.azure and kfp.onprem: the file does not load. Preemptible nodes, "
        "secrets and volumes are set by spot.prefer and by kfp.kubernetes.",
        fix="Write the current line.",
        fails="import kfp.gcp as gcp\nfrom kfp import dsl\n",
        passes="from kfp import dsl, kubernetes\n",
        checks=Checks(python=_check(_is_module)),
        source='KFP documentation, "Migrate to Kubeflow Pipelines v2"',
    ),
    Rule(
        id="kfp1-component",
        severity=Severity.ERROR,
        title="A component as kfp 1 made it",
        why="ContainerOp and func_to_container_op do not exist in kfp 2: the file does not load.",
        fix="Write a function under @dsl.component or @dsl.container_component.",
        fails="from kfp import dsl\n\n\ndef check_op():\n"
        '    return dsl.ContainerOp(name="check", image="tensorflow/tensorflow", command=["nvidia-smi"])\n',
        passes="from kfp import dsl\n\n\n@dsl.container_component\ndef check():\n"
        '    return dsl.ContainerSpec(image="tensorflow/tensorflow", command=["nvidia-smi"])\n',
        checks=Checks(python=_check(_is_maker)),
    ),
    Rule(
        id="kfp1-task-setting",
        severity=Severity.ERROR,
        title="A setting of a task, or an argument, as kfp 1 had it",
        why="Tolerations, affinity, volumes and secrets are functions of kfp.kubernetes now, which take the task; the "
        "methods of kfp 1 do not exist, and add_node_selector_constraint takes one argument, which is an accelerator.",
        fix="Write the current line.",
        fails=_HEAD.replace("dsl, kubernetes", "dsl\nfrom kubernetes.client import V1Toleration")
        + '    spot = V1Toleration(key="sku", operator="Equal", value="gpu", effect="NoSchedule")\n    '
        "task.add_toleration(spot)\n",
        passes=_HEAD
        + '    kubernetes.add_toleration(task, key="sku", operator="Equal", value="gpu", effect="NoSchedule")\n',
        checks=Checks(python=_check(_is_method)),
    ),
    Rule(
        id="kfp1-outdated",
        severity=Severity.WARNING,
        title="A name of kfp 1 that does not do what it did",
        why="The name still loads. A GPU limit without a type has no effect in some versions, and kfp.v2 goes with the "
        "next one.",
        fix="Write the current line.",
        fails=_HEAD + "    task.set_gpu_limit(1)\n",
        passes=_HEAD + '    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)\n',
        checks=Checks(python=_check(_is_outdated)),
    ),
)
"""The rules of this module."""


def _unknown(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    if not file.uses_kfp and not pipelines_in(file):
        return
    for found in unknown_arguments(file.tree):
        rename = Rename(found.line, found.column, found.argument, found.close) if found.close else None
        fix = f"Write {found.close}=." if found.close else "Remove the argument."
        yield Problem((), found.message, fix, line=found.line, rename=rename)


def _dropped_seconds(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    for call in calls_named(file, "add_toleration_json"):
        given = keyword(call, "toleration_json", 1)
        for node in ast.walk(given) if given is not None else ():
            if isinstance(node, ast.Constant) and node.value == "tolerationSeconds":
                text = "add_toleration_json drops tolerationSeconds in silence"
                yield Problem((), text, line=node.lineno)


def _settings_of_pipelines(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Settings for Kubernetes on a task that is a pipeline itself."""
    pipelines = pipelines_in(file)
    for function in pipelines.values():
        inner = {
            target.id: node.value.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Name) and node.value.func.id in pipelines
        }
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            task = keyword(call, "task", 0)
            if name.rpartition(".")[2] in KUBERNETES and isinstance(task, ast.Name) and task.id in inner:
                text = f"{name} is called on {task.id}, which is the pipeline {inner[task.id]} and no task with a pod"
                yield Problem((), text, line=call.lineno)


_ORCHESTRATORS = (
    "airflow",
    "dagster",
    "flytekit",
    "flyte",
    "hera",
    "luigi",
    "metaflow",
    "prefect",
    "tfx",
    "union",
    "zenml",
)


def _not_kfp(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """A file of another orchestrator, whose steps no rule looks at."""
    if file.uses_kfp or _is_pipeline(file):
        return
    for node in file.nodes:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found = next((one.partition(".")[0] for one in names if one.partition(".")[0] in _ORCHESTRATORS), "")
        if found:
            line = getattr(node, "lineno", 1)
            remedy = "lint the manifests that it makes"
            text = f"this is a file of {found} and has no pipeline of KFP, so its steps were not checked"
            left = NotJudged(
                Subject.OBJECT, PurePath(file.file).name, f"it is a file of {found}", remedy, file.file, line
            )
            yield Problem((), text, line=line, not_judged=left)
            return


PIPELINE_CALL_RULES = (
    Rule(
        id="other-orchestrator",
        severity=Severity.NOTE,
        title="A Python file of another orchestrator",
        why="The steps of Metaflow, Flyte, Airflow and others are not pipelines of KFP: no rule has looked at their pods.",
        fix="Lint the manifests that it makes: pods, Workflows.",
        fails="from metaflow import FlowSpec, step\n\n\nclass Train(FlowSpec): ...\n",
        passes=_HEAD,
        checks=Checks(python=_not_kfp),
    ),
    Rule(
        id="unknown-argument",
        severity=Severity.ERROR,
        title="An argument that a function of the SDK does not have",
        why="The call fails when the file is loaded (TypeError). backoff_dureation of a known guide is one of these.",
        fix="Write the argument that was meant.",
        fails=_HEAD + '    task.set_retry(num_retries=5, backoff_dureation="5m", backoff_max_duration="30d")\n',
        passes=_HEAD + '    task.set_retry(num_retries=5, backoff_duration="5m", backoff_max_duration="30d")\n',
        checks=Checks(python=_unknown),
        mends=True,
    ),
    Rule(
        id="toleration-seconds-dropped",
        severity=Severity.WARNING,
        title="add_toleration_json with tolerationSeconds",
        why="The SDK reads toleration_seconds from a dictionary and drops the Kubernetes name in silence, so the pod "
        "stays for ever.",
        fix="Use add_toleration(task, ..., toleration_seconds=N).",
        fails=_HEAD
        + "    kubernetes.add_toleration_json(\n"
        + '        task, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}\n    )\n',
        passes=_HEAD
        + "    kubernetes.add_toleration("
        + 'task, key="a", operator="Exists", effect="NoExecute", toleration_seconds=30)\n',
        checks=Checks(python=_dropped_seconds),
        source="kfp-kubernetes 2.17, toleration.py",
    ),
    Rule(
        id="settings-of-a-pipeline",
        severity=Severity.ERROR,
        title="Settings for Kubernetes on a task that is a pipeline",
        why="Only tasks with a pod have them; the SDK refuses the file (ValueError).",
        fix="Set them inside the inner pipeline, on its tasks.",
        fails=_HEAD.replace("def main", "def inner")
        + '\n\n@dsl.pipeline\ndef outer():\n    part = inner()\n    kubernetes.add_node_selector(part, "pool", '
        '"spot")\n',
        passes=_HEAD.replace("def main", "def inner")
        + '    kubernetes.add_node_selector(task, "pool", "spot")\n\n\n@dsl.pipeline\ndef outer():\n    inner()\n',
        checks=Checks(python=_settings_of_pipelines),
    ),
)
"""The rules of this module."""


_KNOWN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__annotations__", "__builtins__", "__spec__"}
_EXITS = ("sys.exit", "exit", "quit", "os._exit")


def exit_on_sigterm(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """A handler of SIGTERM that ends the program with an exit code below 128."""
    functions = {node.name: node for node in file.nodes if isinstance(node, ast.FunctionDef)}
    for call in calls_named(file, "signal"):
        number, handler = keyword(call, "signalnum", 0), keyword(call, "handler", 1)
        if number is None or handler is None or not ast.unparse(number).endswith("SIGTERM"):
            continue
        body: ast.AST | None = functions.get(handler.id) if isinstance(handler, ast.Name) else handler
        for node in ast.walk(body) if body is not None else ():
            code = _exit_code(node)
            if code is not None and code < 128:
                what = "success" if code == 0 else "an error of the code"
                text = f"the handler of SIGTERM exits with {code}, so an interruption counts as {what}"
                yield Problem((), text, line=getattr(node, "lineno", call.lineno))


def _exit_code(node: ast.AST) -> int | None:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _EXITS:
        return None
    if not node.args:
        return 0
    given = node.args[0]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def preemptible_flag(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Programs that make preemptible nodes with gcloud."""
    for node in file.nodes:
        if isinstance(node, ast.List | ast.Tuple):
            words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if "--preemptible" in words and "gcloud" in words:
                yield Problem(
                    (), "this makes nodes with gcloud --preemptible, which live a day at most", line=node.lineno
                )
        elif _is_command(node):
            yield Problem((), "this makes nodes with gcloud --preemptible, which live a day at most", line=node.lineno)


def _is_command(node: ast.AST) -> TypeGuard[ast.Constant]:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return "gcloud " in node.value and " --preemptible" in node.value


def _undefined(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Names that a function reads and the file defines nowhere."""
    if not file.uses_kfp or any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in file.nodes):
        return
    if any(isinstance(node, ast.Call) and ast.unparse(node.func) in ("exec", "globals", "vars") for node in file.nodes):
        return
    try:
        table = symtable.symtable(file.text, file.file, "exec")
    except (SyntaxError, ValueError, RecursionError):
        return  # what the parser takes and the compiler does not: a return outside of a function
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    defined |= (
        {one.get_name() for one in table.get_symbols() if one.is_namespace()} | _KNOWN | set(_declared_global(table))
    )
    missing = set(_read_globals(table)) - defined
    reported: set[str] = set()
    for node in file.nodes:
        if (
            isinstance(node, ast.Name)
            and node.id in missing
            and node.id not in reported
            and isinstance(node.ctx, ast.Load)
        ):
            reported.add(node.id)
            yield Problem((), f"{node.id} is defined nowhere in this file", line=node.lineno)


def _read_globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or is_module) and not (is_module and symbol.is_assigned()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _read_globals(child)


def _declared_global(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        yield from (one.get_name() for one in child.get_symbols() if one.is_declared_global() and one.is_assigned())
        yield from _declared_global(child)


_GIVEN = ("kfp", "typing", "__future__")
"""Modules that KFP imports above the function of a component."""


def _imports_outside(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Names that a component reads and only the file around it imports."""
    outside = {alias.asname or alias.name.partition(".")[0] for alias in _imported(file.tree.body)}
    for function in components_in(file) if outside else ():
        inner = [node for one in function.body for node in ast.walk(one)]
        bound = {alias.asname or alias.name.partition(".")[0] for alias in _imported(inner)} | _bound(function, inner)
        for name in sorted(outside - bound):
            read = next((node for node in inner if isinstance(node, ast.Name) and node.id == name), None)
            if read is not None:
                text = f"{function.name} reads {name}, which is imported outside of the function"
                yield Problem((), text, line=read.lineno)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[ast.alias]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias for alias in node.names if alias.name.partition(".")[0] not in _GIVEN)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in _GIVEN:
            yield from node.names


def _bound(function: ast.FunctionDef, inner: Sequence[ast.AST]) -> set[str]:
    """The names that a function or a function inside it gives a value."""
    names = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    names |= {node.id for node in inner if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return names | {node.name for node in inner if isinstance(node, ast.FunctionDef | ast.ClassDef)}


_LEARNS = ("backward", "partial_fit", "train_on_batch", "training_step")
_KEEPS = re.compile(r"checkpoint|ckpt|resum|restor", re.IGNORECASE)
_SAVES = re.compile(r"sav|dump|write|upload|commit|open", re.IGNORECASE)


def _unsaved_training(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    """Loops over epochs in a component that does not save while they run."""
    for function in components_in(file):
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While) and _trains(node)]
        if loops and not _KEEPS.search(ast.unparse(function)) and not _SAVES.search(ast.unparse(loops[0])):
            text = f"{function.name} trains in a loop without saving, so each interruption begins it again"
            yield Problem((), text, line=loops[0].lineno)


def _trains(loop: ast.For | ast.While) -> bool:
    """Whether a loop is over epochs, or one of its calls learns from data."""
    is_over_epochs = isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target).lower()
    names = {name_of_call(node) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    return is_over_epochs or not names.isdisjoint(_LEARNS)


_NUMPY = (
    "from kfp import dsl\n{outside}\n\n@dsl.component\ndef mean(of: list) -> float:\n{inside}    return np.mean(of)\n"
)
_EPOCHS = (
    "from kfp import dsl\n\n\n@dsl.component\ndef train(epochs: int, folder: str):\n    from pathlib import Path\n\n"
    "    state = 0\n    for epoch in range(epochs):\n        state += epoch\n{save}"
)

_FILE_HEAD = (
    "from kfp import dsl\n\n{constant}\n@dsl.component\ndef train(action: str): ...\n\n\n"
    "@dsl.pipeline\ndef main():\n    train(action=TRAIN_ACTION)\n"
)

PLAIN_PYTHON_RULES = (
    Rule(
        id="import-outside-component",
        severity=Severity.WARNING,
        title="A component that uses an import of the file around it",
        why="KFP takes the function alone into the pipeline, so the name is not defined there (NameError).",
        fix="Import it inside the function.",
        fails=_NUMPY.format(outside="import numpy as np\n", inside=""),
        passes=_NUMPY.format(outside="", inside="    import numpy as np\n\n"),
        checks=Checks(python=_imports_outside),
    ),
    Rule(
        id="training-not-saved",
        severity=Severity.NOTE,
        title="A training loop that does not save",
        why="An interruption takes the memory and the folder of a pod, so the next attempt trains from the first epoch.",
        fix="Save the state to a volume or an object store: docs/how-to/checkpoint.md.",
        fails=_EPOCHS.format(save=""),
        passes=_EPOCHS.format(save='        Path(folder, "checkpoint").write_text(str(state))\n'),
        checks=Checks(python=_unsaved_training),
    ),
    Rule(
        id="undefined-name",
        severity=Severity.WARNING,
        title="A name that the file does not define",
        why="The file fails when it is loaded (NameError). Pipelines that are copied from a guide often lack the "
        "constants of the rest.",
        fix="Define or import the name.",
        fails=_FILE_HEAD.format(constant=""),
        passes=_FILE_HEAD.format(constant='TRAIN_ACTION = "train"\n\n'),
        checks=Checks(python=_undefined),
    ),
)
"""The rules of this module."""
