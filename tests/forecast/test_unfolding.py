"""What a plan knows of a pipeline before its run: the items of loops, and the branches of conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engine.builders import (
    a_body,
    a_chain,
    a_config,
    a_dag,
    a_loop,
    a_plan,
    a_pool,
    a_task,
    constants,
)

from spotwright.engine.plan import Plan
from spotwright.errors import InputError
from spotwright.forecast.tasks import Durations, Given, Tasks, tasks_of
from spotwright.graph import Dag, DagInput, Loop, OneOf, OutputSpecs, ParameterSpec, Source, TaskOutput, TaskSpec
from spotwright.kfp.cel import read_condition

CONFIG = a_config(a_pool(), a_pool("on-demand", spot=False), policy={"spot": "prefer"})
TEXT, WHOLE, LIST = ParameterSpec("STRING"), ParameterSpec("NUMBER_INTEGER"), ParameterSpec("LIST")


def planned(plan: Plan, *given: tuple[str, Given], arguments: dict[str, Any] | None = None) -> Tasks:
    return tasks_of(plan, Durations("given", given), arguments or {})


def paths(plan: Plan, *given: tuple[str, Given], arguments: dict[str, Any] | None = None) -> list[str]:
    return [task.path for task in planned(plan, *given, arguments=arguments).tasks]


def note(plan: Plan, *given: tuple[str, Given], arguments: dict[str, Any] | None = None) -> str:
    """All that is said, in one text."""
    found = planned(plan, *given, arguments=arguments)
    return "\n".join((*found.failing, *found.notes))


def telling(name: str, *after: str, kind: str = "STRING") -> TaskSpec:
    """A task whose output ``out`` decides something later."""
    return a_task(name, *after, outputs=OutputSpecs({"out": ParameterSpec(kind)}))


def branch(name: str, text: str, dag: str, kind: str = "STRING", **sources: Source) -> TaskSpec:
    """A task that runs the graph ``dag`` where a condition on its inputs holds: ``branch("if", "x == 'a'", "big", x=...)``."""
    for each in sources:
        text = text.replace(each, f"inputs.parameter_values['{each}']")
    upstream = tuple(source.task for source in sources.values() if isinstance(source, TaskOutput))
    specs = {each: ParameterSpec(kind) for each in sources}
    return a_task(
        name, *upstream, dag=dag, condition=read_condition(text), parameters=dict(sources), parameter_specs=specs
    )


def looped(name: str, items: Source, *after: str, dag: str = "body", limit: int = 0) -> TaskSpec:
    return a_task(name, *after, dag=dag, parameters={"items": items}, loop=Loop("item", items="items", limit=limit))


def group(name: str, dag: str, *after: str, **inputs: Source) -> TaskSpec:
    """An exit handler's body or a pipeline inside."""
    return a_task(name, *after, dag=dag, parameters=inputs)


def with_parameters(plan: Plan, **specs: ParameterSpec) -> Plan:
    """The plan with declared parameters of its pipeline."""
    root = replace(plan.graph.root, parameters=specs)
    return Plan(replace(plan.graph, root=root), plan.config)


BODY = a_body(a_task("train"))
BIG, SMALL = a_dag(*a_chain(3)), a_dag(a_task("small"))
FLIP = telling("flip")
HEADS = TaskOutput("flip", "out")


# -- loops


def test_a_loop_over_an_argument_has_its_items() -> None:
    plan = a_plan([looped("loop", DagInput("rows"))], CONFIG, body=BODY)
    assert len(paths(plan, arguments={"rows": [1, 2, 3, 4]})) == 4


def test_a_loop_over_an_argument_in_an_exit_handler_has_its_items_and_the_exit_task_runs_once() -> None:
    exit_task = a_task("exit", after_all=True)
    exit_task = replace(exit_task, after=("handler",))
    body = a_dag(looped("loop", DagInput("channel")))
    plan = a_plan([group("handler", "guarded", channel=DagInput("rows")), exit_task], CONFIG, guarded=body, body=BODY)
    found = planned(plan, arguments={"rows": [*range(10)]}).tasks
    assert [task.path for task in found[:-1]] == [f"handler/loop/train-{index}" for index in range(10)]
    assert (found[-1].path, found[-1].after) == ("exit", tuple(range(10)))


