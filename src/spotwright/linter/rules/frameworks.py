"""Rules on training frameworks that answer SIGTERM with exit code 0, which Jobs, Argo and Kubeflow Pipelines take for a success.

They read Python files, component sources in compiled pipelines, and programs and options in pods' commands.

Sources: transformers 5.24, ``trainer_jit_checkpoint.py`` (it saves and sets ``should_training_stop``, so ``train()`` returns);
lightning 2.6.6, ``pytorch/trainer/connectors/signal_connector.py`` and ``pytorch/utilities/exceptions.py``
(``SIGTERMException`` is a ``SystemExit`` without a code; Lightning-AI/pytorch-lightning#19916).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import dedent
from typing import Any

from spotwright.errors import InputError
from spotwright.linter.python_source import PythonFile, calls_named, parse_python
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Pipeline, Pods, items_of, mapping_at
from spotwright.placing.documents import Path

__all__ = ["RULES"]


Find = Callable[[PythonFile], Iterator[ast.AST]]
"""Finds where a program ends with 0 at SIGTERM."""

_JIT = "enable_jit_checkpoint"
_OPTION = re.compile(r"--enable[_-]jit[_-]checkpoint(?![\w-])[=\s]?\s{0,8}([A-Za-z0-9]{0,5})")
_IN_SHELL = re.compile(r"\benable_jit_checkpoint ?= ?True\b")
_OFF = frozenset({"false", "f", "no", "n", "0"})  # transformers 5.24, ``hf_argparser.string_to_bool``
_LONGEST_PROGRAM = 1_000_000  # characters of a program in a command that are read
_LIGHTNING = ("lightning", "pytorch_lightning")
_OUR_CALLBACK = "SpotCheckpoint"


def _jit(file: PythonFile) -> Iterator[ast.AST]:
    """Where a program switches Hugging Face's just-in-time checkpoint on: an argument, a key of a mapping, an attribute."""
    for node in file.nodes:
        if isinstance(node, ast.keyword) and node.arg == _JIT and _is_true(node.value):
            yield node.value
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (
                one for key, one in pairs if isinstance(key, ast.Constant) and key.value == _JIT and _is_true(one)
            )
        elif isinstance(node, ast.Assign) and _is_true(node.value):
            yield from (one for one in node.targets if isinstance(one, ast.Attribute) and one.attr == _JIT)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _lightning(file: PythonFile) -> Iterator[ast.AST]:
    """The trainers of Lightning in a program that fits a model and names no callback of ours."""
    if any(_names_ours(node) for node in file.nodes) or not any(calls_named(file, "fit")):
        return
    modules, trainers = _imports(file)
    for call in calls_named(file, "Trainer", *trainers):
        root = ast.unparse(call.func).partition(".")[0]
        if root in modules if isinstance(call.func, ast.Attribute) else root in trainers:
            yield call


def _names_ours(node: ast.AST) -> bool:
    names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
    return _OUR_CALLBACK in names or (isinstance(node, ast.Attribute) and node.attr == _OUR_CALLBACK)


def _imports(file: PythonFile) -> tuple[set[str], set[str]]:
    """The names under which a program has Lightning's modules, and its trainers."""
    modules: set[str] = set()
    trainers: set[str] = set()
    for node in file.nodes:
        if isinstance(node, ast.Import):
            modules |= {
                alias.asname or alias.name.partition(".")[0] for alias in node.names if _is_lightning(alias.name)
            }
        elif isinstance(node, ast.ImportFrom) and _is_lightning(node.module or ""):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "pytorch"}
            trainers |= {alias.asname or alias.name for alias in node.names if alias.name == "Trainer"}
    return modules, trainers


def _is_lightning(module: str) -> bool:
    return module.partition(".")[0] in _LIGHTNING


