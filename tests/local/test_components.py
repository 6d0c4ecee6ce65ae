"""A component in a forked process behaves as in a plain run of the SDK's executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, component

PACKAGES = Path(sysconfig.get_path("purelib"))

ENDINGS = {
    "returns": "return 'x'",
    "exits with a number": "import sys; sys.exit(3)",
    "exits with nothing": "import sys; sys.exit()",
    "exits with zero": "import sys; sys.exit(0)",
    "exits with a text": "import sys; sys.exit('gone wrong')",
    "exits with a negative number": "import sys; sys.exit(-1)",
    "exits with a large number": "import sys; sys.exit(257)",
    "exits with a huge number": "import sys; sys.exit(2**70)",
    "exits with true": "import sys; sys.exit(True)",
    "raises": "raise RuntimeError('no')",
    "raises what is no exception": "raise BaseException('no')",
    "leaves at once": "import os; os._exit(7)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "ends by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "is interrupted": "raise KeyboardInterrupt",
    "reads input that has ended": "input()",
    "returns what it must not": "return 3",
    "recurses without end": "work()",
    "leaves a handler for the end": "import atexit; atexit.register(print, 'at the end')",
    "fails in a handler for the end": "import atexit; atexit.register(lambda: 1 / 0)",
    "leaves a thread": "import threading, time\n    threading.Timer(0.1, print, ['thread']).start()",
    "leaves a file open": "global file; file = open('left.txt', 'w'); file.write('kept')",
    "has no memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28)); bytearray(2**30)",
    "closes its output": "import sys; sys.stdout.close()",
    "cannot write its output": "import os, sys; sys.stdout.write('x'); os.close(1)",
}


def plain_run(folder: Path, source: str) -> tuple[int, str]:
    """Exit code (negative: signal) and output of the SDK's own command line."""
    (folder / "ephemeral_component.py").write_text(component(source))
    (folder / "work").mkdir()
    given = {"inputs": {}, "outputs": {"outputFile": str(folder / "out" / "executor_output.json")}}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "kfp.dsl.executor_main"),
            *("--component_module_path", str(folder / "ephemeral_component.py")),
            *("--function_to_execute", "work", "--executor_input", json.dumps(given)),
        ],
        env=os.environ | {"_KFP_RUNTIME": "true"},
        cwd=folder / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # the plain run logs a last message, which fails if the component has closed its output
    return ended.returncode, ended.stdout.partition("--- Logging error ---")[0]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_component_ends_as_in_a_plain_run(harness: ProcessHarness, tmp_path: Path, ending: str) -> None:
    source = f"def work() -> str:\n    {ENDINGS[ending]}\n"
    record = harness.play(source)
    plain = tmp_path / "plain"
    plain.mkdir()
    code, output = plain_run(plain, source)
    ours = -record.signal if record.signal is not None else record.exit_code
    assert ours == code, harness.log()
    assert (harness.directory() / "out" / "executor_output.json").exists() == (
        plain / "out" / "executor_output.json"
    ).exists()
    # the last line: the message of an exception, what a handler or a thread printed
    messages = [line for line in output.splitlines() if not line.startswith(("[KFP Executor", " ", "{", "}"))]
    assert harness.log().splitlines()[-1:] == messages[-1:]


def test_open_files_are_flushed_at_the_end(harness: ProcessHarness) -> None:
    harness.play("def work():\n    global file\n    file = open('left.txt', 'w')\n    file.write('kept')\n")
    assert (harness.directory() / "work" / "left.txt").read_text() == "kept"


def test_a_component_receives_parameters_and_returns_a_result(harness: ProcessHarness) -> None:
    assert harness.play("def work(a: int, b: str) -> str:\n    return b * a\n", {"a": 3, "b": "x"}).exit_code == 0
    assert harness.output() == "xxx"


