"""Attempts that wait for a node, by kind of request."""

from __future__ import annotations

from tests.engine.builders import SPOT

from spotwright.supply.binding import Node, Request, choose, new_node
from spotwright.supply.queue import Queue

SMALL, LARGE = Request(("spot",), {"cpu": 1000}), Request(("spot",), {"cpu": 4000})


def bound(queue: Queue, *nodes: Node) -> list[str]:
    found = []
    for key, request, node in queue.bind(lambda request: choose(request, nodes)):
        node.take_in(key, request)
        found.append(key[0])
    return found


def a_queue(*waiting: tuple[str, Request]) -> Queue:
    queue = Queue()
    for name, request in waiting:
        queue.add((name, 1), request)
    return queue


def test_equal_attempts_are_bound_in_the_order_of_submission() -> None:
    assert bound(a_queue(("b", SMALL), ("a", SMALL)), new_node("n", SPOT, None)) == ["b", "a"]


def test_attempts_of_different_kinds_are_bound_in_the_order_of_submission() -> None:
    queue = a_queue(("a", SMALL), ("b", LARGE), ("c", SMALL), ("d", LARGE))
    assert bound(queue, *(new_node(f"n{n}", SPOT, None) for n in range(3))) == ["a", "b", "c"]


def test_what_does_not_fit_lets_smaller_ones_pass() -> None:
    node = new_node("n", SPOT, None)
    node.take_in(("other", 1), SMALL)
    assert bound(a_queue(("large", LARGE), ("small", SMALL)), node) == ["small"]


def test_what_was_bound_waits_no_more() -> None:
    queue = a_queue(("a", SMALL))
    bound(queue, new_node("n", SPOT, None))
    assert (queue.request_of(("a", 1)), queue.remove(("a", 1))) == (None, False)


def test_what_was_taken_out_is_not_bound() -> None:
    queue = a_queue(("a", SMALL), ("b", SMALL))
    assert queue.remove(("a", 1))
    assert bound(queue, new_node("n", SPOT, None)) == ["b"]


def test_planning_asks_for_each_attempt_until_a_kind_has_no_place() -> None:
    asked: list[Request] = []

    def find(request: Request) -> bool:
        asked.append(request)
        return request is SMALL

    a_queue(("a", LARGE), ("b", LARGE), ("c", SMALL), ("d", SMALL)).plan(find)
    assert asked == [LARGE, SMALL, SMALL]
