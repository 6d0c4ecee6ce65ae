"""Stories of runs on simulated nodes, of which accounts are computed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st
from tests.views.builders import Story, a_config, a_plan, a_task

from spotwright.model.policy import Spot

steps = st.lists(
    st.tuples(
        st.sampled_from(["done", "taken", "failed", "nothing"]), st.floats(0.001, 500), st.floats(0, 1), st.booleans()
    ),
    max_size=25,
)


requests = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 4000), "memory": st.integers(0, 16 * 2**30)})


def any_story(steps: list[tuple[str, float, float, bool]], asked: list[dict[str, int]], price: Fraction) -> Story:
    """Tasks on nodes that come and go as the steps say; the first task that can does what a step says."""
    config = a_config()
    pools = {**config.pools, "cpu-spot": replace(config.pools["cpu-spot"], price=price)}
    tasks = [a_task(f"task-{index}", requests=each) for index, each in enumerate(asked)]
    policy = {"spot": Spot.PREFER, "errors.retries": 3}
    story = Story(a_plan(*tasks, config=replace(config, pools=pools), policy=policy))
    made = 0
    for what, seconds, progress, shared in steps:
        pending = [task for task in story.state.tasks.values() if task.status.value == "pending"]
        ready = [node.name for node in story.state.nodes.values() if node.state == "ready"]
        if pending and not (shared and ready):
            made += 1
            story.boots(f"cpu-spot-{made}", seconds / 7)
            ready.append(f"cpu-spot-{made}")
        for task in pending[: 2 if shared else 1]:
            story.binds(task.path, ready[-1])
        story.after(seconds)
        running = [task.path for task in story.state.tasks.values() if task.status.value == "running"]
        if running and what != "nothing":
            do(story, what, running[0], progress)
        if story.state.status.value != "running":
            break
    return story


def do(story: Story, what: str, task: str, progress: float) -> None:
    node = story.state.tasks[task].last.node or ""
    if progress > 0.3:
        story.reports(task, progress - 0.3).reports(task, progress)
    if what == "done":
        story.ends(task)
    elif what == "failed":
        story.ends(task, exit_code=1)
    else:
        story.node(node, "gone", "taken")
        for path in [p for p, t in story.state.tasks.items() if t.status.value == "running" and t.last.node == node]:
            story.ends(path, signal=9, node_gone=True, spot=True)
