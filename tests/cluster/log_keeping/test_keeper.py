"""The keeper follows the logs of pods over HTTP: through cut streams, refusals and a new keeper, and ends where the pod ends."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.log_keeping.container_log import BILLION, START, Line, answer
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import log_follower
from spotwright.cluster.api_client import Api
from spotwright.cluster.log_file import LogFile
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, LogKeeper, SeenAttempt
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_volume import LogVolume
from spotwright.records.state_folder import StateFolder

PODS = "/api/v1/namespaces/a/pods"
LINES = [Line(START + number * BILLION // 4, f"line {number}\n".encode()) for number in range(40)]
WHOLE = b"".join(line.text for line in LINES)
RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-05-28T20:26:40Z"}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0}}


def pod(server: SmallApiServer, state: dict[str, Any], name: str = "train", **more: Any) -> dict[str, Any]:
    phase = "Running" if "running" in state else "Succeeded"
    statuses = [{"name": "main", "restartCount": 0, "state": state}, *more.get("beside", ())]
    containers = [{"name": each["name"], "env": more.get("env", [])} for each in statuses]
    spec = {"restartPolicy": "Never", "containers": containers}
    return server.put(PODS, name, spec=spec, status={"phase": phase, "containerStatuses": statuses})


class Endpoint:
    """The log endpoint of a pod: ``shown`` lines so far; each answer is cut after as many bytes as the next of ``cuts`` says."""

    def __init__(self, server: SmallApiServer, name: str = "train", lines: list[Line] | None = None) -> None:
        self.lines, self.shown, self.cuts = lines or LINES, len(lines or LINES), list[int]()
        self.asked: list[str] = []
        server.pages[f"{PODS}/{name}/log"] = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query.get("container", ""))
        data = answer(self.lines[: self.shown], request.query.get("sinceTime", ""))
        response = web.StreamResponse()
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        await response.write(data[:cut] or b"")
        if cut is not None and request.transport is not None:
            request.transport.close()
        await until(lambda: not request.query.get("follow") or self.shown == len(self.lines))
        return response


def keeping(test: Callable[[SmallApiServer, Callable[[], LogKeeper]], Awaitable[None]], state: StateFolder) -> None:
    """Run a test with a server and a way to start keepers."""

    async def run() -> None:
        tasks: list[asyncio.Task[None]] = []
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:

            def start() -> LogKeeper:
                for task in tasks:
                    task.cancel()
                keeper = LogKeeper(Api(client), LogVolume(state, DEFAULT_LIMIT))
                tasks.append(asyncio.create_task(keeper.run()))
                return keeper

            try:
                await asyncio.wait_for(test(server, start), 60)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def seen(state: StateFolder, pod: dict[str, Any], *, is_lost: bool = False) -> SeenAttempt:
    name = LogName.of(state.run("run"), pod["metadata"]["name"], 1)
    return SeenAttempt(f"{pod['metadata']['uid']}/0", name, pod, 0, is_lost)


def log_of(state: StateFolder, pod: dict[str, Any]) -> Path:
    return state.run("run").log(pod["metadata"]["name"], 1)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # files give no events
        await asyncio.sleep(0.01)


async def until_complete(log: Path) -> bytes:
    await until(lambda: log.exists() and not log.with_name("log.position").exists())
    return await asyncio.to_thread(log.read_bytes)


async def until_kept(log: Path, text: bytes) -> None:
    await until(lambda: log.exists() and text in log.read_bytes())


def test_a_log_is_followed_through_cut_streams_and_refusals_to_its_end(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown, endpoint.cuts = 20, [37, 250, 333]
        running = pod(server, RUNNING)
        server.answers = [web.Response(status=429, headers={"Retry-After": "0"}), web.Response(status=500)]
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), b"line 19")
        endpoint.shown = len(LINES)
        keeper.follow(seen(state, pod(server, ENDED)))
        assert await until_complete(log_of(state, running)) == WHOLE

    keeping(test, state)


def test_a_new_keeper_goes_on_where_the_one_before_was(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), b"line 19")
        endpoint.shown = len(LINES)
        pod(server, ENDED)
        start()  # nobody tells it: the run may be over
        assert await until_complete(log_of(state, running)) == WHOLE

    keeping(test, state)


def test_where_the_node_goes_the_log_ends_with_what_it_had_sent(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), b"line 19")
        keeper.follow(seen(state, running, is_lost=True))
        text = await until_complete(log_of(state, running))
        our_line = b"[spotwright: the log ends here: its node does not report any more; its last line is of "
        assert text.startswith(b"".join(line.text for line in LINES[:20]) + our_line)

    keeping(test, state)


def test_what_the_disk_did_not_take_before_the_pod_was_gone_is_said_once_it_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder.open(tmp_path / "state")
    monkeypatch.setattr(log_follower, "_DISK", 0.02)
    real, tries = LogFile.append, list[bytes]()

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), b"line 19")

        def full(file: LogFile, data: bytes, notes: Mapping[str, Any]) -> None:
            tries.append(data)
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(LogFile, "append", full)
            endpoint.shown = len(LINES)
            await until(lambda: bool(tries))
            keeper.follow(seen(state, running, is_lost=True))
            await until(lambda: b"the log ends here" in tries[-1])
            assert log_of(state, running).with_name("log.position").exists(), "not complete, while nothing is said"
        text = await until_complete(log_of(state, running))
        said = b"[spotwright: the log ends here: what came next could not be written (No space left on device), and its pod"
        assert text.startswith(b"".join(line.text for line in LINES[:20]) + said)
        assert text.count(b"[spotwright: ") == 1

    keeping(test, state)
    assert LogFile.append is real


def test_a_container_that_failed_beside_the_main_one_is_read_after_the_end(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")
    failed = {"name": "wait", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}
    quiet = {"name": "istio-proxy", "restartCount": 0, "state": ENDED}

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server, lines=LINES[:1]), start()
        ended = pod(server, ENDED, beside=[quiet, failed])
        keeper.follow(seen(state, ended))
        text = await until_complete(log_of(state, ended))
        assert text == b"line 0\n==> container wait, which exited with 1 <==\nline 0\n"
        assert endpoint.asked == ["main", "wait"]

    keeping(test, state)


WRAPPED = ["python3 train.py 1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid"]
COLLECTOR = "metrics-logger-and-collector"


def a_trial_s_pod(server: SmallApiServer, state: dict[str, Any], policy: str = "Never") -> dict[str, Any]:
    """A pod of a trial as Katib's webhook makes it for the collector StdOut."""
    made = pod(server, state, beside=[{"name": COLLECTOR, "restartCount": 0, "state": state}])
    made["spec"]["restartPolicy"] = policy
    made["spec"]["containers"][0]["args"] = WRAPPED
    return made


