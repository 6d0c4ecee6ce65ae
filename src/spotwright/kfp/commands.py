"""Pipelines of one task that executes a command: a rehearsed one, or a plain script for ``spotwright run``.

A script is told from a pipeline file without executing it: importing it would already train.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spotwright.kfp.compiled import Compiled, file_digests

__all__ = ["COMMAND_TASK", "compiled_command", "compiled_script", "is_script", "script_behind"]


COMMAND_TASK = "command"
"""The name of the only task of a command's pipeline."""

_MAX_SCRIPT = 1_000_000  # bytes; a larger file is not a handwritten script


def is_script(file: Path) -> bool:
    """Whether a ``.py`` file is a plain script: it does not import ``kfp``, and does something when it is executed.

    A file that only imports, assigns and defines may import its pipeline. An unreadable or invalid file is not a script.
    """
    tree = _parsed(file, _MAX_SCRIPT)
    return tree is not None and not _names_kfp(tree) and _acts(tree.body)


def script_behind(file: Path) -> Path | None:
    """The script that importing a ``.py`` file would execute: the file itself, or one beside it that it imports.

    ``None`` if the file, or one beside it, imports ``kfp``: its pipeline exists only once it is imported. A value computed by
    a call counts as executed code here.
    """
    found, imports_kfp = _scripts_behind(file, set())
    return None if imports_kfp or not found else found[0]


def _scripts_behind(file: Path, seen: set[Path]) -> tuple[list[Path], bool]:
    """The scripts among a file and those beside it that it imports, and whether one of them imports ``kfp``."""
    seen.add(file)
    tree = _parsed(file)
    if tree is None:
        return [], False
    if _names_kfp(tree):
        return [], True
    found = [file] if _acts(tree.body, calls=True) else []
    for beside in (path for path in _imported_beside(tree, file.parent) if path not in seen):
        more, imports_kfp = _scripts_behind(beside, seen)
        if imports_kfp:
            return [], True
        found += more
    return found, False