def _in_files(find: Find, text: str) -> Callable[[PythonFile, Settings], Iterator[Problem]]:
    def check(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
        for node in find(file):
            yield Problem((), text, line=getattr(node, "lineno", 1))

    return check


def _in_components(find: Find, text: str) -> Callable[[Pipeline, Settings], Iterator[Problem]]:
    """A check of the sources that the compiler has put into the commands of executors."""

    def check(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
        for label, executor in pipeline.executors.items():
            path = (0, "deploymentSpec", "executors", label, "container", "command")
            command = [str(word) for word in items_of(mapping_at(executor, "container").get("command"))]
            for place in _programs(command, path, find):
                yield Problem(place, f"in {pipeline.noun} {label} {text}")

    return check


def _programs(words: Sequence[str], path: Path, find: Find) -> Iterator[Path]:
    """The words that are programs in which something is found."""
    for index, word in enumerate(words):
        if ("Trainer" in word or _JIT in word) and len(word) <= _LONGEST_PROGRAM:
            try:
                file = parse_python(dedent(word), "")
            except InputError:  # a script of the shell
                continue
            if any(True for _ in find(file)):
                yield (*path, index)


def _in_commands(
    find: Find, text: str, option: re.Pattern[str] | None = None
) -> Callable[[Pods, Settings], Iterator[Problem]]:
    """A check of the programs, and of the options, in the commands of pods that may run on spot."""

    def check(pods: Pods, _settings: Settings) -> Iterator[Problem]:
        for container in pods.containers if pods.on_spot else ():
            for field in ("command", "args"):
                path = (*container.path, field)
                words = [str(word) for word in _listed(container.value.get(field))]
                found = list(_programs(words, path, find))
                if not found and option is not None and _has_option(" ".join(words)):
                    found = [path]
                for place in found:
                    yield Problem(place, f"in {pods.label} {text}")

    return check


def _listed(value: Any) -> Sequence[Any]:
    return [value] if isinstance(value, str) else items_of(value)


def _has_option(command: str) -> bool:
    """Whether a command switches the just-in-time checkpoint on, as an option or in a program inside a script of the shell."""
    command = command[:_LONGEST_PROGRAM]
    return any(found[1].lower() not in _OFF for found in _OPTION.finditer(command)) or bool(_IN_SHELL.search(command))


_JIT_TEXT = "enable_jit_checkpoint saves at SIGTERM and lets train() return, so the script goes on and exits with 0"
_LIGHTNING_TEXT = "Lightning's Trainer answers SIGTERM by leaving with exit code 0 without saving"
_SCRIPT = (
    "command: [python, -c, \"import lightning as L\\n{more}L.Trainer({given}).fit(net, data, ckpt_path='last')\\n\"]\n"
)

RULES = (
    Rule(
        id="jit-checkpoint-exits-with-0",
        severity=Severity.WARNING,
        title="Hugging Face's just-in-time checkpoint ends a half-done training with exit code 0",
        why="Jobs, Argo and Kubeflow Pipelines count exit code 0 as done: the rest is not trained, and the weights of the "
        "middle count as the result.",
        fix="Remove enable_jit_checkpoint, and give the Trainer callbacks=[SpotCallback()] of spotwright.checkpoint.huggingface, "
        "which saves and ends with 143.",
        fails=job(ON_SPOT, container="command: [torchrun, train.py, --enable_jit_checkpoint, 'True']\n"),
        passes=job(ON_SPOT, container="command: [torchrun, train.py]\n"),
        checks=Checks(
            pods=_in_commands(_jit, _JIT_TEXT, _OPTION),
            pipelines=_in_components(_jit, _JIT_TEXT),
            python=_in_files(_jit, _JIT_TEXT),
        ),
        source="transformers 5.24, trainer_jit_checkpoint.py; huggingface/transformers#41723",
    ),
    Rule(
        id="lightning-exits-with-0",
        severity=Severity.WARNING,
        title="Lightning leaves at SIGTERM with exit code 0",
        why="Jobs, Argo and Kubeflow Pipelines count exit code 0 as done: the rest is not trained. ModelCheckpoint saves at the "
        "signal only with save_on_exception, and the exit code stays 0 (Lightning 2.6.6).",
        fix="Give the Trainer plugins=[SpotCheckpointIO()] and callbacks=[SpotCheckpoint()] of spotwright.checkpoint.lightning, "
        "which save and end with 143.",
        fails=job(ON_SPOT, container=_SCRIPT.format(more="", given="")),
        passes=job(
            ON_SPOT,
            container=_SCRIPT.format(
                more="from spotwright.checkpoint.lightning import SpotCheckpoint, SpotCheckpointIO\\n",
                given="plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint()]",
            ),
        ),
        checks=Checks(
            pods=_in_commands(_lightning, _LIGHTNING_TEXT),
            pipelines=_in_components(_lightning, _LIGHTNING_TEXT),
            python=_in_files(_lightning, _LIGHTNING_TEXT),
        ),
        source="lightning 2.6.6, pytorch/utilities/exceptions.py; Lightning-AI/pytorch-lightning#19916",
    ),
)
"""The rules of this module."""