def test_a_loop_over_an_argument_in_a_condition_and_in_a_pipeline_inside_has_its_items() -> None:
    inside = a_dag(looped("loop", DagInput("rows")))
    taken = branch("if", "mode == 'all'", "inside", mode=DagInput("mode"))
    taken = replace(taken, parameters={**taken.parameters, "rows": DagInput("rows")})
    plan = a_plan([taken, group("pipe", "inside", rows=DagInput("rows"))], CONFIG, inside=inside, body=BODY)
    assert len(paths(plan, arguments={"rows": [1, 2], "mode": "all"})) == 4


def test_the_same_pipeline_twice_has_the_items_that_each_is_given() -> None:
    inside = a_dag(looped("loop", DagInput("rows")))
    one, two = group("one", "inside", **constants(rows=[1])), group("two", "inside", **constants(rows=[1, 2]))
    plan = a_plan([one, two], CONFIG, inside=inside, body=BODY)
    assert paths(plan) == ["one/loop/train-0", "two/loop/train-0", "two/loop/train-1"]


def test_a_pipeline_inside_a_loop_runs_in_each_iteration_with_the_item() -> None:
    inside = a_dag(looped("loop", DagInput("rows")))
    outer = a_loop("outer", items=([1], [1, 2], []), dag="each")
    plan = a_plan([outer], CONFIG, each=a_dag(group("pipe", "inside", rows=DagInput("item"))), inside=inside, body=BODY)
    assert paths(plan) == ["outer/pipe-0/loop/train-0", "outer/pipe-1/loop/train-0", "outer/pipe-1/loop/train-1"]


def test_a_loop_over_a_field_of_the_item_and_over_json_in_a_text_has_its_items() -> None:
    outer = a_loop("outer", items=({"rows": [1, 2]}, {"rows": "[3]"}), dag="each")
    plan = a_plan([outer], CONFIG, each=a_dag(looped("inner", DagInput("item", ("rows",)))), body=BODY)
    assert len(paths(plan)) == 3


def test_the_default_of_a_pipeline_inside_gives_the_items() -> None:
    inside = Dag(
        "inside",
        parameters={"rows": replace(LIST, has_default=True, default=[1, 2])},
        tasks={"loop": looped("loop", DagInput("rows"))},
    )
    assert len(paths(a_plan([group("pipe", "inside")], CONFIG, inside=inside, body=BODY))) == 2


def test_a_loop_over_what_a_loop_collected_has_as_many_items() -> None:
    body = a_dag(telling("train"), out="train")
    second = looped("second", TaskOutput("first", "out"), "first", dag="again")
    plan = a_plan([a_loop("first", dag="body"), second], CONFIG, body=body, again=a_body(a_task("use")))
    assert [path for path in paths(plan) if "use" in path] == ["second/use-0", "second/use-1", "second/use-2"]


def test_a_loop_over_the_output_of_a_task_has_one_iteration_and_a_note_or_as_many_as_are_given() -> None:
    plan = a_plan([FLIP, looped("loop", HEADS, "flip")], CONFIG, body=BODY)
    assert paths(plan) == ["flip", "loop/train-0"]
    assert "only the run will know the items of loop: 1 iteration each is planned; give the number" in note(plan)
    assert len(paths(plan, ("loop", Given(iterations=5)))) == 6


def test_what_a_loop_of_unknown_length_collected_has_an_unknown_length_too() -> None:
    body = a_dag(telling("train"), out="train")
    tasks = [FLIP, looped("first", HEADS, "flip"), looped("second", TaskOutput("first", "out"), "first", dag="again")]
    plan = a_plan(tasks, CONFIG, body=body, again=a_body(a_task("use")))
    assert "items of first, second" in note(plan)
    assert sum("use" in path for path in paths(plan, ("first", Given(iterations=4)))) == 4


def test_iterations_are_given_for_a_loop_in_a_loop_and_for_that_of_one_iteration() -> None:
    each = a_dag(FLIP, looped("inner", HEADS, "flip"))
    plan = a_plan([a_loop("outer", items=(1, 2), dag="each")], CONFIG, each=each, body=BODY)
    given = ("outer/inner", Given(iterations=3)), ("outer/inner-1", Given(iterations=2))
    assert sum("train" in path for path in paths(plan, *given)) == 5


