"""The environment of an attempt: the engine's, overridden by the task's variables, including those read at start."""

from __future__ import annotations

import os

import pytest
from tests.local.process_harness import ProcessHarness

from spotwright.local.supervisor import process_identity

ALL = "import os\ndef work() -> dict:\n    return dict(os.environ)\n"


def test_the_tasks_variables_override_the_engines(harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_ENGINE", "kept")
    monkeypatch.setenv("IN_BOTH", "engine")
    harness.play(ALL, env={"IN_BOTH": "task", "OWN": "x=y"})
    marks = process_identity.marks(harness.run, harness.folder) | {"SPOTWRIGHT_TASK": "task", "SPOTWRIGHT_ATTEMPT": "1"}
    assert harness.output() == os.environ | marks | {"_KFP_RUNTIME": "true", "IN_BOTH": "task", "OWN": "x=y"}


def test_a_task_does_not_see_the_variables_of_another(harness: ProcessHarness) -> None:
    harness.play(ALL, name="one", env={"OWN": "x"})
    harness.play(ALL, name="two")
    assert "OWN" not in harness.output("two")


def test_child_programs_inherit_the_variables(harness: ProcessHarness) -> None:
    harness.play(
        "import subprocess\ndef work() -> str:\n    return subprocess.check_output(['sh', '-c', 'echo $OWN'], text=True)\n",
        env={"OWN": "x"},
    )
    assert harness.output() == "x\n"


@pytest.mark.parametrize(
    ("name", "value", "shows"),
    [
        (
            "PYTHONHASHSEED",
            "7",
            "str(hash('a') == int(subprocess.check_output([sys.executable, '-c', 'print(hash(\"a\"))'])))",
        ),
        ("PYTHONUTF8", "1", "str(bool(sys.flags.utf8_mode))"),
        ("PYTHONDONTWRITEBYTECODE", "1", "str(sys.dont_write_bytecode)"),
        ("PYTHONPATH", "/nowhere/special", "str('/nowhere/special' in sys.path)"),
        ("LD_LIBRARY_PATH", "/nowhere/special", "str(b'LD_LIBRARY_PATH=/nowhere/special' in start)"),
        ("MALLOC_ARENA_MAX", "1", "str(b'MALLOC_ARENA_MAX=1' in start)"),
        ("LC_ALL", "C", "str(b'LC_ALL=C' in start)"),
    ],
)
def test_variables_read_at_interpreter_start_take_effect(
    harness: ProcessHarness, name: str, value: str, shows: str
) -> None:
    start = "start = open('/proc/self/environ', 'rb').read().split(b'\\0')"
    harness.play(f"import subprocess, sys\n{start}\ndef work() -> str:\n    return {shows}\n", env={name: value})
    assert harness.output() == "True"


def test_a_fresh_interpreter_behaves_like_a_fork(harness: ProcessHarness) -> None:
    record = harness.play(
        """
        import os, sys, multiprocessing
        def double(x):
            return 2 * x
        def work(text: str) -> list:
            print("printed")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return [os.getcwd(), sys.path[1], len(text), *pool.map(double, [1]), len(os.listdir("/proc/self/fd"))]
        """,
        {"text": "x" * 5_000_000},
        env={"PYTHONHASHSEED": "0"},
    )
    work = str(harness.directory() / "work")
    assert record.exit_code == 0
    assert harness.output() == [work, work, 5_000_000, 2, harness.output()[-1]]
    assert harness.log() == "printed\n"


@pytest.mark.parametrize("env", [{}, {"PYTHONHASHSEED": "0"}], ids=["fork", "fresh interpreter"])
def test_only_the_three_standard_descriptors_are_open(harness: ProcessHarness, env: dict[str, str]) -> None:
    harness.play("import os\ndef work() -> list:\n    return [os.readlink(f'/proc/self/fd/{n}') for n in range(3)] + "
             "[n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]\n", env=env)  # fmt: skip
    log = str(harness.directory() / "log.txt")
    assert harness.output() == ["/dev/null", log, log]


def test_a_secret_input_is_on_no_command_line(harness: ProcessHarness) -> None:
    harness.play(
        "def work(secret: str) -> bool:\n    return secret.encode() in open('/proc/self/cmdline', 'rb').read()\n",
        {"secret": "hunter2"},
        env={"PYTHONHASHSEED": "0"},
    )
    assert harness.output() is False


def test_the_time_zone_variable_takes_effect(harness: ProcessHarness) -> None:
    harness.play("import time\ndef work() -> int:\n    return time.localtime(0).tm_hour\n", env={"TZ": "XYZ-5"})
    assert harness.output() == 5


def test_a_library_reads_its_variable_on_import(harness: ProcessHarness) -> None:
    harness.play(
        "import ctypes\ndef work() -> str:\n    get = ctypes.CDLL(None).getenv\n    get.restype = ctypes.c_char_p\n"
        "    return get(b'OMP_NUM_THREADS').decode()\n",
        env={"OMP_NUM_THREADS": "3"},
    )
    assert harness.output() == "3"
