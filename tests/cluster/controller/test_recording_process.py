"""What records is a process of its own: it lives as long as the Lease and its parent, and is started again where it hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from spotwright.cluster.controller import Health
from spotwright.cluster.recording_main import Fence
from spotwright.cluster.recording_process import RecordingProcess
from tests.cluster.controller.controller_process import (
    JOBS,
    NODES,
    PODS,
    a_cluster,
    children,
    controller_process,
    kubeconfig,
    show,
)
from tests.cluster.watching import watched_objects
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import recording_process
from spotwright.cluster.controller_settings import CertificateFiles, Settings
from spotwright.cluster.lease import uptime
from spotwright.errors import Fenced

LEASES = "/apis/coordination.k8s.io/v1/namespaces/spotwright/leases"
POLICY = "{default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2}}"


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def with_train(server: SmallApiServer) -> None:
    """A cluster with a Job and its pod, which runs."""
    a_cluster(server, POLICY, watched_objects.node("n1"))
    train = watched_objects.job("train", uid="uid-train")
    show(server, JOBS, train)
    show(server, PODS, watched_objects.pod("one", train, node="n1", phase="Running"))
    show(server, NODES, watched_objects.node("n1"))


def test_a_killed_recorder_is_started_again_and_a_killed_parent_takes_it_along(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving() as server:
            with_train(server)
            async with controller_process(tmp_path, server) as process:
                (first,) = children(process.process.pid)
                os.kill(first, signal.SIGKILL)
                await process.until(lambda: process.log.count("all streams are complete") == 2, "it records again")
                assert "has ended (killed by signal 9)" in process.log
                (second,) = children(process.process.pid)
                assert os.getpriority(os.PRIO_PROCESS, second) > os.getpriority(os.PRIO_PROCESS, process.process.pid)
                os.kill(second, signal.SIGSTOP)  # it could not even read that its input has ended
                os.kill(process.process.pid, signal.SIGKILL)
                async with asyncio.timeout(20):
                    while is_alive(second):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)

    asyncio.run(test())


def test_a_recorder_that_ends_with_its_controller_gives_up_its_journals_and_the_lease(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving() as server:
            with_train(server)
            async with controller_process(tmp_path, server) as process:
                (child,) = children(process.process.pid)
                await process.until(lambda: list(process.state.glob("runs/*/journal*")), "a journal")
                process.process.terminate()
                assert await asyncio.to_thread(process.process.wait, 20) == 0
                assert not is_alive(child)
            assert server.objects[LEASES]["spotwright"]["spec"]["holderIdentity"] == ""
            assert "Traceback" not in process.log

    asyncio.run(test())


def test_a_recorder_that_hangs_holds_up_neither_the_lease_nor_reviews(tmp_path: Path) -> None:
    """It is stopped for longer than a Lease lasts: the Lease stays, and nothing is written by whoever lost it."""

    async def test() -> None:
        async with serving() as server:
            with_train(server)
            async with controller_process(tmp_path, server) as process:
                before = server.objects[LEASES]["spotwright"]["spec"]["leaseTransitions"]
                (child,) = children(process.process.pid)
                os.kill(child, signal.SIGSTOP)
                renewed = server.objects[LEASES]["spotwright"]["spec"]["renewTime"]
                await asyncio.sleep(17)
                spec = server.objects[LEASES]["spotwright"]["spec"]
                assert spec["renewTime"] > renewed
                assert spec["leaseTransitions"] == before
                os.kill(child, signal.SIGCONT)
                show(server, PODS, watched_objects.pod("one", watched_objects.job("train", uid="uid-train"), node="n1",
                                                       phase="Succeeded", exit_code=0))  # fmt: skip
                await process.until(lambda: "ended train" in process.log or "train: ended" in process.log, "it goes on")
                assert "Traceback" not in process.log

    asyncio.run(test())


def lines_of(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


LIVES = """
import sys, json, time
said = {"moves": {"evicted": 2}, "waiting": [["team-a", "Unschedulable", 3]], "aside": [], "unplaced": 1}
print(json.dumps({**said, "kinds": {"Job": True}}), flush=True)
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (LIVES + "sys.exit(3)", "has ended (exit code 3"),
        (LIVES + "time.sleep(600)", "said nothing for"),
        (LIVES + "print('no json', flush=True); time.sleep(600)", "said what cannot be read"),
        (LIVES + "print('{}', flush=True); time.sleep(600)", "said what cannot be read"),
    ],
)
def test_a_process_that_ends_hangs_or_talks_nonsense_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    for name, value in {"_LOOK": 0.05, "_STARVED": 0.5, "_FIRST_WAIT": 0.05, "_ENDING": 0.2}.items():
        monkeypatch.setattr(recording_process, name, value)

    async def test() -> None:
        async with serving() as server:
            server.objects[LEASES] = {}
            settings = Settings(state=tmp_path, kubeconfig=str(kubeconfig(tmp_path, server)))
            part = RecordingProcess(settings, {}, command=lines_of(script))
            task = asyncio.create_task(part.run())
            async with asyncio.timeout(60):
                while part.told.moves.get("evicted", 0) < 6:  # three of them have counted
                    assert not task.done(), task.result()
                    await asyncio.sleep(0.02)
            assert part.problem == "", "it may soon be well"
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert children(os.getpid()) == []
            assert not part.told.is_leading
            assert part.told.waiting == {}
            assert part.told.unplaced >= 3, "a counter never goes back"

    asyncio.run(test())
    assert [line for line in caplog.messages if said in line]


