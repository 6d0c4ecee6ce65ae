"""Without a store the end of each log is in its SpotAttempt: of a bounded size, never an older one over a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from aiohttp import web
from tests.cluster.log_keeping.container_log import BILLION, START, Line
from tests.cluster.log_keeping.keepers import ENDED, LINES, RUNNING, WHOLE, Endpoint, pod, until
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster import log_tails
from spotwright.cluster.api_client import Api
from spotwright.cluster.log_keeper import LogKeeper, SeenAttempt
from spotwright.cluster.log_place import LogName, Overtaken
from spotwright.cluster.log_tails import LogTails
from spotwright.cluster.run_objects import ATTEMPT, ENDED_LABEL, RUN, TAIL, Home, object_name, records_path
from spotwright.errors import Fenced

TRAIN, TASK = "a.train-1234", "a/b"
NAME = object_name(TRAIN, Home(TASK, 1))
ATTEMPTS, ATTEMPTS_OF_ALL = records_path(ATTEMPT, "a"), records_path(ATTEMPT, "")
SCHEMA = yaml.safe_load(Path("charts/spotwright/crds/spotattempt.yaml").read_text())["spec"]["versions"][0]["schema"]
STATUS = SCHEMA["openAPIV3Schema"]["properties"]["status"]["properties"]
MOST_OF_POSITION = STATUS["logPosition"]["maxLength"]
HALF = b"".join(line.text for line in LINES[:20])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are tried again at once."""
    monkeypatch.setattr(log_tails, "_AGAIN", 0.02)
    monkeypatch.setattr(log_tails, "_SEALED", 0.02)
    monkeypatch.setattr(log_tails, "_FIRST", 0.02)


def seen(found: dict[str, Any], **more: bool) -> SeenAttempt:
    return SeenAttempt(f"{found['metadata']['uid']}/0", LogName(TRAIN, "a+b", 1), found, 0, task=TASK, **more)


def status(server: SmallApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects[ATTEMPTS][NAME]["status"]
    return found


Start = Callable[..., LogKeeper]


def keeping(test: Callable[[SmallApiServer, Start], Awaitable[None]]) -> None:
    """Run a test with a server that has the attempt, and a way to start keepers one after another."""

    async def run() -> None:
        tasks: list[asyncio.Task[None]] = []
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            server.put(ATTEMPTS, NAME, status={"phase": "running"})

            async def end() -> None:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

            def start(require: Callable[[], None] = lambda: None, namespaces: tuple[str, ...] = ("a",)) -> LogKeeper:
                keeper = LogKeeper(Api(client), LogTails(Api(client), require, namespaces))
                tasks.append(asyncio.create_task(keeper.run()))
                return keeper

            start.end = end  # type: ignore[attr-defined]
            try:
                await asyncio.wait_for(test(server, start), 60)
            finally:
                await end()

    asyncio.run(run())


def test_the_end_of_a_log_is_in_the_status_beside_what_the_recorder_writes() -> None:
    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server)
        server.answers = [web.Response(status=429, headers={"Retry-After": "0"}), web.Response(status=500)]
        start().follow(seen(pod(server, ENDED)))
        await until(lambda: bool(status(server).get("logComplete")))
        assert status(server) == {
            "phase": "running",
            "logTail": WHOLE.decode(),
            "logBytes": len(WHOLE),
            "logPosition": "",
            "logComplete": True,
        }

    keeping(test)


def test_of_a_long_log_the_last_bytes_are_kept_as_text() -> None:
    lines = [Line(START + at * BILLION, "ü\u2713".encode() + b"\xff %d\n" % at) for at in range(2000)]
    whole = b"".join(line.text for line in lines).decode("utf-8", "replace")

    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server, lines=lines)
        start().follow(seen(pod(server, ENDED)))
        await until(lambda: bool(status(server).get("logComplete")))
        tail = status(server)["logTail"]
        assert whole.endswith(tail)
        assert TAIL - 4 < len(tail.encode()) <= TAIL
        assert status(server)["logBytes"] == len(whole.encode())

    keeping(test)


@pytest.mark.parametrize("told", ["nothing", "a notice", "a deletion"])
def test_what_grows_is_written_now_and_then_and_without_delay_once_its_pod_goes(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    for name in ("_FIRST", "_PAUSE"):
        monkeypatch.setattr(log_tails, name, 0.05 if told == "nothing" else 3600.0)

    async def test(server: SmallApiServer, start: Start) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: (keeper.last_line(seen(running).key) or 0) >= LINES[19].stamp / 1e9)
        if told != "nothing":
            assert "logTail" not in status(server)
            if told == "a deletion":
                running = {**running, "metadata": {**running["metadata"], "deletionTimestamp": "2026-05-28T20:26:40Z"}}
            keeper.follow(seen(running, is_noticed=told == "a notice"))
        await until(lambda: status(server).get("logTail") == HALF.decode())
        assert status(server)["logComplete"] is False
        endpoint.shown = len(LINES)
        await until(lambda: status(server).get("logTail") == WHOLE.decode())

    keeping(test)