def test_items_that_are_known_count_more_than_those_of_an_earlier_run() -> None:
    plan = a_plan([looped("loop", DagInput("rows"))], CONFIG, body=BODY)
    assert len(paths(plan, ("loop", Given(iterations=3)), arguments={"rows": [*range(10)]})) == 10


def test_a_limit_in_an_exit_handler_lets_an_iteration_wait_for_an_earlier_one() -> None:
    body = a_dag(looped("loop", DagInput("rows"), limit=2))
    plan = a_plan([group("handler", "guarded", rows=DagInput("rows"))], CONFIG, guarded=body, body=BODY)
    assert [task.after for task in planned(plan, arguments={"rows": [1, 2, 3, 4]}).tasks] == [(), (), (0,), (1,)]


def test_a_missing_argument_is_named_with_the_flag_that_gives_it() -> None:
    plan = with_parameters(a_plan([looped("loop", DagInput("rows"))], CONFIG, body=BODY), rows=LIST)
    found = note(plan, arguments={"rows": None})
    assert "read arguments without a value (rows): 1 iteration and the dearest branch are planned" in found
    assert "--arg rows=VALUE" in found
    assert "only the run will know" not in found


def test_a_loop_over_no_list_is_said_to_fail() -> None:
    plan = a_plan([a_task("after"), looped("loop", DagInput("rows"))], CONFIG, body=BODY)
    assert "the run will fail at loop, and is planned as if it went on: it loops over items" in note(
        plan, arguments={"rows": 5}
    )


@pytest.mark.parametrize("fields", [{}, {"lr": "lr"}], ids=["of a task", "of the loop"])
def test_a_field_that_an_item_does_not_have_is_said_to_fail(fields: dict[str, str]) -> None:
    loop = a_task("loop", dag="each", loop=Loop("item", raw=({"lr": 1}, {"rate": 2}), fields=fields))
    reads = DagInput("lr") if fields else DagInput("item", ("lr",))
    plan = a_plan([loop], CONFIG, each=a_dag(a_task("train", parameters={"lr": reads})))
    assert len(paths(plan)) == 2
    assert "the run will fail at loop" in note(plan)
    assert "item has no field 'lr': {'rate': 2}" in note(plan)


def test_a_loop_without_items_has_no_task_and_a_pipeline_of_it_alone_is_refused() -> None:
    plan = a_plan([looped("loop", DagInput("rows")), a_task("after", "loop")], CONFIG, body=BODY)
    assert paths(plan, arguments={"rows": []}) == ["after"]
    with pytest.raises(InputError, match="there is nothing to plan"):
        planned(a_plan([looped("loop", DagInput("rows"))], CONFIG, body=BODY), arguments={"rows": []})


def test_too_many_items_are_refused_before_they_are_unfolded() -> None:
    plan = a_plan([looped("loop", DagInput("rows"))], CONFIG, body=BODY)
    with pytest.raises(InputError, match="it loops over 1,000,000 items"):
        planned(plan, arguments={"rows": [0] * 1_000_000})


@pytest.mark.long
def test_too_many_branches_that_are_not_taken_are_refused() -> None:
    each = a_dag(branch("if", "x == 'never'", "small", x=DagInput("item")))
    outer, inner = a_loop("outer", items=(1,) * 400, dag="inner"), a_loop("loop", items=("a",) * 400, dag="each")
    with pytest.raises(InputError, match="more than 100,000 tasks"):
        planned(a_plan([outer], CONFIG, inner=a_dag(inner), each=each, small=SMALL))


# -- conditions


def test_a_condition_on_an_argument_is_decided_and_what_is_left_out_is_named() -> None:
    tasks = [
        branch("if", "mode == 'big'", "big", mode=DagInput("mode")),
        branch("else", "!(mode == 'big')", "small", mode=DagInput("mode")),
    ]
    plan = a_plan(tasks, CONFIG, big=BIG, small=SMALL)
    assert paths(plan, arguments={"mode": "tiny"}) == ["else/small"]
    assert "not planned, because the condition does not hold: if (mode == 'big')" in note(
        plan, arguments={"mode": "tiny"}
    )
    assert len(paths(plan, arguments={"mode": "big"})) == 3


def test_a_condition_on_the_item_of_a_loop_is_decided_for_each_iteration() -> None:
    each = a_dag(branch("if", "x >= 2", "small", kind="NUMBER_INTEGER", x=DagInput("item")))
    plan = a_plan([a_loop("loop", dag="each")], CONFIG, each=each, small=SMALL)
    assert paths(plan) == ["loop/if-1/small", "loop/if-2/small"]
    assert "condition" not in note(plan)


