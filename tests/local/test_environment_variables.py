"""The environment of an attempt: the engine's, with the task's own variables over it, also those read at start."""

from __future__ import annotations

import os

import pytest
from tests.local.lab import Lab

from spotwright.local import identity

ALL = "import os\ndef work() -> dict:\n    return dict(os.environ)\n"


def test_the_given_variables_lie_over_the_engines(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_ENGINE", "kept")
    monkeypatch.setenv("IN_BOTH", "engine")
    lab.play(ALL, env={"IN_BOTH": "task", "OWN": "x=y"})
    marks = identity.marks(lab.run, lab.folder) | {"SPOTWRIGHT_TASK": "task", "SPOTWRIGHT_ATTEMPT": "1"}
    assert lab.output() == os.environ | marks | {"_KFP_RUNTIME": "true", "IN_BOTH": "task", "OWN": "x=y"}


def test_a_task_does_not_see_the_variables_of_another(lab: Lab) -> None:
    lab.play(ALL, name="one", env={"OWN": "x"})
    lab.play(ALL, name="two")
    assert "OWN" not in lab.output("two")


def test_programs_that_a_component_starts_inherit_them(lab: Lab) -> None:
    lab.play(
        "import subprocess\ndef work() -> str:\n    return subprocess.check_output(['sh', '-c', 'echo $OWN'], text=True)\n",
        env={"OWN": "x"},
    )
    assert lab.output() == "x\n"


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
def test_what_is_read_at_start_is_there_at_start(lab: Lab, name: str, value: str, shows: str) -> None:
    start = "start = open('/proc/self/environ', 'rb').read().split(b'\\0')"
    lab.play(f"import subprocess, sys\n{start}\ndef work() -> str:\n    return {shows}\n", env={name: value})
    assert lab.output() == "True"


def test_a_fresh_interpreter_behaves_like_a_fork(lab: Lab) -> None:
    record = lab.play(
        """
        import os, sys, multiprocessing
        def double(x):
            return 2 * x
        def work(text: str) -> list:
            print("said")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return [os.getcwd(), sys.path[1], len(text), *pool.map(double, [1]), len(os.listdir("/proc/self/fd"))]
        """,
        {"text": "x" * 5_000_000},
        env={"PYTHONHASHSEED": "0"},
    )
    work = str(lab.directory() / "work")
    assert record.exit_code == 0
    assert lab.output() == [work, work, 5_000_000, 2, lab.output()[-1]]
    assert lab.log() == "said\n"


@pytest.mark.parametrize("env", [{}, {"PYTHONHASHSEED": "0"}], ids=["fork", "fresh interpreter"])
def test_only_the_three_standard_descriptors_are_open(lab: Lab, env: dict[str, str]) -> None:
    lab.play("import os\ndef work() -> list:\n    return [os.readlink(f'/proc/self/fd/{n}') for n in range(3)] + "
             "[n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]\n", env=env)  # fmt: skip
    log = str(lab.directory() / "log.txt")
    assert lab.output() == ["/dev/null", log, log]


def test_a_secret_input_is_on_no_command_line(lab: Lab) -> None:
    lab.play(
        "def work(secret: str) -> bool:\n    return secret.encode() in open('/proc/self/cmdline', 'rb').read()\n",
        {"secret": "hunter2"},
        env={"PYTHONHASHSEED": "0"},
    )
    assert lab.output() is False


def test_the_time_zone_counts(lab: Lab) -> None:
    lab.play("import time\ndef work() -> int:\n    return time.localtime(0).tm_hour\n", env={"TZ": "XYZ-5"})
    assert lab.output() == 5


def test_a_variable_for_a_library_is_there_when_it_is_loaded(lab: Lab) -> None:
    lab.play(
        "import ctypes\ndef work() -> str:\n    get = ctypes.CDLL(None).getenv\n    get.restype = ctypes.c_char_p\n"
        "    return get(b'OMP_NUM_THREADS').decode()\n",
        env={"OMP_NUM_THREADS": "3"},
    )
    assert lab.output() == "3"
