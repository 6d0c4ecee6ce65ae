"""Numbers and gangs in objects of the API: every number once, whichever replica gives it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, islice
from typing import Any

import httpx2
import msgspec
import pytest
from aiohttp import web
from tests.cluster.controller.findings import TASKS
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.api_client import Api
from spotwright.cluster.attempt_numbers import PATIENCE, Asking, Given, Numbers, Seen, Slot, Wait
from spotwright.cluster.task_objects import (
    MOST_BYTES,
    Content,
    Place,
    Token,
    bind_in,
    counters_of,
    keep_in,
    note_seen_in,
)
from spotwright.errors import StateError

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "team-a", "uid": "job-uid"}}
REVIEWS = (f"{number:08x}-1111-2222-3333-444444444444" for number in count())


class Replicas:
    """The attempt numbers of one controller, on one API server."""

    def __init__(self, server: SmallApiServer, all_: Sequence[Numbers], clock: list[float]) -> None:
        self.server, self.all, self.clock = server, all_, clock
        self.first, self.second = all_[0], all_[1]

    def objects(self) -> dict[str, dict[str, Any]]:
        return self.server.objects.get(TASKS, {})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110  # the replicas confirm in the background
                await asyncio.sleep(0.01)

    def waiting(self) -> dict[str, int]:
        """The numbers of reviews whose pods have not been seen."""
        tasks = [task for each in self.objects().values() for task in each["spec"].get("tasks", {}).values()]
        return {review: one[1] for task in tasks for review, one in task.get("waiting", {}).items()}


@asynccontextmanager
async def replicas(of: int = 2) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving())
        clock, made, tasks = [1000.0], [], []
        for _ in range(of):
            client = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url))
            made.append(Numbers(Api(client), lambda: clock[0]))
            tasks.append(asyncio.create_task(made[-1].run()))
        try:
            yield Replicas(server, made, clock)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in made:
                await one.close()


def run(scenario: Callable[[Replicas], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with replicas() as made:
            return await scenario(made)

    return asyncio.run(within())


def asking(review: str = "", path: str = "train", **more: Any) -> Asking:
    return Asking(review or next(REVIEWS), "team-a", JOB, path, **{"is_settled": True, **more})


async def given(numbers: Numbers, asked: Asking, **more: Any) -> Given:
    found = await numbers.number(asked, **more)
    assert isinstance(found, Given), found
    return found


SPOT = Admission(("spot-a", "spot-b"), is_open=True, why="first attempt", number=1, pinned=(({"key": "a"},),))


@pytest.mark.parametrize("slots", [1, 100])
def test_a_burst_at_two_replicas_gets_every_number_once_in_few_writes(slots: int) -> None:
    async def scenario(made: Replicas) -> None:
        asked = [asking(path="work", slots=slots) for _ in range(100)]
        found = await asyncio.gather(*(given(made.all[n % 2], each) for n, each in enumerate(asked)))
        taken = sorted((one.slot, one.number) for one in found)
        assert taken == ([(0, n) for n in range(1, 101)] if slots == 1 else [(n, 1) for n in range(100)])
        writes = [line for line in made.server.asked if not line.startswith("GET")]
        assert len(writes) < 30
        await asyncio.gather(*(made.all[n % 2].keep(one, JOB, SPOT) for n, one in enumerate(found)))
        records = [each["spec"].get("records", {}) for each in made.objects().values()]
        assert sum(map(len, records)) == 100

    run(scenario)


@pytest.mark.parametrize("slots", [1, 100])
def test_a_burst_that_is_decided_on_before_its_numbers_are_given_out_gets_every_number_once(slots: int) -> None:
    async def scenario(made: Replicas) -> int:
        again = 0

        async def one(numbers: Numbers) -> None:
            nonlocal again
            asked = asking(path="work", slots=slots)
            foreseen = await numbers.foresee(asked)
            await asyncio.sleep(0.01)
            if foreseen is None or not await numbers.take(asked, foreseen, SPOT):
                again += 1
                found = await given(numbers, asked)
                await numbers.keep(found, JOB, SPOT)

        await asyncio.gather(*(one(made.all[n % 2]) for n in range(100)))
        contents = [msgspec.convert(each["spec"], Content) for each in made.objects().values()]
        given_out = sorted(
            (one.slot, one.number) for each in contents for task in each.tasks.values() for one in task.waiting.values()
        )
        assert given_out == ([(0, n) for n in range(1, 101)] if slots == 1 else [(n, 1) for n in range(100)])
        records = sorted((one.slot, one.number) for each in contents for one in each.records.values())
        assert len(records) == 100
        assert slots == 1 or records == given_out
        assert len([line for line in made.server.asked if not line.startswith("GET")]) < 40
        return again

    decided_again = run(scenario)
    assert decided_again == (99 if slots == 1 else 0), "a first attempt is decided alike in each slot"


def test_retries_that_are_decided_at_the_same_time_foresee_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Replicas) -> list[int]:
        first = asking()
        foreseen = await made.first.foresee(first)
        assert foreseen is not None
        assert await made.first.take(first, foreseen, SPOT)
        found = [await made.first.foresee(each) for each in (first, *(asking() for _ in range(3)))]
        repeated = asking()
        found += [await made.first.foresee(repeated), await made.first.foresee(repeated)]
        monkeypatch.setattr("spotwright.cluster.attempt_numbers._FORESEEN", -1.0)
        found.append(await made.first.foresee(asking()))
        return [one.number for one in found if one is not None]

    assert run(scenario) == [2, 3, 4, 5, 5, 2]


def test_nothing_is_foreseen_where_a_review_has_to_wait() -> None:
    async def scenario(made: Replicas) -> None:
        lost = asking(known={0: Slot(1)})
        assert await made.first.foresee(lost) is None
        asked = asking()
        foreseen = await made.first.foresee(asked)
        assert foreseen is not None
        assert await made.first.take(asked, foreseen, SPOT)
        assert await made.first.foresee(asked) is None, "it has its number"
        assert await made.first.foresee(asking(is_settled=None)) is None
        made.clock[0] += PATIENCE + 1
        assert await made.first.foresee(asking()) is None, "the pod of the first is overdue"
        assert not await made.first.take(asking(), foreseen, SPOT)

    run(scenario)


def test_a_review_that_comes_again_gets_the_same_number() -> None:
    async def scenario(made: Replicas) -> list[tuple[int, Token | None]]:
        asked = asking()
        return [(one.number, one.token) for one in [await given(each, asked) for each in made.all]]

    first, second = run(scenario)
    assert first == second
    assert first[0] == 1


def test_numbers_go_on_after_those_of_the_journal() -> None:
    async def scenario(made: Replicas) -> list[int]:
        asked = [asking(known={0: Slot(7)}) for _ in range(2)]
        return [(await given(each, one, ignores_loss=True)).number for each, one in zip(made.all, asked, strict=True)]

    assert run(scenario) == [8, 9]


def test_pods_that_are_alike_take_the_first_slot_that_is_free() -> None:
    async def scenario(made: Replicas) -> list[tuple[int, int]]:
        known = {0: Slot(1, is_free=False)}
        found = [
            await given(made.all[n % 2], asking(path="p", slots=3, known=known), ignores_loss=True) for n in range(3)
        ]
        return [(one.slot, one.number) for one in found]

    assert run(scenario) == [(1, 1), (2, 1), (2, 2)]


def test_a_number_waits_for_the_end_of_the_attempt_before_it() -> None:
    async def scenario(made: Replicas) -> None:
        first, second = made.all
        await given(first, asking(is_settled=None))
        assert await second.number(asking(is_settled=None)) == Wait(), "the journal has no attempt yet"
        live = {0: Slot(1, is_free=False)}
        assert await second.number(asking(known=live, is_settled=None)) == Wait()
        odd = {0: Slot(1, is_settled=False)}
        assert await second.number(asking(known=odd, is_settled=None)) == Wait()
        assert (await given(second, asking(known={0: Slot(1)}, is_settled=None))).number == 2
        late = await given(first, asking(is_settled=None), is_last=True)
        assert (late.number, late.is_settled) == (3, False)

    run(scenario)


def test_a_number_whose_pod_was_never_made_is_given_out_again() -> None:
    async def scenario(made: Replicas) -> None:
        refused, asked = asking(), asking()
        await given(made.first, refused)
        made.clock[0] += PATIENCE + 1
        assert await made.second.number(asked) == Wait([refused.review])
        await made.second.settle(asked, [], [refused.review])
        assert (await given(made.second, asked)).number == 1

    run(scenario)


def test_a_number_whose_pod_was_seen_is_never_given_out_again() -> None:
    async def scenario(made: Replicas) -> None:
        asked = asking()
        token = str((await given(made.first, asked)).token)
        made.first.confirm([Seen("team-b", token, "pod-uid")])
        await asyncio.sleep(0.5)
        assert made.waiting() == {asked.review: 1}, "a pod of another namespace says nothing"
        made.first.confirm([Seen("team-a", token, "pod-uid")])
        await made.until(lambda: not made.waiting())
        made.clock[0] += PATIENCE + 1
        await made.second.settle(asked, [], [asked.review])
        assert (await given(made.second, asking())).number == 2

    run(scenario)


def test_a_pod_that_a_dead_replica_has_admitted_is_confirmed_by_the_other_one() -> None:
    async def scenario(made: Replicas) -> None:
        found = await given(made.first, asking())
        await made.first.keep(found, JOB, SPOT)
        made.second.confirm([Seen("team-a", str(found.token), "pod-uid")])
        await made.until(lambda: not made.waiting())
        [record] = [one for each in made.objects().values() for one in each["spec"].get("records", {}).values()]
        assert record["pod"] == "pod-uid"

    run(scenario)


def test_objects_are_deleted_with_their_workload_and_hold_its_deletion_up_in_no_way() -> None:
    async def scenario(made: Replicas) -> dict[str, Any]:
        await given(made.first, asking())
        [found] = made.objects().values()
        return dict(found["metadata"])

    meta = run(scenario)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "blockOwnerDeletion": False}
    assert meta["ownerReferences"] == [owner]
    assert meta["labels"] == {"spotwright.dev/workload": "job-uid"}


def test_a_gang_agrees_once_for_each_of_its_rungs() -> None:
    async def scenario(made: Replicas) -> None:
        first, second = made.all
        assert await first.agreed("team-a", "job-uid", "set/1") == {}
        agreed = await asyncio.gather(
            first.agree("team-a", JOB, "set/1", "a,b;c", ("a", "b")),
            second.agree("team-a", JOB, "set/1", "a,b;c", ("c",)),
        )
        assert agreed[0] == agreed[1]
        assert await second.agree("team-a", JOB, "set/1", "c", ("c",)) == ("c",), "a leader that has other rungs"
        assert await second.agree("team-a", JOB, "set/11", "a,b;c", ("c",)) == ("c",)
        assert await first.agreed("team-a", "job-uid", "set/1") == {"a,b;c": agreed[0], "c": ("c",)}
        assert await first.agreed("team-a", "job-uid", "set/2") == {}
        assert await first.agreed("team-b", "job-uid", "set/1") == {}
        for restart in range(105):
            await first.agree("team-a", JOB, f"set/{restart}", "a,b;c", ("a", "b"))
        assert len(made.objects()["job-uid.gangs"]["spec"]["gangs"]) == 100

    run(scenario)


def test_a_review_is_taken_up_for_a_moment_and_only_by_its_own_pod() -> None:
    async def scenario(made: Replicas) -> None:
        first, second = made.all

        def pod(token: object) -> dict[str, Any]:
            return {"metadata": {"annotations": {"spotwright.dev/admission": str(token)}}}

        found = await given(first, asking())
        assert await second.is_under_review(pod(found.token), "team-a", "job-uid")
        assert not await second.is_under_review(pod(found.token), "team-b", "job-uid")
        assert not await second.is_under_review(pod(found.token), "team-a", "another")
        assert not await second.is_under_review(pod("forged"), "team-a", "job-uid")
        first.confirm([Seen("team-a", str(found.token), "pod-uid")])
        await made.until(lambda: not made.waiting())
        assert not await second.is_under_review(pod(found.token), "team-a", "job-uid")
        later = await given(first, asking())
        made.clock[0] += 60.0
        assert not await second.is_under_review(pod(later.token), "team-a", "job-uid")

    run(scenario)


def test_an_object_that_somebody_has_deleted_is_told_and_its_numbers_go_on() -> None:
    async def scenario(made: Replicas) -> None:
        await given(made.first, asking())
        for name in list(made.objects()):
            made.server.delete(TASKS, name)
        asked = asking(known={0: Slot(1)})
        assert await made.first.number(asked) == Wait(is_lost=True)
        await made.first.restore(asked, [(1, 6)])
        assert (await given(made.second, asked)).number == 7
        [text] = made.first.take_problems()
        assert "team-a/job-uid." in text
        assert "is missing: was it deleted?" in text
        assert not made.first.take_problems()

    run(scenario)


def test_numbers_that_pods_of_one_job_carry_are_restored_to_slots_of_their_own() -> None:
    async def scenario(made: Replicas) -> list[tuple[int, int]]:
        asked = asking(path="p", slots=4)
        await made.first.restore(asked, [(3, 1), (3, 1)])
        found = [await given(made.second, asking(path="p", slots=4)) for _ in range(2)]
        return [(one.slot, one.number) for one in found]

    assert run(scenario) == [(2, 1), (3, 1)]


def test_an_object_that_an_administrator_edits_meanwhile_keeps_both_changes() -> None:
    async def scenario(made: Replicas) -> None:
        await given(made.first, asking())
        [name] = made.objects()
        edited = dict(made.objects()[name])
        edited["spec"] = {**edited["spec"], "tasks": {"train": {"seen": "5"}}}
        made.server.put(TASKS, name, **edited)
        assert (await given(made.first, asking())).number == 6
        made.server.put(TASKS, name, **{**edited, "spec": {"given": "rubbish"}})
        with pytest.raises(StateError, match=r"was changed from outside .*; delete it"):
            await given(made.first, asking())

    run(scenario)


@pytest.mark.parametrize("status", [403, 404])
def test_without_the_kind_or_the_rights_it_is_said_once_and_tried_again(status: int) -> None:
    async def scenario(made: Replicas) -> None:
        async def refused(_request: web.Request) -> web.Response:
            return web.json_response({"kind": "Status", "message": "no such right"}, status=status)

        made.server.pages[TASKS] = refused
        for _ in range(3):
            with pytest.raises(StateError, match="kubectl apply"):
                await given(made.first, asking())
        [text] = made.first.take_problems()
        assert text.startswith("attempt numbers cannot be assigned, so pods are left unchanged: /apis/spotwright")
        assert f"answers {status} no such right; kubectl apply --server-side -f charts/spotwright/crds" in text
        del made.server.pages[TASKS]
        assert (await given(made.first, asking())).number == 1

    run(scenario)


def test_a_kind_that_drops_fields_gives_out_no_number_and_is_told() -> None:
    """From an older schema, or another program: numbers that are not stored would be assigned twice."""

    async def scenario(made: Replicas) -> None:
        async def other(request: web.Request) -> web.Response:
            body = await request.json()
            del body["spec"]["tasks"]
            return web.json_response(made.server.put(TASKS, body["metadata"]["name"], **body), status=201)

        made.server.pages[TASKS] = other
        with pytest.raises(StateError, match="is from another version, which drops fields; kubectl apply"):
            await given(made.first, asking())
        [text] = made.first.take_problems()
        assert "is from another version" in text

    run(scenario)


def test_a_review_that_nobody_waits_for_any_more_gets_no_number() -> None:
    async def scenario(made: Replicas) -> None:
        held = asyncio.Event()

        async def late(request: web.Request) -> web.Response:
            await held.wait()
            del made.server.pages[TASKS]
            return await made.server._handle(request)  # type: ignore[return-value]

        made.server.pages[TASKS] = late
        first = asyncio.create_task(given(made.first, asking()))
        await made.until(lambda: any(line.startswith("POST") for line in made.server.asked))
        second = asyncio.create_task(given(made.first, asking()))
        await asyncio.sleep(0)
        second.cancel()
        held.set()
        assert (await first).number == 1
        assert (await given(made.second, asking())).number == 2

    run(scenario)


def sizes_of(pods: Iterable[tuple[str, int]]) -> tuple[list[int], list[Content]]:
    """The sizes of all objects after pods of these tasks and slots were admitted and seen, fifty at a time."""
    objects: dict[Place, Content] = {}
    left = iter(pods)
    while fifty := [*islice(left, 50)]:
        places = []
        for path, slot in fifty:
            place, review = counters_of("team-a", "2f1c9f06-1111-2222-3333-444444444444", path), next(REVIEWS)
            token, sheet = objects.setdefault(place, Content()).give(place, review, path, slot, 1, 1764.123)
            content = objects.setdefault(token.place, Content())
            keep_in(content, token.place, review, sheet, SPOT)
            bind_in(content, {review: "2f1c9f06-5555-6666-7777-888888888888"})
            places.append((place, review))
        for place in {place for place, _ in places}:
            note_seen_in(objects[place], [review for where, review in places if where == place])
    return [len(msgspec.json.encode(each)) for each in objects.values()], [*objects.values()]


def test_ten_thousand_pods_of_one_job_stay_in_objects_of_bounded_size() -> None:
    sizes, objects = sizes_of(("work", slot) for slot in range(10_000))
    assert len(sizes) == 67
    assert max(sizes) < 32 * 1024
    assert [task.seen for each in objects for task in each.tasks.values()] == ["1x10000"]


@pytest.mark.parametrize("path", ["train", f"a-pipeline-{'x' * 300}"])
def test_ten_thousand_tasks_of_one_workload_stay_in_objects_of_bounded_size(path: str) -> None:
    sizes, _ = sizes_of((f"{path}-{number}", 0) for number in range(10_000))
    assert max(sizes) < MOST_BYTES


def test_what_would_be_too_large_is_refused_and_what_is_there_stays() -> None:
    async def scenario(made: Replicas) -> None:
        found = await given(made.first, asking())
        with pytest.raises(StateError, match="would exceed its limit of"):
            await made.first.keep(found, JOB, SPOT._replace(pinned=(({"key": "x" * MOST_BYTES},),)))
        await made.first.keep(found, JOB, SPOT)
        with pytest.raises(StateError, match="not a review's UID"):
            await given(made.first, asking("x" * 41))

    run(scenario)


def test_numbers_of_pods_that_were_never_made_do_not_stay() -> None:
    """Any client of the webhook's port may send reviews of pods that are never created, thousands a minute."""

    async def scenario(made: Replicas) -> None:
        reviews = list(range(700))
        results = await asyncio.gather(
            *(made.first.number(Asking.alone(f"forged-{number}", "team-a")) for number in reviews),
            return_exceptions=True,
        )
        refused = [one for one in results if isinstance(one, StateError)]
        assert len(refused) == 200
        assert "500 admitted pods do not exist yet" in str(refused[0])
        made.clock[0] += 7200.0
        found = await given(made.first, Asking.alone("new", "team-a"))
        assert made.waiting() == {"new": 1}
        assert str(found.token).startswith("new/pods.0-")

    run(scenario)


