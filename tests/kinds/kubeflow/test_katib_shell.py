"""The shell that Katib puts in front of a trial's program: what SIGTERM reaches, and what Katib learns of the end.

The wrapped commands run in real shells; they are made as ``wrapWorkerContainer`` of katib v0.19.0 makes them
(``pkg/webhook/v1beta1/pod/utils.go``).
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import made

from spotwright.linter.rules.training import RULES

PROGRAM = """\
import signal, sys, time
def stop(*_):
    open("heard", "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("accuracy=0.5", flush=True)
deadline = time.monotonic() + float(sys.argv[1])
while time.monotonic() < deadline:
    time.sleep(0.01)
"""
SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]


def program(seconds: float) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(PROGRAM)} {seconds}"


def wrapped(shell: str, command: str, folder: Path) -> list[str]:
    """The container's command after Katib's webhook, with the collector StdOut; Kubernetes makes ``$$$$`` to ``$$``."""
    return [shell, "-c", f"{command} 1>{folder}/metrics.log 2>&1 && echo completed > {folder}/$$.pid"]


def advised(command: str) -> str:
    """The line that `lint` and the page of Katib advise, for a command."""
    [rule] = [rule for rule in RULES if rule.id == "trial-hears-no-sigterm"]
    [container] = yaml.safe_load(rule.passes)["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    line = str(container["command"][2])
    assert line in made("kinds/katib.md")
    return line.replace("python3 train.py", command)


def ended_by_sigterm(shell: str, command: str, folder: Path) -> int:
    """The exit code of the shell after a SIGTERM that comes once the program prints."""
    process = subprocess.Popen(wrapped(shell, command, folder), cwd=folder, start_new_session=True)
    try:
        log, deadline = folder / "metrics.log", time.monotonic() + 60
        while not (log.exists() and "accuracy" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)
    finally:
        subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False, capture_output=True)


@pytest.mark.parametrize("shell", SHELLS)
def test_sigterm_ends_katib_s_shell_and_never_reaches_the_program(shell: str, tmp_path: Path) -> None:
    ended_by_sigterm(shell, program(60), tmp_path)

    assert not (tmp_path / "heard").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_with_the_line_that_is_advised_the_program_hears_and_the_shell_waits_for_it(shell: str, tmp_path: Path) -> None:
    assert ended_by_sigterm(shell, advised(program(60)), tmp_path) == 143

    assert (tmp_path / "heard").exists()
    assert not [*tmp_path.glob("*.pid")], "so Katib does not take it for a trial that has succeeded"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_line_that_is_advised_changes_nothing_where_nothing_comes(shell: str, tmp_path: Path) -> None:
    assert subprocess.run(wrapped(shell, advised(program(0)), tmp_path), cwd=tmp_path, check=False).returncode == 0

    [marker] = tmp_path.glob("*.pid")
    assert marker.read_text() == "completed\n"
    assert (tmp_path / "metrics.log").read_text() == "accuracy=0.5\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_with_exec_katib_never_learns_that_a_trial_has_succeeded(shell: str, tmp_path: Path) -> None:
    assert subprocess.run(wrapped(shell, f"exec {program(0)}", tmp_path), cwd=tmp_path, check=False).returncode == 0

    assert not [*tmp_path.glob("*.pid")]
