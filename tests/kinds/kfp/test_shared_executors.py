"""Tasks that share an executor: one policy, separate checkpoints, and executors that the SDK merged."""

from __future__ import annotations

from typing import Any

from tests.kfp.builders import component, ir, task
from tests.kinds.kfp.compiled import inner, one_task, text_of
from tests.kinds.kfp.policies import POLICY, env
from tests.placing.placed import place, refusal


def shared_executor() -> str:
    components = {"comp-a": component("train"), "comp-b": component("train")}
    return text_of(ir({"a": task("a"), "b": task("b")}, components))


def test_tasks_that_share_an_executor_and_a_policy_are_placed_together() -> None:
    assert place(shared_executor()).roles.keys() == {"a", "b"}


def test_tasks_that_share_an_executor_and_differ_in_policy_are_refused_with_both_names() -> None:
    message = refusal(shared_executor(), "{default: {spot: prefer}, tasks: {b: {spot: require}}}")

    assert "the tasks a and b share the executor exec-train, and their policies differ in spot" in message


NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"


def test_tasks_that_share_an_executor_have_places_for_checkpoints_of_their_own() -> None:
    given = env(place(shared_executor(), POLICY).documents)

    assert given["SPOTWRIGHT_INDEX"] == NODE
    assert given["SPOTWRIGHT_CHECKPOINT"].endswith(f"/{{{{workflow.name}}}}/comp-a/{NODE}")


def test_iterations_of_a_loop_have_places_for_checkpoints_of_their_own() -> None:
    loop = {"parameterIterator": {"itemInput": "item", "items": {"raw": "[1, 2]"}}}
    given = env(place(text_of(inner(**loop)), POLICY).documents)

    assert given["SPOTWRIGHT_CHECKPOINT"].endswith(f"/{{{{workflow.name}}}}/inner/train/{NODE}")


def test_a_task_that_runs_once_needs_no_index() -> None:
    given = env(place(one_task(), POLICY).documents)

    assert "SPOTWRIGHT_INDEX" not in given
    assert given["SPOTWRIGHT_CHECKPOINT"].endswith("/{{workflow.name}}/train")


def mixed_up() -> dict[str, Any]:
    """As the SDK leaves it: two components have one executor, and another executor is left over."""
    spec = ir({"a": task("a"), "b": task("b")})
    spec["components"]["comp-b"]["executorLabel"] = "exec-a"
    return spec


def test_executors_that_the_compiler_mixed_up_are_named() -> None:
    assert place(text_of(mixed_up())).reports(
        "the components comp-a and comp-b share the executor exec-a", "exec-b is used by none"
    )


def test_policies_that_differ_in_an_executor_that_was_mixed_up_are_explained_by_it() -> None:
    message = refusal(text_of(mixed_up()), "{default: {spot: prefer}, tasks: {b: {spot: require}}}")

    assert "their policies differ in spot" in message
    assert "the compiler of the SDK mixed them up" in message


def test_shared_executors_without_an_unused_one_are_no_merge() -> None:
    assert not place(shared_executor()).reports("mixed them up")
