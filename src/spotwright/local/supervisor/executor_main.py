"""Run the user's code in its process: call KFP's executor as ``python -m kfp.dsl.executor_main`` does.

Usually the process is a fork of an interpreter that has imported KFP's runtime. If a task sets a variable that is read only at
interpreter start, the process executes a fresh interpreter. Both paths end in :func:`execute`. The user's code sees the same as
in a plain run: exit code, traceback, ``__main__`` (which ``multiprocessing`` imports again in its workers), ``sys.argv`` and
``sys.path``. One difference is deliberate: a plain run logs its whole input, including secrets. A container component's command
is executed in place of the process. Artifacts that the code wrote to a ``custom_path`` are copied before it ends
(:mod:`custom_paths`).

Runs in the environment's interpreter, so it uses only the standard library and KFP's runtime.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib.util
import io
import json
import logging
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import cgroups, custom_paths, kernel
from . import private_folders as private

__all__ = ["HOOK_VARIABLE", "exec_command", "execute", "precompile", "run_executed", "run_forked", "warm_up"]


HOOK_VARIABLE = "_SPOTWRIGHT_HOOK"
"""Names a file of Python code that a task's process executes before the component, as ``__name__`` ``"task"``."""

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # the exit codes of a shell
_FORK_SERVER_ONLY = ("_KFP_RUNTIME",)  # variables that only the fork server needs, for the SDK


