"""The log of an attempt is stored until its node is gone, without gaps or repeats, whatever happens to the keeper."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from testbed.control import control_plane
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.chatty import NUMBER, Keeper, chatty, numbers, output, stop, written
from tests.cluster.live.kube import Kube, Object

pytestmark = pytest.mark.cluster

KILLS = 20


def the_pod(kube: Kube, namespace: str) -> Object:
    def found() -> Object | None:
        pods = kube.list("pods", namespace)
        return pods[0] if pods and pods[0]["status"].get("phase") in ("Running", "Succeeded") else None

    return kube.wait(found, "the pod runs", 120)


def without_our_lines(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"[spotwright: "))


def wait_for_lines(kube: Kube, keeper: Keeper, count: int) -> None:
    kube.wait(lambda: len(numbers(keeper.kept())) >= count or None, f"{count} lines are kept", 120)


def test_twenty_kills_of_the_keeper_leave_no_gap_and_no_repeat(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path
) -> None:
    keeper = Keeper(kube, tmp_path, namespace)
    moments = random.Random(3)  # noqa: S311  # the moments of kills, no secret
    kube.apply(chatty(namespace))
    pod = the_pod(kube, namespace)
    for _ in range(KILLS):
        with keeper.running():
            wait_for_lines(kube, keeper, len(numbers(keeper.kept())) + 1)
            time.sleep(moments.uniform(0.0, 1.0))
    stop(bed, pod["metadata"]["uid"])
    with keeper.running():
        kube.wait(lambda: keeper.has_finished() or None, "the log is complete", 300)
    assert keeper.kept() == output(bed, namespace, pod["metadata"]["uid"])
    found = numbers(keeper.kept())
    assert found == list(range(1, len(found) + 1))


def test_a_restart_of_the_api_server_leaves_no_gap_and_no_repeat(
    kube: Kube, bed: Settings, namespace: str, tmp_path: Path
) -> None:
    keeper = Keeper(kube, tmp_path, namespace)
    with keeper.running():
        kube.apply(chatty(namespace))
        pod = the_pod(kube, namespace)
        wait_for_lines(kube, keeper, 100)
        control_plane.restart(bed, "apiserver")
        wait_for_lines(kube, keeper, written(bed, pod["metadata"]["uid"]) + 500)
        stop(bed, pod["metadata"]["uid"])
        kube.wait(lambda: keeper.has_finished() or None, "the log is complete", 300)
    assert keeper.kept() == output(bed, namespace, pod["metadata"]["uid"])


@pytest.mark.parametrize("fault", ["power-cut", "unplug", "drain", "delete", "forced-delete"])
def test_a_log_is_kept_up_to_the_moment_of_the_fault(
    kube: Kube, bed: Settings, faults: Faults, namespace: str, tmp_path: Path, fault: str
) -> None:
    keeper = Keeper(kube, tmp_path, namespace)
    with keeper.running():
        kube.apply(chatty(namespace))
        pod = the_pod(kube, namespace)
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        wait_for_lines(kube, keeper, 500)
        strike(kube, faults, fault, name, namespace)
        on_disk = output(bed, namespace, uid) if fault in ("power-cut", "unplug") else b""
        kube.wait(lambda: keeper.has_finished() or None, "the log is complete", 180)
    kept = without_our_lines(keeper.kept())
    found = numbers(kept)
    assert found == list(range(1, len(found) + 1))
    if fault in ("power-cut", "unplug"):
        assert on_disk.startswith(kept)
        assert b"its node no longer reports" in keeper.kept()


def strike(kube: Kube, faults: Faults, fault: str, pod: str, namespace: str) -> None:
    if fault == "power-cut":
        faults.cut_power(NUMBER)
    elif fault == "unplug":
        faults.unplug(NUMBER)
    elif fault == "drain":
        faults.drain(NUMBER)
    else:
        force = ("--grace-period=0", "--force") if fault == "forced-delete" else ()
        kube.run("delete", "pod", pod, "-n", namespace, "--wait=false", *force)