def test_what_follows_a_branch_that_is_not_taken_is_left_out_and_an_exit_task_is_not() -> None:
    left_out = branch("if", "mode == 'big'", "big", mode=DagInput("mode"))
    exit_task = replace(a_task("exit", after_all=True), after=("after",))
    plan = a_plan([left_out, replace(a_task("after"), after=("if",)), exit_task], CONFIG, big=BIG)
    assert paths(plan, arguments={"mode": "small"}) == ["exit"]


@pytest.mark.parametrize("dear_first", [True, False])
def test_of_if_and_else_on_an_output_the_dearer_is_planned(*, dear_first: bool) -> None:
    one, two = (BIG, SMALL) if dear_first else (SMALL, BIG)
    tasks = [
        FLIP,
        branch("if", "x == 'heads'", "one", x=HEADS),
        branch("else", "!(x == 'heads')", "two", x=HEADS),
    ]
    plan = a_plan(tasks, CONFIG, one=one, two=two)
    dear = "if" if dear_first else "else"
    assert paths(plan) == ["flip", *(f"{dear}/t{index}" for index in range(3))]
    assert "only the run will know which conditions hold; the dearest way is planned: with " + dear in note(plan)


def test_of_conditions_that_exclude_each_other_one_is_planned_though_none_is_an_else() -> None:
    tasks = [FLIP, *(branch(side, f"x == '{side}'", "small", x=HEADS) for side in ("heads", "tails", "edge"))]
    plan = a_plan(tasks, CONFIG, small=SMALL)
    assert paths(plan) == ["flip", "heads/small"]
    assert "with heads (x == 'heads'), without tails (x == 'tails'), edge (x == 'edge')" in note(plan)


def test_conditions_that_can_hold_together_are_planned_together() -> None:
    number = telling("flip", kind="NUMBER_INTEGER")
    tasks = [
        number,
        *(branch(f"over-{limit}", f"x > {limit}", "small", kind="NUMBER_INTEGER", x=HEADS) for limit in (5, 8)),
        branch("under", "x < 3", "small", kind="NUMBER_INTEGER", x=HEADS),
    ]
    assert paths(a_plan(tasks, CONFIG, small=SMALL)) == ["flip", "over-5/small", "over-8/small"]


def test_a_number_between_two_limits_is_found_and_no_whole_number_where_there_is_none() -> None:
    def plan(kind: str) -> Plan:
        tasks = [
            telling("flip", kind=kind),
            branch("between", "x > 1 && x < 2", "big", kind=kind, x=HEADS),
            branch("else", "!(x > 1 && x < 2)", "small", kind=kind, x=HEADS),
        ]
        return a_plan(tasks, CONFIG, big=BIG, small=SMALL)

    assert "between/t0" in paths(plan("NUMBER_DOUBLE"))
    assert paths(plan("NUMBER_INTEGER")) == ["flip", "else/small"]


@pytest.mark.parametrize("limit", [0.5, 5.0, -40.0])
def test_an_output_is_compared_with_an_argument_and_the_dearer_branch_is_found(limit: float) -> None:
    kind = "NUMBER_DOUBLE"
    sources: dict[str, Source] = {"x": HEADS, "limit": DagInput("limit")}
    tasks = [
        telling("flip", kind=kind),
        branch("if", "x >= limit", "big", kind=kind, **sources),
        branch("else", "!(x >= limit)", "small", kind=kind, **sources),
    ]
    assert "if/t0" in paths(a_plan(tasks, CONFIG, big=BIG, small=SMALL), arguments={"limit": limit})


def test_a_later_condition_with_another_limit_can_hold_too() -> None:
    kind = "NUMBER_INTEGER"
    first = a_dag(branch("if", "x > 5", "big", kind=kind, x=DagInput("x")))
    tasks = [
        telling("flip", kind=kind),
        group("first", "first", "flip", x=HEADS),
        branch("more", "x > limit", "small", kind=kind, x=HEADS, limit=DagInput("limit")),
        branch("less", "x < 2", "small", kind=kind, x=HEADS),
    ]
    found = paths(a_plan(tasks, CONFIG, first=first, big=BIG, small=SMALL), arguments={"limit": 20})
    assert [path for path in found if "small" in path] == ["more/small"]