def test_a_replica_whose_recorder_is_never_well_counts_as_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_process, "_FIRST_WAIT", 0.01)
    clock = 0.0

    async def test() -> str:
        nonlocal clock
        async with serving() as server:
            server.objects[LEASES] = {}
            settings = Settings(state=tmp_path, kubeconfig=str(kubeconfig(tmp_path, server)))
            part = RecordingProcess(settings, {}, lambda: clock, lines_of("raise SystemExit(1)"))
            health = Health(lambda: part.problem, lambda: clock)
            tasks = [asyncio.create_task(each) for each in (part.run(), health.beat())]
            async with asyncio.timeout(60):
                while part._failures < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert health.problem == ""
                clock += 400.0
                await asyncio.sleep(1.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return health.problem

    assert "what records has ended" in asyncio.run(test())


def test_an_event_loop_that_was_held_up_is_not_well() -> None:
    clock = 0.0
    health = Health(str, lambda: clock)

    async def beats() -> None:
        task = asyncio.create_task(health.beat())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(beats())
    clock = 9.0
    assert health.problem == ""
    clock = 11.0
    assert health.problem == "the event loop was held up for 11 s"


@pytest.fixture
def pipe() -> tuple[int, Callable[[bytes], object], Callable[[], object]]:
    reads, writes = os.pipe()
    return reads, lambda said: os.write(writes, said), lambda: os.close(writes)


def test_nothing_is_written_after_the_moment_that_was_told_last(
    pipe: tuple[int, Callable[[bytes], object], Callable[[], object]],
) -> None:
    reads, say, end = pipe
    now = 100.0
    fence = Fence(reads, b"10", lambda: now)  # a part of a line is no moment yet
    with pytest.raises(Fenced, match="this process writes nothing more"):
        fence.require()
    say(b"5.0\n108.5\n11")
    fence.require()
    now = 108.5
    with pytest.raises(Fenced):
        fence.require()
    say(b"8.5\n")
    fence.require()
    end()
    fence.require()  # the journals are given up in the time that is left
    assert fence.has_ended
    now = 118.5
    with pytest.raises(Fenced):
        fence.require()


def test_both_processes_measure_with_the_same_clock() -> None:
    command = [sys.executable, "-c", "from spotwright.cluster.lease import uptime; print(uptime())"]

    async def told() -> float:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        return float((await process.communicate())[0])

    before, other, after = uptime(), asyncio.run(told()), uptime()
    assert before < other < after


def test_settings_survive_the_way_to_the_process() -> None:
    files = CertificateFiles(Path("a.crt"), Path("a.key"), Path("ca.crt"))
    for settings in (
        Settings(state=Path("/s")),
        Settings(state=Path("/s"), files=files, where="https://a", read_port=1),
    ):
        line = settings.to_json()
        assert b"\n" not in line
        assert Settings.from_json(line) == settings
