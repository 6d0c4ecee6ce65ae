"""A component in a forked process behaves as in a plain run of the SDK's executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.local.lab import Lab, component

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
    # the plain run logs its own last words, which fail where the component has closed its output
    return ended.returncode, ended.stdout.partition("--- Logging error ---")[0]


@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_as_in_a_plain_run(lab: Lab, tmp_path: Path, ending: str) -> None:
    source = f"def work() -> str:\n    {ENDINGS[ending]}\n"
    record = lab.play(source)
    plain = tmp_path / "plain"
    plain.mkdir()
    code, output = plain_run(plain, source)
    ours = -record.signal if record.signal is not None else record.exit_code
    assert ours == code, lab.log()
    assert (lab.directory() / "out" / "executor_output.json").exists() == (
        plain / "out" / "executor_output.json"
    ).exists()
    # the last line: the message of an exception, what a handler or a thread printed
    said = [line for line in output.splitlines() if not line.startswith(("[KFP Executor", " ", "{", "}"))]
    assert lab.log().splitlines()[-1:] == said[-1:]


def test_what_a_component_leaves_unwritten_is_written_at_its_end(lab: Lab) -> None:
    lab.play("def work():\n    global file\n    file = open('left.txt', 'w')\n    file.write('kept')\n")
    assert (lab.directory() / "work" / "left.txt").read_text() == "kept"


def test_parameters_come_in_and_the_result_goes_out(lab: Lab) -> None:
    assert lab.play("def work(a: int, b: str) -> str:\n    return b * a\n", {"a": 3, "b": "x"}).exit_code == 0
    assert lab.output() == "xxx"


def test_an_input_of_five_megabytes_passes(lab: Lab) -> None:
    text = "äöü\n" * (5 * 2**20 // 4)
    lab.play("def work(text: str) -> int:\n    return len(text)\n", {"text": text})
    assert lab.output() == len(text)


def test_a_traceback_begins_with_the_executor_or_the_component(lab: Lab) -> None:
    lab.play("def work():\n    raise RuntimeError('no')\n")
    first = lab.log().splitlines()[1]
    assert "spotwright" not in first
    assert "kfp" in first


def test_source_that_does_not_compile_fails_with_its_own_traceback(lab: Lab) -> None:
    assert lab.play("def work(:\n").exit_code == 1
    assert "SyntaxError" in lab.log()
    assert "ephemeral_component.py" in lab.log()


def test_logging_looks_as_in_the_sdk(lab: Lab) -> None:
    lab.play("import logging\ndef work():\n    logging.info('hello')\n")
    assert lab.log().startswith("[KFP Executor ")
    assert lab.log().endswith("INFO]: hello\n")


def test_the_input_is_not_written_into_the_log(lab: Lab) -> None:
    lab.play("def work(secret: str):\n    pass\n", {"secret": "hunter2"})
    assert lab.log() == ""


def test_random_numbers_differ_between_tasks(lab: Lab) -> None:
    source = "import random\ndef work() -> float:\n    return random.random()\n"
    drawn = []
    for name in ("one", "two", "three"):
        lab.play(source, name=name)
        drawn.append(lab.output(name))
    assert len(set(drawn)) == 3


def test_nothing_that_would_repeat_random_numbers_or_hang_is_loaded_before(lab: Lab) -> None:
    lab.play("import sys\ndef work() -> list:\n    return sorted({m.split('.')[0] for m in sys.modules})\n")
    assert not {"numpy", "sklearn", "pandas", "google", "yaml", "multiprocessing", "random"} & set(lab.output())


def test_user_code_sees_neither_our_modules_nor_our_folder(lab: Lab) -> None:
    lab.play(
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
    assert lab.output() == "[]"


def test_the_working_directory_is_the_attempts_own(lab: Lab) -> None:
    lab.play("import os\ndef work() -> str:\n    return os.getcwd()\n")
    assert lab.output() == str(lab.directory() / "work")


def test_the_component_is_a_file_that_can_be_inspected(lab: Lab) -> None:
    lab.play("import inspect\ndef work() -> str:\n    return inspect.getsource(work)\n")
    assert lab.output() == "def work() -> str:\n    return inspect.getsource(work)\n"


def test_the_command_line_is_that_of_the_executor(lab: Lab) -> None:
    lab.play("import sys\ndef work() -> list:\n    return sys.argv[1::2] + [sys.modules['__main__'].__spec__.name]\n")
    options = ["--component_module_path", "--function_to_execute", "--executor_input"]
    assert lab.output() == [*options, "kfp.dsl.executor_main"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_works(lab: Lab, method: str) -> None:
    lab.play(
        f"""
        import multiprocessing
        def double(x):
            return 2 * x
        def work() -> list:
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                return pool.map(double, range(4))
        """
    )
    assert lab.output() == [0, 2, 4, 6]


def test_the_log_is_live_line_by_line(lab: Lab) -> None:
    key = lab.start(
        "import time\ndef work():\n    print('first')\n    open('said', 'w').write('1\\n')\n    time.sleep(600)\n"
    )
    lab.number("said")
    assert lab.log() == "first\n"
    lab.processes.kill(key)
    assert lab.end(key).signal == 9
    assert lab.log() == "first\n"
