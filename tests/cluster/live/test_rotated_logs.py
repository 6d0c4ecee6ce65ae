"""A pod writes more than the 10 MiB of log that a kubelet keeps: nothing is repeated, and losses are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster.live.chatty import NODE, NUMBER, Keeper
from tests.cluster.live.kube import Kube, Object, job, pod_spec

pytestmark = pytest.mark.cluster

LINE, MIB = 1024, 1 << 20
WHOLE = 48  # MiB that a pod writes
WRITER = """
import os, sys, time
size, rate = int(sys.argv[1]) << 20, float(sys.argv[2]) * (1 << 20)
began, number = time.monotonic(), 0
while number * 1024 < size:
    number += 1
    os.write(1, (b"%d " % number).ljust(1023, b"x") + b"\\n")
    if number % 64 == 0:
        time.sleep(max(0.0, number * 1024 / rate - (time.monotonic() - began)))
time.sleep(float(sys.argv[3]))
"""


def writer(namespace: str, rate: float, *, stays: float = 0.0) -> Object:
    """A Job whose pod writes 48 MiB with so many MiB a second, and stays for a while."""
    container = {
        "name": "main",
        "image": "localhost/python:1",
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", WRITER, str(WHOLE), str(rate), str(stays)],
    }
    return job("writer", namespace, pod_spec(container, NODE, terminationGracePeriodSeconds=2))


def parts(text: bytes) -> list[list[int]]:
    """The numbers of the lines, cut where the log says that lines are missing."""
    found: list[list[int]] = [[]]
    for line in text.splitlines():
        if line.startswith((b"[spotwright: lines are missing here", b"[spotwright: lines may be missing here")):
            found.append([])
        else:
            found[-1].append(int(line.split(b" ", 1)[0]))
    return found


def files_of(bed: Settings, namespace: str) -> list[Path]:
    """The files of the container's output on its node."""
    return sorted((bed.node_folder(NUMBER) / "pods").glob(f"{namespace}_*/main/0.log*"))


def ended(kube: Kube, namespace: str) -> bool:
    return any(pod["status"].get("phase") == "Succeeded" for pod in kube.list("pods", namespace))


@pytest.mark.parametrize("rate", [3.0, 1000.0])
def test_a_log_that_is_rotated_while_it_is_followed_has_each_line_once(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path, measured: Callable[[str, float], None], rate: float
) -> None:
    keeper = Keeper(kube, tmp_path, namespace, "--log-limit", "256Mi")
    with keeper.running():
        kube.apply(writer(namespace, rate))
        kube.wait(lambda: keeper.has_finished() or None, "the log is complete", 300)
    found = parts(keeper.kept())
    measured(f"{rate:g} MiB/s: files on the node", len(files_of(bed, namespace)))
    measured(f"{rate:g} MiB/s: lines that are missing", WHOLE * MIB // LINE - sum(map(len, found)))
    measured(f"{rate:g} MiB/s: places at which the log says so", len(found) - 1)
    for part in found:
        assert part == list(range(part[0], part[0] + len(part)))
    assert [number for part in found for number in part] == sorted({number for part in found for number in part})
    assert (found[0][0], found[-1][-1]) == (1, WHOLE * MIB // LINE)


def test_what_was_rotated_away_while_the_keeper_was_gone_is_said(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path, measured: Callable[[str, float], None]
) -> None:
    keeper = Keeper(kube, tmp_path, namespace, "--log-limit", "256Mi")
    with keeper.running():
        kube.apply(writer(namespace, 3.0, stays=20.0))
        kube.wait(lambda: len(keeper.kept()) > MIB or None, "a MiB is kept", 120)
    kube.wait(lambda: len(files_of(bed, namespace)) > 2 or ended(kube, namespace), "its file is rotated twice", 120)
    with keeper.running():
        kube.wait(lambda: keeper.has_finished() or None, "the log is complete", 300)
    found = parts(keeper.kept())
    measured("keeper away: lines that are missing", WHOLE * MIB // LINE - sum(map(len, found)))
    assert len(found) == 2, "one gap is named"
    before, after = found
    assert before == list(range(1, len(before) + 1))
    assert after == list(
        range(WHOLE * MIB // LINE + 1 - len(after), WHOLE * MIB // LINE + 1)
    )  # empty: rotated at the end
