"""The user's code in a process of its own: KFP's executor called as ``python -m kfp.dsl.executor_main`` would.

The fork path takes an interpreter that has imported KFP's runtime already; what a task sets that an interpreter reads only
while it starts makes it execute a fresh one. Both end in :func:`execute`. Whatever a plain run would show is kept: the
exit code, the traceback, ``__main__`` (which ``multiprocessing`` imports again in its workers), ``sys.argv``, ``sys.path``.
One thing is left out: the plain run writes its whole input into the log, secrets and all.

Runs inside the environment's interpreter, so it imports nothing outside the standard library and KFP's runtime.
"""

from __future__ import annotations

import atexit
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
from pathlib import Path
from typing import Any, NoReturn

from . import cgroups, commands, kernel, syscalls

__all__ = ["compiled", "execute", "run_executed", "run_forked", "warm_up"]

_COMPONENT = "ephemeral_component"  # the name the compiled command of a lightweight component gives its module
_READ_AT_START = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_")  # by the interpreter, the loader, the C library
_READ_AT_START_EXACTLY = frozenset({"LANG", "LANGUAGE"})
# Not among them: TZ (tzset below), and what libraries read when they are loaded (OMP_NUM_THREADS), as none is preloaded.

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


def compiled(path: str) -> None:
    """Compile a component's file once for all attempts that will be forked from here."""
    if path in _codes:
        return
    try:
        _codes[path] = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return  # the attempt will meet the same error, with its traceback in its own log


def warm_up() -> None:
    """Run an empty component here, so that what the executor loads and caches at its first call is there for every fork."""
    from kfp.dsl import executor
    from kfp.dsl.types import artifact_types

    root = artifact_types.CONTAINER_TASK_ROOT
    component: dict[str, Any] = {}
    exec(compile(_EMPTY, "empty", "exec", dont_inherit=True), component)  # noqa: S102 (our own text)
    values = {"parameterValues": {"text": "", "number": 1}}
    executor.Executor({"inputs": values, "outputs": {"outputFile": os.devnull}}, component["empty"]).execute()
    artifact_types.CONTAINER_TASK_ROOT = root
    _pose()


def _pose() -> None:
    """Be ``python -m kfp.dsl.executor_main`` to whoever looks: its ``__main__``, its logging."""
    from kfp.dsl import executor_main

    main = types.ModuleType("__main__")
    vars(main).update(vars(executor_main) | {"__name__": "__main__"})
    sys.modules["__main__"] = main  # workers of multiprocessing import this by the name of its spec
    sys.argv[:] = [str(executor_main.__file__)]
    log_format = "[KFP Executor %(asctime)s %(levelname)s]: %(message)s"
    logging.basicConfig(stream=sys.stdout, format=log_format, level=logging.INFO)


def run_forked(order: dict[str, Any], *, parent: int, output: int, group: cgroups.Group | None) -> NoReturn:
    """Become the attempt's main process, from a fork of its shim, and never return."""
    status = 1
    try:
        kernel.die_with_parent(parent)
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _take_output(output)
        if group is not None:
            _enter(group)
        if order["mounts"] or order["files"] or order["fetches"]:
            _surround(order)
        os.chdir(f"{order['directory']}/work")
        env = {**order["env"]}
        if order["hold"]:
            syscalls.hold()
        if order["command"]:
            commands.become(_with_image(order), env)
        if _needs_fresh_interpreter(env):
            _execute_fresh(order, env)
        os.environ.update(env)
        if "TZ" in env:
            time.tzset()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.enable()
        status = execute(order)
    except BaseException:  # noqa: BLE001 (the top of a process: there is nobody above to tell)
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _with_image(order: dict[str, Any]) -> list[str]:
    """The command line of an attempt, settled with its image where it is the client of a container."""
    if order["container"] is None:
        return list(order["command"])
    from . import images  # few attempts need it, and every fork server would pay for it

    return images.ready(order["container"], order["command"])


def _surround(order: dict[str, Any]) -> None:
    """Fetch what the attempt reads, and mount what it has, or write what its container will mount."""
    import subprocess  # few attempts need these, and every fork server would pay for them

    from . import containers, mounts

    for command in order["fetches"]:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, check=False
        )  # where it fails, the code finds no file, and says so
    try:
        mounts.enter(order["mounts"], f"{order['directory']}/scratch/root")
        containers.write(order["files"])
    except OSError as error:
        targets = ", ".join([*(mount["target"] for mount in order["mounts"]), *order["files"]])
        print(f"spotwright: {targets}: cannot be mounted: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.stderr.flush()
        if order["files"] or not all(mount.get("optional") for mount in order["mounts"]):
            os._exit(126)


def run_executed(descriptor: int) -> NoReturn:
    """The same in a fresh interpreter, whose environment is set already; the order is what the descriptor holds."""
    with open(descriptor, "rb") as file:
        order = json.load(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _pose()
    os._exit(execute(order))


def execute(order: dict[str, Any]) -> int:
    """Run the component to the end a plain interpreter would have made of it. Returns the exit code."""
    interrupted = False
    try:
        status = _guarded(order)
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (waits for threads, as an ending interpreter does)
    except KeyboardInterrupt:
        status, interrupted = 130, True
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()  # noqa: SLF001 (os._exit, which follows, does not)
    if not _flush_everything():
        status = 120  # what CPython's Py_RunMain makes of it
    if interrupted:  # an interpreter ends by the signal itself where nobody catches the exception
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status


def _guarded(order: dict[str, Any]) -> int:
    try:
        _call(order)
    except SystemExit as error:
        return _exit_code(error.code)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (what the interpreter's own top level does)
        error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _call(order: dict[str, Any]) -> None:
    from kfp.dsl import executor

    path, function, text = order["component"], order["function"], order["executor_input"]
    sys.argv += ["--component_module_path", path, "--function_to_execute", function, "--executor_input", text]
    sys.path[:0] = [os.path.dirname(path), os.getcwd()]  # noqa: PTH109, PTH120 (pathlib costs a small task a tenth of its time)
    module = _load(path)
    executor.Executor(json.loads(text), getattr(module, function)).execute()
    if order["mounts"]:
        from .bringing import bring

        bring(Path(order["directory"], "out"))


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
    """What the interpreter makes of ``SystemExit.code``."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    print(code, file=sys.stderr)  # noqa: T201
    return 1


def _flush_everything() -> bool:
    """Write what open files still hold, as an interpreter does while it takes itself apart; whether all of it could be."""
    complete = True
    # only what the attempt made: the fork server froze everything that was there before
    files = [found for found in gc.get_objects() if type(found) in _BUFFERED]
    for stream in (*files, sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):  # a full disk, a file whose descriptor is gone
            complete = complete and stream not in (sys.stdout, sys.stderr)
    return complete


def _without_ours(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the first line on that is KFP's or the user's."""
    while traceback is not None and traceback.tb_next is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _take_output(output: int) -> None:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.closerange(3, max(nothing, output) + 1)


def _enter(group: cgroups.Group) -> None:
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
    """The order goes by a file that has no name: secrets are neither on a command line nor on a disk."""
    descriptor = os.memfd_create("order", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(order).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    boot = Path(__file__).with_name("boot.py")
    os.execve(sys.executable, [sys.executable, str(boot), "task", str(descriptor)], os.environ | env)  # noqa: S606
