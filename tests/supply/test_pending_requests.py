"""The order of attempts that wait for a node: first in, first out per request shape, across runs."""

from __future__ import annotations

from tests.engine.builders import SPOT
from tests.supply.builders import key

from spotwright.supply.node_fit import AttemptKey, Node, NodeRequest, choose, new_node
from spotwright.supply.simulated_pools import RequestQueue

SMALL, LARGE = NodeRequest(("spot",), {"cpu": 1000}), NodeRequest(("spot",), {"cpu": 4000})


def bound(queue: RequestQueue, *nodes: Node) -> list[str]:
    tasks = []
    for attempt, request, node in queue.bind(lambda request: choose(request, nodes)):
        node.add(attempt, request)
        tasks.append(attempt.task)
    return tasks


def a_queue(*waiting: tuple[str, NodeRequest]) -> RequestQueue:
    queue = RequestQueue()
    for name, request in waiting:
        queue.add(key(name), request)
    return queue


def test_equal_attempts_are_bound_in_the_order_of_submission() -> None:
    assert bound(a_queue(("b", SMALL), ("a", SMALL)), new_node("n", SPOT, None)) == ["b", "a"]


def test_attempts_of_different_shapes_are_bound_in_the_order_of_submission() -> None:
    queue = a_queue(("a", SMALL), ("b", LARGE), ("c", SMALL), ("d", LARGE))
    assert bound(queue, *(new_node(f"n{n}", SPOT, None) for n in range(3))) == ["a", "b", "c"]


def test_an_attempt_that_does_not_fit_lets_smaller_ones_pass() -> None:
    node = new_node("n", SPOT, None)
    node.add(key("other"), SMALL)
    assert bound(a_queue(("large", LARGE), ("small", SMALL)), node) == ["small"]


def test_a_bound_attempt_waits_no_longer() -> None:
    queue = a_queue(("a", SMALL))
    bound(queue, new_node("n", SPOT, None))
    assert (queue.request_of(key("a")), queue.remove(key("a"))) == (None, False)


def test_a_removed_attempt_is_not_bound() -> None:
    queue = a_queue(("a", SMALL), ("b", SMALL))
    assert queue.remove(key("a"))
    assert bound(queue, new_node("n", SPOT, None)) == ["b"]


def test_planning_asks_for_each_attempt_until_a_shape_has_no_place() -> None:
    asked: list[NodeRequest] = []

    def find(_attempt: AttemptKey, request: NodeRequest) -> bool:
        asked.append(request)
        return request is SMALL

    a_queue(("a", LARGE), ("b", LARGE), ("c", SMALL), ("d", SMALL)).plan(find)
    assert asked == [LARGE, SMALL, SMALL]


# Several runs


def two_runs(*waiting: tuple[str, str]) -> RequestQueue:
    queue = RequestQueue()
    for run, task in waiting:
        queue.add(key(task, run=run), SMALL)
    return queue


def test_the_same_task_of_two_runs_is_two_attempts() -> None:
    queue = two_runs(("one", "a"), ("two", "a"))
    assert queue.remove(key("a", run="one"))
    assert queue.request_of(key("a", run="two")) is SMALL


def test_the_order_of_submission_decides_between_runs() -> None:
    queue = two_runs(("one", "a"), ("two", "b"), ("one", "c"), ("two", "d"))
    assert bound(queue, new_node("n", SPOT, None)) == ["a", "b", "c", "d"]


def test_a_run_that_submits_first_is_served_first_however_many_its_attempts_are() -> None:
    queue = two_runs(*(("many", f"m{n}") for n in range(4)), ("few", "f"))
    assert bound(queue, new_node("n", SPOT, None)) == ["m0", "m1", "m2", "m3"]


def test_a_run_can_be_removed_with_all_its_attempts() -> None:
    queue = two_runs(("one", "a"), ("two", "b"), ("one", "c"))
    queue.remove_run("one")
    assert bound(queue, new_node("n", SPOT, None)) == ["b"]