def test_a_plan_keeps_to_what_an_earlier_branch_says_of_the_value() -> None:
    branches = a_dag(
        branch("if", "x == 'heads'", "big", x=DagInput("x")),
        branch("else", "!(x == 'heads')", "small", x=DagInput("x")),
    )
    tasks = [
        FLIP,
        group("first", "branches", "flip", x=HEADS),
        branch("same", "x == 'heads'", "small", x=HEADS),
        branch("other", "x == 'tails'", "big", x=HEADS),
    ]
    plan = a_plan(tasks, CONFIG, branches=branches, big=BIG, small=SMALL)
    assert "same/small" in paths(plan)
    assert not any(path.startswith("other") for path in paths(plan))


def test_a_condition_in_a_branch_keeps_to_the_condition_around_it() -> None:
    kind = "NUMBER_INTEGER"
    inside = a_dag(
        branch("never", "x < 3", "big", kind=kind, x=DagInput("x")),
        branch("more", "x > 8", "small", kind=kind, x=DagInput("x")),
    )
    plan = a_plan(
        [telling("flip", kind=kind), branch("if", "x > 5", "inside", kind=kind, x=HEADS)],
        CONFIG,
        inside=inside,
        big=BIG,
        small=SMALL,
    )
    assert paths(plan) == ["flip", "if/more/small"]


def test_a_branch_that_is_left_out_says_nothing_of_the_value() -> None:
    kind = "NUMBER_INTEGER"
    inside = a_dag(branch("much", "x > 20", "small", kind=kind, x=DagInput("x")))
    tasks = [
        telling("flip", kind=kind),
        branch("if", "x > 5", "inside", kind=kind, x=HEADS),
        branch("else", "!(x > 5)", "big", kind=kind, x=HEADS),
    ]
    plan = a_plan(tasks, CONFIG, inside=inside, big=BIG, small=SMALL)
    assert paths(plan) == ["flip", "else/t0", "else/t1", "else/t2"]
    assert "much" not in note(plan)


def test_a_condition_on_an_argument_and_an_output_is_decided_by_the_argument_where_that_is_enough() -> None:
    both = branch("if", "mode == 'on' && x == 'heads'", "small", x=HEADS, mode=DagInput("mode"))
    plan = a_plan([FLIP, both], CONFIG, small=SMALL)
    assert paths(plan, arguments={"mode": "off"}) == ["flip"]
    assert paths(plan, arguments={"mode": "on"}) == ["flip", "if/small"]


def test_what_follows_the_output_of_the_branch_that_is_taken_is_planned() -> None:
    one, two = (a_dag(telling(name), out=name) for name in ("one", "two"))
    branches = Dag(
        "branches",
        tasks={
            "if": branch("if", "x == 'heads'", "one", x=DagInput("x")),
            "else": branch("else", "!(x == 'heads')", "two", x=DagInput("x")),
        },
        parameter_outputs={"out": OneOf((TaskOutput("if", "out"), TaskOutput("else", "out")))},
    )
    tasks = [FLIP, group("branches", "branches", "flip", x=HEADS), a_task("report", "branches")]
    found = planned(a_plan(tasks, CONFIG, branches=branches, one=one, two=two)).tasks
    assert [task.path for task in found] == ["flip", "branches/if/one", "report"]
    assert 1 in found[2].after


def test_conditions_on_different_outputs_are_decided_apart() -> None:
    tasks: list[TaskSpec] = []
    for index in range(12):
        tasks += [telling(f"f{index}"), branch(f"if{index}", "x == 'a'", "small", x=TaskOutput(f"f{index}", "out"))]
    assert len(paths(a_plan(tasks, CONFIG, small=SMALL))) == 24


def test_a_condition_that_no_value_decides_is_taken_to_hold() -> None:
    tasks = [telling("flip", kind="LIST"), branch("if", "x == 'a'", "small", kind="LIST", x=HEADS)]
    plan = a_plan(tasks, CONFIG, small=SMALL)
    assert paths(plan) == ["flip", "if/small"]


def test_a_condition_that_cannot_be_evaluated_is_said_to_fail() -> None:
    tasks = [a_task("first"), branch("if", "x > 1", "small", x=DagInput("x"))]
    found = note(a_plan(tasks, CONFIG, small=SMALL), arguments={"x": "many"})
    assert "the run will fail at if, and is planned as if it went on: its condition x > 1" in found