def test_the_lines_of_a_trial_are_read_while_they_come_from_the_container_that_prints_them(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = a_trial_s_pod(server, RUNNING)
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), b"line 19")
        assert endpoint.asked == [COLLECTOR]
        endpoint.shown, endpoint.lines = 2, LINES[:2]
        keeper.follow(seen(state, a_trial_s_pod(server, ENDED)))
        text = await until_complete(log_of(state, running))
        first, *_, last = [line for line in text.splitlines() if line.startswith(b"==>")]
        assert (
            first
            == b"==> container metrics-logger-and-collector, which prints what main writes: Katib redirects it <=="
        )
        assert last == b"==> container main, what Katib does not redirect <=="

    keeping(test, state)


def test_a_trial_whose_lines_were_not_read_says_where_they_are(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        _, keeper = Endpoint(server, lines=LINES[:1]), start()
        ended = a_trial_s_pod(server, ENDED, policy="OnFailure")
        keeper.follow(seen(state, ended))
        text = await until_complete(log_of(state, ended))
        assert text.endswith(
            b"[spotwright: Katib redirects what main writes, and container metrics-logger-and-collector prints it, whose log was "
            b"not read]\n"
        )

    keeping(test, state)


def test_values_of_variables_that_are_secrets_by_name_are_hidden(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")
    lines = [Line(START, b"login with hunter2-hunter2 at /run/token\n")]
    env = [{"name": "API_TOKEN", "value": "hunter2-hunter2"}, {"name": "TOKEN_PATH", "value": "/run/token"}]

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        Endpoint(server, lines=lines)
        ended = pod(server, ENDED, env=env)
        start().follow(seen(state, ended))
        assert await until_complete(log_of(state, ended)) == b"login with *** at /run/token\n"

    keeping(test, state)


def test_hundreds_of_attempts_are_followed_at_once(tmp_path: Path) -> None:
    state = StateFolder.open(tmp_path / "state")
    count = 150

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        keeper = start()
        pods = []
        for number in range(count):
            Endpoint(server, f"train-{number}", LINES[:5])
            pods.append(pod(server, ENDED, f"train-{number}"))
            keeper.follow(seen(state, pods[-1]))
        for each in pods:
            assert await until_complete(log_of(state, each)) == b"".join(line.text for line in LINES[:5])
        assert keeper.open_logs == 0

    keeping(test, state)


def test_a_stream_that_ends_at_once_is_opened_again_when_its_pod_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container ends a second or so before its pod says so; until then every stream of its log ends at once."""
    monkeypatch.setattr(log_follower, "_SHORT", 60.0)
    state = StateFolder.open(tmp_path / "state")

    async def test(server: SmallApiServer, start: Callable[[], LogKeeper]) -> None:
        endpoint, keeper = Endpoint(server), start()
        running = pod(server, RUNNING)
        keeper.follow(seen(state, running))
        await until_kept(log_of(state, running), WHOLE)
        async with httpx2.AsyncClient(base_url=server.url) as other:
            for _ in range(30):  # as long as thirty answers take
                await other.get(PODS)
        assert len(endpoint.asked) == 1
        keeper.follow(seen(state, pod(server, ENDED)))
        assert await until_complete(log_of(state, running)) == WHOLE
        assert len(endpoint.asked) == 2

    keeping(test, state)
