"""How long all attempts of a policy may take together."""

from __future__ import annotations

from spotwright.model.policy import Layer, Policy, resolve
from spotwright.placing.retries import attempts, deadline_seconds, whole_number


def a_policy(**values: float) -> Policy:
    return resolve([Layer("test", {key.replace("__", "."): value for key, value in values.items()})])


def test_a_policy_without_a_timeout_gives_no_bound() -> None:
    assert deadline_seconds(a_policy()) is None


def test_every_attempt_may_take_its_timeout_and_wait_for_its_node() -> None:
    policy = a_policy(interruptions__max=2, interruptions__backoff=0.0, timeout=100.0, pending_timeout=10.0)

    assert deadline_seconds(policy) == 3 * 110


def test_waits_between_attempts_are_part_of_the_bound() -> None:
    policy = a_policy(interruptions__max=3, interruptions__backoff=1.0, timeout=1.0, pending_timeout=0.0)

    assert deadline_seconds(policy) == 4 + (1 + 2 + 4)


def test_errors_that_are_tried_again_are_part_of_the_bound() -> None:
    policy = a_policy(interruptions__max=1, errors__retries=2, timeout=10.0, pending_timeout=0.0)

    assert attempts(policy) == 4
    assert deadline_seconds(policy) == 40 + 1 + (1 + 2)


def test_work_done_in_waves_takes_that_much_longer() -> None:
    policy = a_policy(interruptions__max=0, timeout=10.0, pending_timeout=0.0)

    assert deadline_seconds(policy, waves=5) == 50


def test_a_part_of_a_second_is_a_whole_one() -> None:
    assert deadline_seconds(a_policy(interruptions__max=0, timeout=0.2, pending_timeout=0.0)) == 1


def test_a_placeholder_is_no_number() -> None:
    assert [whole_number("${n}"), whole_number(None, 1), whole_number(3), whole_number(True)] == [None, 1, 3, None]