def test_a_text_that_takes_in_an_unknown_value_is_unknown() -> None:
    text = "{{$.inputs.parameters['x']}}-1"
    inside = a_dag(
        branch("if", "t == 'heads-1'", "big", t=DagInput("t")),
        branch("else", "!(t == 'heads-1')", "small", t=DagInput("t")),
    )
    pipe = group("pipe", "inside", "flip", x=HEADS, **constants(t=text))
    plan = a_plan([FLIP, pipe], CONFIG, inside=inside, big=BIG, small=SMALL)
    assert [path for path in paths(plan) if "pipe" in path] == [f"pipe/if/t{index}" for index in range(3)]
    known = group("pipe", "inside", **constants(t=text, x="tails"))
    assert paths(a_plan([known], CONFIG, inside=inside, big=BIG, small=SMALL)) == ["pipe/else/small"]


def test_the_default_of_an_input_does_not_stand_for_an_unknown_value() -> None:
    pipe = group("pipe", "inside", "flip", x=HEADS)
    pipe = replace(pipe, parameter_specs={"x": replace(TEXT, has_default=True, default="tails")})
    inside = a_dag(branch("if", "x == 'heads'", "big", x=DagInput("x")))
    plan = a_plan([FLIP, pipe], CONFIG, inside=inside, big=BIG)
    assert len(paths(plan)) == 4


def test_a_missing_argument_that_decides_a_branch_is_named() -> None:
    tasks = [branch("if", "mode == 'big'", "big", mode=DagInput("mode")), *a_chain(1)]
    plan = with_parameters(a_plan(tasks, CONFIG, big=BIG), mode=TEXT)
    assert "--arg mode=VALUE" in note(plan, arguments={"mode": None})
    assert len(paths(plan, arguments={"mode": None})) == 4


def test_a_pipeline_whose_only_branch_is_not_taken_is_refused_with_why() -> None:
    plan = a_plan([branch("if", "mode == 'big'", "big", mode=DagInput("mode"))], CONFIG, big=BIG)
    with pytest.raises(InputError, match=r"nothing to plan \(not planned, because the condition does not hold: if"):
        planned(plan, arguments={"mode": "small"})


def test_a_hundred_branches_of_one_value_have_one_planned() -> None:
    tasks = [FLIP, *(branch(f"b{index}", f"x == '{index}'", "small", x=HEADS) for index in range(100))]
    assert len(paths(a_plan(tasks, CONFIG, small=SMALL))) == 2


def test_more_values_than_can_be_tried_leave_every_branch_planned_and_that_is_said() -> None:
    names = [f"f{index}" for index in range(6)]
    text = " && ".join(f"{name} != '{index}'" for index in range(20) for name in names)
    sources: dict[str, Any] = {name: TaskOutput(name, "out") for name in names}
    tasks = [*map(telling, names), branch("if", text, "small", **sources)]
    assert "too many values to try, so that every branch is planned: if" in note(a_plan(tasks, CONFIG, small=SMALL))


# -- settings that inputs decide


def asking(cpu: Source, *after: str) -> Plan:
    """A task that asks for as much cpu as its input says."""
    resources = {"resourceCpuLimit": "{{$.inputs.parameters['cpu']}}"}
    deferred = {"resources": resources, "kubernetes": {}}
    asks = a_task("asks", *after, parameters={"cpu": cpu}, deferred=deferred)
    return a_plan([telling("flip"), asks], CONFIG)


def test_resources_that_an_argument_gives_take_their_share_of_a_node() -> None:
    asks = planned(asking(DagInput("cpu")), arguments={"cpu": "1"}).tasks[1]
    assert [offer.share for offer in asks.spot] == [0.25]


def test_resources_that_an_argument_gives_and_no_node_has_are_refused() -> None:
    with pytest.raises(InputError, match="it asks for 64 cpu, a node has 4 cpu"):
        planned(asking(DagInput("cpu")), arguments={"cpu": "64"})


def test_a_task_whose_resources_only_the_run_will_know_is_planned_on_a_whole_node() -> None:
    asks = planned(asking(HEADS, "flip")).tasks[1]
    assert [offer.share for offer in asks.spot] == [1.0]