def test_an_input_of_five_megabytes_reaches_the_component(harness: ProcessHarness) -> None:
    text = "äöü\n" * (5 * 2**20 // 4)
    harness.play("def work(text: str) -> int:\n    return len(text)\n", {"text": text})
    assert harness.output() == len(text)


def test_a_traceback_begins_with_the_executor_or_the_component(harness: ProcessHarness) -> None:
    harness.play("def work():\n    raise RuntimeError('no')\n")
    first = harness.log().splitlines()[1].partition('"')[2].partition('"')[0]  # File "...", line 1, in ...
    assert Path(first).is_relative_to(PACKAGES / "kfp")


def test_source_that_does_not_compile_fails_with_its_own_traceback(harness: ProcessHarness) -> None:
    assert harness.play("def work(:\n").exit_code == 1
    assert "SyntaxError" in harness.log()
    assert "ephemeral_component.py" in harness.log()


def test_logging_has_the_format_of_the_sdk(harness: ProcessHarness) -> None:
    harness.play("import logging\ndef work():\n    logging.info('hello')\n")
    assert harness.log().startswith("[KFP Executor ")
    assert harness.log().endswith("INFO]: hello\n")


def test_the_input_is_not_logged(harness: ProcessHarness) -> None:
    harness.play("def work(secret: str):\n    pass\n", {"secret": "hunter2"})
    assert harness.log() == ""


def test_random_numbers_differ_between_tasks(harness: ProcessHarness) -> None:
    source = "import random\ndef work() -> float:\n    return random.random()\n"
    drawn = []
    for name in ("one", "two", "three"):
        harness.play(source, name=name)
        drawn.append(harness.output(name))
    assert len(set(drawn)) == 3


def test_no_library_with_forked_state_is_preloaded(harness: ProcessHarness) -> None:
    harness.play("import sys\ndef work() -> list:\n    return sorted({m.split('.')[0] for m in sys.modules})\n")
    assert not {"numpy", "sklearn", "pandas", "google", "yaml", "multiprocessing", "random"} & set(harness.output())


def test_user_code_cannot_import_the_supervisors_modules_by_short_names(harness: ProcessHarness) -> None:
    harness.play(
        """
        import sys
        def work() -> str:
            try:
                import shim
            except ImportError:
                return repr([path for path in sys.path if path.endswith("local")])
            return "found"
        """
    )
    assert harness.output() == "[]"


def test_the_working_directory_belongs_to_the_attempt(harness: ProcessHarness) -> None:
    harness.play("import os\ndef work() -> str:\n    return os.getcwd()\n")
    assert harness.output() == str(harness.directory() / "work")


def test_inspect_finds_the_source_of_the_component(harness: ProcessHarness) -> None:
    harness.play("import inspect\ndef work() -> str:\n    return inspect.getsource(work)\n")
    assert harness.output() == "def work() -> str:\n    return inspect.getsource(work)\n"


def test_sys_argv_is_that_of_the_executor(harness: ProcessHarness) -> None:
    harness.play(
        "import sys\ndef work() -> list:\n    return sys.argv[1::2] + [sys.modules['__main__'].__spec__.name]\n"
    )
    options = ["--component_module_path", "--function_to_execute", "--executor_input"]
    assert harness.output() == [*options, "kfp.dsl.executor_main"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_works(harness: ProcessHarness, method: str) -> None:
    harness.play(
        f"""
        import multiprocessing
        def double(x):
            return 2 * x
        def work() -> list:
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                return pool.map(double, range(4))
        """
    )
    assert harness.output() == [0, 2, 4, 6]


def test_the_log_is_live_line_by_line(harness: ProcessHarness) -> None:
    key = harness.start(
        "import time\ndef work():\n    print('first')\n    open('printed', 'w').write('1\\n')\n    time.sleep(600)\n"
    )
    harness.number("printed")
    assert harness.log() == "first\n"
    harness.processes.kill(key)
    assert harness.end(key).signal == 9
    assert harness.log() == "first\n"
