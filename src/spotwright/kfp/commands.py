"""Pipelines of one task that executes a command: a rehearsed one, or a plain script that ``spotwright run`` is given.

A script is told from a file with a pipeline without executing it: importing it to look would already train.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spotwright.kfp.compiled import Compiled, file_digests

__all__ = ["COMMAND_TASK", "compiled_command", "compiled_script", "is_script"]


COMMAND_TASK = "command"
"""The name of the only task of a command's pipeline."""

_MAX_SCRIPT = 1_000_000  # bytes; a larger file is no script that somebody has written


def is_script(file: Path) -> bool:
    """Whether a ``.py`` file is a plain script: it never names ``kfp``, and does something when it is executed.

    A file that only imports, assigns and defines may have its pipeline from another module. A file that cannot be read or
    parsed is none.
    """
    try:
        source = file.read_bytes()[: _MAX_SCRIPT + 1] if file.suffix == ".py" else b""
        tree = ast.parse(source) if len(source) <= _MAX_SCRIPT else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return tree is not None and re.search(rb"\bkfp\b", source) is None and _acts(tree.body)


_PASSIVE = (
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Pass,
)


def _acts(statements: Iterable[ast.stmt]) -> bool:
    """Whether one of the statements does more than to define: a call, a loop, a block under ``__main__``."""
    for each in statements:
        if isinstance(each, ast.Try):
            handlers = [statement for handler in each.handlers for statement in handler.body]
            if _acts([*each.body, *handlers, *each.orelse, *each.finalbody]):
                return True
        elif isinstance(each, ast.If):
            if _acts([*each.body, *each.orelse]):
                return True
        elif not isinstance(each, _PASSIVE) and not _is_text(each):
            return True
    return False


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def compiled_script(file: Path, folder: Path) -> Compiled:
    """A pipeline whose only task executes a script in a folder, with this interpreter; what it writes there stays."""
    command = [sys.executable, str(file)]
    compiled = compiled_command(command, (), folder=str(folder))
    return Compiled(ir=compiled.ir, source=str(file), pipeline=compiled.pipeline, files=file_digests([str(file)]))


def compiled_command(command: Sequence[str], output_names: Sequence[str], *, folder: str = "") -> Compiled:
    """A pipeline whose only task executes the command and requires its named outputs.

    The command runs in its attempt's own folder, or in ``folder``, which is an argument of the task and so outlives its attempts.
    """
    source = _SOURCE.format(
        command=json.dumps(json.dumps(list(command))), outputs=json.dumps(json.dumps(list(output_names)))
    )
    inputs: dict[str, Any] = {"parameters": {"folder": {"parameterType": "STRING"}}}
    given: dict[str, Any] = {"parameters": {"folder": {"runtimeValue": {"constant": folder}}}}
    container = {
        "image": "python",
        "command": ["sh", "-ec", _PROGRAM, source],
        "args": ["--executor_input", "{{$}}", "--function_to_execute", "command"],
    }
    task: dict[str, Any] = {
        "componentRef": {"name": "comp-command"}, "taskInfo": {"name": COMMAND_TASK}, "cachingOptions": {},
        **({"inputs": given} if folder else {}),
    }  # fmt: skip
    ir = {
        "pipelineInfo": {"name": _pipeline_name(command)},
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.17.0",
        "components": {
            "comp-command": {"executorLabel": "exec-command", **({"inputDefinitions": inputs} if folder else {})}
        },
        "deploymentSpec": {"executors": {"exec-command": {"container": container}}},
        "root": {"dag": {"tasks": {COMMAND_TASK: task}}},
    }
    return Compiled(ir=ir, pipeline=_pipeline_name(command))


_PROGRAM = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path "$program_path/ephemeral_component.py" "$@"\n'
)
_SOURCE = """
def command(folder: str = ""):
    import json
    import os
    import signal
    import subprocess
    import sys

    told = []  # SIGTERM comes for the command alone, as to process 1 of a container: not for the processes that it starts
    signal.signal(signal.SIGTERM, lambda *_: told.append(signal.SIGTERM))
    environment = {{name: value for name, value in os.environ.items() if name != "_KFP_RUNTIME"}}
    environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # torchrun: ranks that it starts again meet
    try:
        process = subprocess.Popen(json.loads({command}), env=environment, cwd=folder or None, start_new_session=True)
    except OSError as error:
        print(f"{{error.filename}}: {{error.strerror}}")
        sys.stdout.flush()
        os._exit(127)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    if told:
        process.send_signal(signal.SIGTERM)
    code = process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # with process 1 of a container all others end
    except ProcessLookupError:
        pass  # it left none
    missing = [name for name in json.loads({outputs}) if not os.path.lexists(name)]
    if missing and not code:
        print(f"the command ended with 0 and did not write {{', '.join(missing)}}")
        code = 1  # and the line above is the reason
    sys.stdout.flush()
    if code:
        os._exit(code if code > 0 else 128 - code)
"""


def _pipeline_name(command: Sequence[str]) -> str:
    words = [Path(word).name for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith(".py")]  # what a launcher such as torchrun starts
    if len(words) > 1 and words[0].startswith("python"):
        words = words[1:]
    return next(iter(scripts or words), COMMAND_TASK)