def exec_command(command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command, with ``env`` added to the environment. Never returns."""
    environment = {name: value for name, value in os.environ.items() if name not in _FORK_SERVER_ONLY} | dict(env)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 (the user's own command)
    except (OSError, ValueError) as error:
        print(f"spotwright: {command[0]}: {_reason(error)}", file=sys.stderr)  # noqa: T201
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return "its arguments are too long for this machine; pass a large value as an artifact"
    return str(error.strerror if isinstance(error, OSError) else error)


_COMPONENT = "ephemeral_component"  # the module name in the command of a lightweight component
_READ_AT_START = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_")  # by the interpreter, the loader, the C library
_READ_AT_START_EXACTLY = frozenset({"LANG", "LANGUAGE"})
# Not included: TZ (see tzset below), and variables that libraries read on import (OMP_NUM_THREADS), as none is preloaded.

_EMPTY = """
import kfp
from kfp import dsl
from kfp.dsl import *
from typing import *

def empty(text: str, number: int = 0) -> str:
    return text * number
"""
_BUFFERED = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})

_codes: dict[str, types.CodeType] = {}


def precompile(path: str) -> None:
    """Compile a component's file once, for all attempts that are forked from this process."""
    if path in _codes:
        return
    try:
        _codes[path] = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return  # the attempt fails with the same error, and its log gets the traceback


def warm_up() -> None:
    """Execute an empty component, so that every fork inherits what the executor loads and caches on first use."""
    from kfp.dsl import executor
    from kfp.dsl.types import artifact_types

    root = artifact_types.CONTAINER_TASK_ROOT
    component: dict[str, Any] = {}
    exec(compile(_EMPTY, "empty", "exec", dont_inherit=True), component)  # noqa: S102 (our own text)
    values = {"parameterValues": {"text": "", "number": 1}}
    executor.Executor({"inputs": values, "outputs": {"outputFile": os.devnull}}, component["empty"]).execute()
    artifact_types.CONTAINER_TASK_ROOT = root
    _imitate_executor_main()


def _imitate_executor_main() -> None:
    """Set ``__main__``, ``sys.argv`` and logging as ``python -m kfp.dsl.executor_main`` does."""
    from kfp.dsl import executor_main

    main = types.ModuleType("__main__")
    vars(main).update(vars(executor_main) | {"__name__": "__main__"})
    sys.modules["__main__"] = main  # workers of multiprocessing import it by its spec's name
    sys.argv[:] = [str(executor_main.__file__)]
    log_format = "[KFP Executor %(asctime)s %(levelname)s]: %(message)s"
    logging.basicConfig(stream=sys.stdout, format=log_format, level=logging.INFO)


def run_forked(
    order: dict[str, Any],
    *,
    parent: int,
    output: int,
    group: cgroups.Group | None,
    private_folders: private.PrivateFolders,
) -> NoReturn:
    """Run as the attempt's main process in a fork of its shim. Never returns."""
    status = 1
    try:
        kernel.die_with_parent(parent)
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        env = {**order["env"]}
        if order["private"] is not None:
            env |= private_folders.environment(env, order["directory"])
            private.drop_temporary_variables(env)
            private_folders.enter(order["host"], order["directory"])
            env |= {"HOSTNAME": order["host"]} if order["host"] else {}
        _redirect_output(output, private_folders.last_descriptor)
        if group is not None:
            _enter_cgroup(group)
        if order["mounts"] or order["files"] or order["fetches"]:
            _prepare_file_system(order)
        os.chdir(f"{order['directory']}/work")
        if order["hold"]:
            kernel.hold_for_tracer()
        if order.get("ended"):
            os._exit(_take_artifacts(order))
        if order["command"]:
            exec_command(_with_image(order), env)
        if _needs_fresh_interpreter(env):
            _execute_fresh(order, env)
        os.environ.update(env)
        if "TZ" in env:
            time.tzset()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.enable()
        status = execute(order)
    except BaseException:  # noqa: BLE001 (top level of a process)
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _take_artifacts(order: dict[str, Any]) -> int:
    """After the end of the attempt's command: copy the artifacts with custom paths. Returns the exit code."""
    if order["container"] is not None:
        return custom_paths.take_from_container(order["directory"], order["container"])
    return custom_paths.take_here(order["directory"])


def _with_image(order: dict[str, Any]) -> list[str]:
    """The attempt's command line; for a container's client, with the image pulled and its user set."""
    if order["container"] is None:
        return list(order["command"])
    from . import containers  # few attempts need this module; imported at the top it would slow every fork

    return containers.prepare_image(order["container"], order["command"])


def _prepare_file_system(order: dict[str, Any]) -> None:
    """Fetch remote inputs, then mount the attempt's volumes, or write the files that its container mounts."""
    import subprocess  # few attempts need these modules; imported at the top they would slow every fork

    from . import containers, mounts

    for command in order["fetches"]:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, check=False
        )  # if it fails, the user's code reports the missing file
    try:
        mounts.enter(order["mounts"], f"{order['directory']}/scratch/root")
        containers.write_files(order["files"])
    except OSError as error:
        targets = ", ".join([*(mount["target"] for mount in order["mounts"]), *order["files"]])
        print(f"spotwright: {targets}: cannot be mounted: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.stderr.flush()
        if order["files"] or not all(mount.get("optional") for mount in order["mounts"]):
            os._exit(126)


def run_executed(descriptor: int) -> NoReturn:
    """Run as the attempt's main process in a fresh interpreter; ``descriptor`` is a file with the order."""
    with open(descriptor, "rb") as file:
        order = json.load(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _imitate_executor_main()
    os._exit(execute(order))


def execute(order: dict[str, Any]) -> int:
    """Run the component and end as a plain interpreter does. Returns the exit code."""
    interrupted = False
    try:
        status = _call_and_report(order)
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (waits for threads, as an interpreter does at exit)
    except KeyboardInterrupt:
        status, interrupted = 130, True
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()  # noqa: SLF001 (os._exit, which follows, skips them)
    if not _flush_everything():
        status = 120  # as CPython's Py_RunMain does
    if status == 0:
        status = custom_paths.take_here(order["directory"])  # last: threads and exit handlers may write them
    if interrupted:  # an interpreter dies by the signal if the exception is not caught
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status


def _call_and_report(order: dict[str, Any]) -> int:
    try:
        _call(order)
    except SystemExit as error:
        return _exit_code(error.code)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (as the interpreter's top level does)
        error.__traceback__ = _without_own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _call(order: dict[str, Any]) -> None:
    from kfp.dsl import executor

    if HOOK_VARIABLE in os.environ:
        import runpy  # only a rehearsal needs it; imported at the top it would slow every fork

        runpy.run_path(os.environ[HOOK_VARIABLE], run_name="task")
    path, function, text = order["component"], order["function"], order["executor_input"]
    sys.argv += ["--component_module_path", path, "--function_to_execute", function, "--executor_input", text]
    sys.path[:0] = [os.path.dirname(path), os.getcwd()]  # noqa: PTH109, PTH120 (pathlib costs a small task a tenth of its time)
    module = _load(path)
    executor.Executor(json.loads(text), getattr(module, function)).execute()


def _load(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(_COMPONENT, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module can be loaded from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_COMPONENT] = module
    code = _codes.get(path)
    if code is None:
        spec.loader.exec_module(module)
    else:
        exec(code, vars(module))  # noqa: S102 (what the loader does)
    return module


def _exit_code(code: object) -> int:
    """The exit code that the interpreter derives from ``SystemExit.code``."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    print(code, file=sys.stderr)  # noqa: T201
    return 1


def _flush_everything() -> bool:
    """Flush open files, as an interpreter does at exit; return whether standard output and error could be flushed."""
    complete = True
    # get_objects() returns the attempt's objects only: the fork server has frozen all earlier ones
    files = [each for each in gc.get_objects() if type(each) in _BUFFERED]
    for stream in (*files, sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):  # a full disk, or a file whose descriptor was closed
            complete = complete and stream not in (sys.stdout, sys.stderr)
    return complete


def _without_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the first frame of KFP or of the user's code."""
    while traceback is not None and traceback.tb_next is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _redirect_output(output: int, last: int) -> None:
    """Let the attempt have its log and no other descriptor. ``last`` is the highest descriptor beside the log."""
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, max(null, output, last) + 1)


def _enter_cgroup(group: cgroups.Group) -> None:
    try:
        group.enter()
    except OSError as error:
        print(f"spotwright: no memory limit for this attempt: {error}", file=sys.stderr)  # noqa: T201


def _needs_fresh_interpreter(env: dict[str, str]) -> bool:
    return any(
        (name.startswith(_READ_AT_START) or name in _READ_AT_START_EXACTLY) and os.environ.get(name) != value
        for name, value in env.items()
    )


def _execute_fresh(order: dict[str, Any], env: dict[str, str]) -> NoReturn:
    """Execute a fresh interpreter. The order goes through an anonymous file, so that secrets are on no command line or disk."""
    descriptor = os.memfd_create("order", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(order).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    boot = Path(__file__).with_name("bootstrap.py")
    os.execve(sys.executable, [sys.executable, str(boot), "task", str(descriptor)], os.environ | env)  # noqa: S606