def _imported_beside(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """The files in a folder that a module imports by their names."""
    for each in ast.walk(tree):
        names = [alias.name for alias in each.names] if isinstance(each, ast.Import | ast.ImportFrom) else []
        if isinstance(each, ast.ImportFrom) and each.module:
            names = [each.module]
        for name in names:
            top = folder / name.partition(".")[0]
            yield from (path for path in (top.with_name(f"{top.name}.py"), top / "__init__.py") if path.is_file())


def _parsed(file: Path, limit: int = -1) -> ast.Module | None:
    """The syntax of a ``.py`` file of at most ``limit`` bytes; -1: of any size. ``None`` if it cannot be read or parsed."""
    try:
        source = file.read_bytes() if file.suffix == ".py" else None
        return ast.parse(source) if source is not None and not 0 <= limit < len(source) else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


_DECORATORS = ("pipeline", "component", "container_component")


def _names_kfp(tree: ast.Module) -> bool:
    """Whether a module may have a pipeline: it imports ``kfp``, or uses its decorators, and names a pipeline or a component.

    Importing ``kfp`` only for its client, without a mention of pipelines, components or ``dsl``, does not count.
    """
    return _imports_kfp(tree) and (_names_pipeline(tree) or not _acts(tree.body, calls=True))


def _names_pipeline(tree: ast.Module) -> bool:
    """Whether a name, an attribute, an import or a definition of a module mentions a pipeline, a component or ``dsl``."""
    for each in ast.walk(tree):
        names = [getattr(each, field, None) for field in ("id", "attr", "name", "module", "asname")]
        if any(isinstance(name, str) and any(word in name.lower() for word in _DEFINES) for name in names):
            return True
    return False


_DEFINES = ("pipeline", "component", "dsl")


def _imports_kfp(tree: ast.Module) -> bool:
    """Whether a module imports ``kfp``, also by a string, or decorates a function like a pipeline or a component."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Import) and any(_is_kfp(alias.name) for alias in each.names):
            return True
        if isinstance(each, ast.ImportFrom) and not each.level and _is_kfp(each.module or ""):
            return True
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and _is_kfp(each.value):
            return True
        if isinstance(each, ast.FunctionDef) and any(map(_is_of_kfp, each.decorator_list)):
            return True
    return False


def _is_kfp(name: str) -> bool:
    return name == "kfp" or name.startswith("kfp.")


def _is_of_kfp(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _DECORATORS


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


def _acts(statements: Iterable[ast.stmt], *, calls: bool = False) -> bool:
    """Whether a statement does more than define: a call, a loop, a block under ``__main__``.

    ``calls``: a call whose value is assigned counts too.
    """
    for each in statements:
        if isinstance(each, ast.Try):
            handlers = [statement for handler in each.handlers for statement in handler.body]
            if _acts([*each.body, *handlers, *each.orelse, *each.finalbody], calls=calls):
                return True
        elif isinstance(each, ast.If):
            if _acts([*each.body, *each.orelse], calls=calls):
                return True
        elif (not isinstance(each, _PASSIVE) and not _is_text(each)) or (calls and _assigns_call(each)):
            return True
    return False


def _assigns_call(statement: ast.stmt) -> bool:
    is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign)
    return is_assignment and any(isinstance(each, ast.Call) for each in ast.walk(statement))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def compiled_script(file: Path, folder: Path) -> Compiled:
    """A pipeline whose only task executes a script in a folder, with this interpreter; its files there stay."""
    command = [sys.executable, str(file)]
    compiled = compiled_command(command, (), folder=str(folder))
    return Compiled(ir=compiled.ir, source=str(file), pipeline=compiled.pipeline, files=file_digests([str(file)]))


def compiled_command(command: Sequence[str], output_names: Sequence[str], *, folder: str = "") -> Compiled:
    """A pipeline whose only task executes the command and requires its named outputs.

    The command runs in the attempt's folder, or in ``folder``, an argument of the task that outlives its attempts.
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
    refused = environment.pop("SPOTWRIGHT_NO_PID_NAMESPACE", "")  # a file that says that the kernel does not allow it
    begin = None
    if refused:
        import ctypes

        library, user, group = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()

        def refuse(number):
            with open(refused, "w") as file:
                file.write(os.strerror(number))

        def enter():  # CLONE_NEWPID, see unshare(2); with CLONE_NEWUSER, as a user without privileges
            if library.unshare(0x20000000):
                if library.unshare(0x30000000):
                    raise OSError(ctypes.get_errno(), "unshare")
                maps = {{"setgroups": "deny", "uid_map": f"{{user}} {{user}} 1", "gid_map": f"{{group}} {{group}} 1"}}
                for name, text in maps.items():
                    with open(f"/proc/self/{{name}}", "w") as file:
                        file.write(text)

        def begin():  # in process 1, which sees the processes of its own namespace; the boot id stays that of the attempt
            boot_id, copy = "/proc/sys/kernel/random/boot_id", f"{{refused}}.boot_id"
            with open(boot_id) as attempt, open(copy, "w") as file:
                file.write(attempt.read())
            library.unshare(0x20000)
            library.mount(b"none", b"/", None, 16384 | 1 << 18, None)
            if library.mount(b"proc", b"/proc", b"proc", 14, None) or library.mount(
                copy.encode(), boot_id.encode(), None, 4096, None
            ):
                refuse(ctypes.get_errno())

        probe = os.fork()  # tries it, because there is no way back
        if not probe:
            try:
                enter()
            except OSError as error:
                os._exit(error.errno)
            os._exit(0)
        number = os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1])
        if number:
            begin = refuse(number)
        else:
            enter()
    try:
        process = subprocess.Popen(
            json.loads({command}), env=environment, cwd=folder or None, start_new_session=True, preexec_fn=begin
        )
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