def test_the_records_of_the_oldest_pods_give_way_when_all_pages_are_full() -> None:
    async def scenario(made: Replicas) -> None:
        found = await given(made.first, asking())
        await made.first.keep(found, JOB, SPOT)
        [name] = made.objects()
        full = dict(made.objects()[name])
        full["spec"] = {**full["spec"], "given": 150 * 128}
        made.server.put(TASKS, name, **full)
        later = await given(made.first, asking())
        assert later.token is not None
        assert found.token is not None
        assert later.token.place == found.token.place
        await made.first.keep(later, JOB, SPOT)
        assert list(made.objects()[name]["spec"]["records"]) == [later.token.review]
        with pytest.raises(StateError, match="has later records"):
            await made.first.keep(found, JOB, SPOT)

    run(scenario)


@pytest.mark.parametrize(
    "text",
    ["", "review", "review/", "/job-uid.a", "review/job-uid", "review/../secrets", "review/JOB.a", "review/job-uid.g",
     "review/job-uid.a-0", "review/job-uid.a-1000", f"{'x' * 41}/job-uid.a", "review/job-uid.gangs", "a/b/job-uid.a/x"],
)  # fmt: skip
def test_a_token_that_is_none_of_ours_names_no_object(text: str) -> None:
    assert Token.parse(text, "team-a") is None


@pytest.mark.parametrize("seen", ["x", "1x", "1x999999999", "-1", "1,,a", "1x2x3"])
def test_counters_that_somebody_has_written_by_hand_are_refused_with_a_sentence(seen: str) -> None:
    content = Content()
    content.task("train").seen = seen
    with pytest.raises(StateError, match="not a list of attempt numbers"):
        content.task("train").highest()