def test_an_error_of_the_api_server_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tails, "_PAUSE", 0.02)

    async def test(server: SmallApiServer, start: Start) -> None:
        refused: list[web.Request] = []

        async def refuse(request: web.Request) -> web.Response:
            refused.append(request)
            return web.json_response({"message": "etcd is full"}, status=500)

        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        path = f"{ATTEMPTS}/{NAME}"
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: status(server).get("logTail") == HALF.decode())
        server.pages[path] = refuse
        endpoint.shown = len(LINES)
        await until(lambda: len(refused) > 3)
        assert keeper.open_logs == 1
        del server.pages[path]
        await until(lambda: status(server).get("logTail") == WHOLE.decode())

    keeping(test)


def test_the_next_recorder_goes_on_where_the_one_before_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tails, "_FIRST", 3600.0)

    async def test(server: SmallApiServer, start: Any) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: (keeper.last_line(seen(running).key) or 0) >= LINES[19].stamp / 1e9)
        await start.end()
        assert status(server)["logTail"] == HALF.decode(), "what waits is written when a keeper ends"
        endpoint.shown = len(LINES)
        start().follow(seen(pod(server, ENDED)))
        await until(lambda: status(server)["logComplete"])
        assert (status(server)["logTail"], status(server)["logBytes"]) == (WHOLE.decode(), len(WHOLE))
        asked = len(endpoint.asked)
        again = start()
        again.follow(seen(pod(server, ENDED)))
        await until(lambda: again.open_logs == 0)
        assert len(endpoint.asked) == asked, "a complete log is not read again"

    keeping(test)


def test_who_does_not_record_any_more_writes_nothing() -> None:
    def fenced() -> None:
        raise Fenced("the lease is lost")

    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server)
        keeper = start(fenced)
        keeper.follow(seen(pod(server, ENDED)))
        await until(lambda: keeper.open_logs == 0)
        assert status(server) == {"phase": "running"}

    keeping(test)


def test_what_another_process_has_written_since_is_not_overwritten() -> None:
    async def test(server: SmallApiServer, _start: Start) -> None:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            both = [LogTails(Api(client)).log(LogName(TRAIN, "a+b", 1), TASK) for _ in range(2)]
            first, stale = both
            await first.append(b"one\n", {"at": 1})
            await asyncio.gather(*filter(None, [first.hurry()]))
            assert await stale.open()
            await first.append(b"two\n", {"at": 2})
            await first.finish()
            await stale.append(b"other\n", {"at": 2})
            with pytest.raises(Overtaken, match="is written by another process"):
                await stale.finish()
            assert status(server)["logTail"] == "one\ntwo\n"
            for log in both:
                await log.close()

    keeping(test)


def test_a_log_whose_attempt_was_deleted_ends() -> None:
    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server)
        server.delete(ATTEMPTS, NAME)
        keeper = start()
        keeper.follow(seen(pod(server, ENDED)))
        await until(lambda: keeper.open_logs == 0)

    keeping(test)


def test_a_namespace_has_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tails, "_NAMESPACE", 10 << 10)

    async def test(server: SmallApiServer, _start: Start) -> None:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            tails = LogTails(Api(client))
            for number in range(1, 5):
                server.put(ATTEMPTS, object_name(TRAIN, Home(TASK, number)), status={"phase": "ended"})
                log = tails.log(LogName(TRAIN, "a+b", number), TASK)
                await log.append(b"x" * 5000, {})
                await log.finish()
                await log.close()
            told: list[str] = []
            for _ in range(2):
                await LogKeeper(Api(client), tails, on_dropped=lambda _, text: told.append(text)).drop_too_much()
            (text,) = told
            assert "a/b attempt 1 (4Ki), a/b attempt 2 (4Ki)" in text
            found = [server.objects[ATTEMPTS][object_name(TRAIN, Home(TASK, at))]["status"] for at in range(1, 5)]
            assert [len(each["logTail"]) == TAIL for each in found] == [False, False, True, True]
            assert found[0]["logTail"].startswith(
                "[spotwright: this log of 4Ki was dropped: the logs of namespace a had"
            )

    keeping(test)


@pytest.mark.parametrize("namespaces", [(), ("a",)])
def test_the_next_recorder_finishes_logs_of_runs_that_have_ended(
    monkeypatch: pytest.MonkeyPatch, namespaces: tuple[str, ...]
) -> None:
    monkeypatch.setattr(log_tails, "_PAGE", 2)

    async def test(server: SmallApiServer, start: Any) -> None:
        endpoint, keeper = Endpoint(server), start()
        endpoint.shown = 20
        running = pod(server, RUNNING)
        keeper.follow(seen(running))
        await until(lambda: status(server).get("logTail") == HALF.decode())
        await start.end()
        server.objects[ATTEMPTS][NAME]["spec"] = {"run": TRAIN, "task": TASK, "attempt": 1}
        for number in range(5):
            server.put(ATTEMPTS, f"0-{number}", status={"logPosition": "{}", "logComplete": False})
        server.objects[ATTEMPTS_OF_ALL] = server.objects[ATTEMPTS]
        endpoint.shown = len(LINES)
        pod(server, ENDED)
        start(namespaces=namespaces)
        await until(lambda: bool(status(server)["logComplete"]))
        assert (status(server)["logTail"], status(server)["logBytes"]) == (WHOLE.decode(), len(WHOLE))

    keeping(test)


def test_logs_of_runs_that_have_ended_or_are_deleted_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tails, "_LOOK", -1e9)

    async def test() -> None:
        async with serving(RecordServer) as server, httpx2.AsyncClient(base_url=server.url) as client:
            tails = LogTails(Api(client))
            names = [LogName(f"a.{name}", "t", 1) for name in ("going", "ended", "deleted")]
            for name in names:
                server.put(ATTEMPTS, object_name(name.run, Home("t", 1)), status={})
                log = tails.log(name, "t")
                await log.append(b"text", {})
                await log.finish()
                await log.close()
            runs = records_path(RUN, "a")
            server.put(runs, "a.going")
            server.put(runs, "a.ended", metadata={"labels": {ENDED_LABEL: "true"}})
            assert [log.name.run for log in (await tails.kept())["a"]] == ["a.going"]
            assert list(tails._paths) == names[:1]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_of_a_log_whose_attempt_is_deleted_nobody_says_that_it_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tails, "_NAMESPACE", 100)

    async def test(server: SmallApiServer, _start: Start) -> None:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            tails = LogTails(Api(client))
            log = tails.log(LogName(TRAIN, "a+b", 1), TASK)
            await log.append(b"x" * 5000, {})
            await log.finish()
            await log.close()
            server.delete(ATTEMPTS, NAME)
            told: list[str] = []
            await LogKeeper(Api(client), tails, on_dropped=lambda _, text: told.append(text)).drop_too_much()
            assert told == []
            assert await tails.kept() == {}

    keeping(test)


def refusing(server: SmallApiServer, code: int) -> list[int]:
    """Let the server refuse each write as it does for an object that its schema does not allow."""
    refused: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PATCH":
            refused.append(code)
            return web.json_response({"message": "status.logPosition: Too long"}, status=code)
        return web.json_response(server.objects[ATTEMPTS][NAME])

    server.pages[f"{ATTEMPTS}/{NAME}"] = answer
    return refused


def test_a_log_that_the_api_server_does_not_take_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server)
        refused, keeper = refusing(server, 422), start()
        keeper.follow(seen(pod(server, ENDED)))
        await until(lambda: keeper.open_logs == 0)
        assert refused
        assert "logTail" not in status(server)

    keeping(test)
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith("cannot store the end of log a/b attempt 1: ")
    assert "Too long" in said


def test_a_conflict_is_no_other_process() -> None:
    async def test(server: SmallApiServer, start: Start) -> None:
        Endpoint(server)
        refused = refusing(server, 409)
        start().follow(seen(pod(server, ENDED)))
        await until(lambda: len(refused) > 2)
        del server.pages[f"{ATTEMPTS}/{NAME}"]
        await until(lambda: bool(status(server).get("logComplete")))
        assert status(server)["logTail"] == WHOLE.decode()

    keeping(test)


def test_a_position_that_is_longer_than_its_field_is_left_out() -> None:
    async def test(server: SmallApiServer, _start: Start) -> None:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            log = LogTails(Api(client)).log(LogName(TRAIN, "a+b", 1), TASK)
            done = [f"init-{number:03d}".ljust(63, "x") for number in range(130)]
            for size, expected in ((60, True), (130, False)):
                await log.append(b"line\n", {"done": done[:size]})
                await asyncio.gather(*filter(None, [log.hurry()]))
                assert status(server)["logTail"].endswith("line\n")
                assert bool(status(server)["logPosition"]) is expected
                assert len(status(server)["logPosition"]) <= MOST_OF_POSITION
            await log.close()

    keeping(test)
