"""Failures: exit handlers, and tasks that ignore upstream failures."""

from components import fail, text
from kfp import dsl

__all__ = [
    "exit_after_failure",
    "exit_after_success",
    "exit_handlers_several",
    "exit_in_pipeline_inside",
    "exit_with_loop",
    "exit_with_pipeline",
    "failing_branches",
    "failure_ignored",
    "out_of_time",
]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def ending(status: dsl.PipelineTaskFinalStatus, note: str = "") -> str:
    return f"{status.state} {status.pipeline_task_name} {status.error_message} {note}".strip()


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def slow(value: str) -> str:
    import time

    time.sleep(0.5)
    return value


@dsl.pipeline
def exit_after_success():
    """ExitHandler around tasks that succeed; PipelineTaskFinalStatus. kfp.local: another state (SUCCEEDED)"""
    with dsl.ExitHandler(ending(note="bye")):
        text(value="inside")


@dsl.pipeline
def exit_after_failure(message: str = "it broke"):
    """ExitHandler around a task that fails: the exit task runs, and the run fails. kfp.local: another state"""
    with dsl.ExitHandler(ending(), name="guarded"):
        first = fail(message=message)
        text(value=first.output)
        slow(value="runs to its end")


@dsl.pipeline
def exit_handlers_several():
    """Several exit handlers, each with its own status. kfp.local: another state"""
    with dsl.ExitHandler(ending(note="one"), name="one"):
        fail(message="first")
    with dsl.ExitHandler(ending(note="two"), name="two"):
        text(value=slow(value="second").output)
    with dsl.ExitHandler(text(value="three"), name="three"):
        text(value="third")


@dsl.pipeline
def cleaning(note: str = "") -> str:
    return text(value=text(value=f"clean {note}").output).output


@dsl.pipeline
def exit_with_pipeline():
    """A pipeline as the exit task, after a failure."""
    with dsl.ExitHandler(cleaning(note="up")):
        fail(message="no")


@dsl.pipeline
def guarded(message: str) -> None:
    with dsl.ExitHandler(ending(note=message)):
        fail(message=message)


@dsl.pipeline
def exit_in_pipeline_inside():
    """Exit handlers in a pipeline inside an exit handler: the inner one runs first. kfp.local: another state"""
    with dsl.ExitHandler(ending(note="outer")):
        guarded(message="inner")


@dsl.pipeline
def exit_with_loop():
    """A loop in an exit handler, one iteration fails: those that have begun run to their end. kfp.local: another state"""
    with dsl.ExitHandler(ending(), name="guarded"):
        with dsl.ParallelFor(["a", "b"], name="loop") as letter:
            slow(value=letter)
            with dsl.If(letter == "a"):
                fail(message="in a")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def afterwards(value: str = "by default") -> str:
    return value


@dsl.pipeline
def failure_ignored():
    """ignore_upstream_failure, with defaults for outputs of failed tasks. kfp.local: no"""
    failed = fail(message="no")
    text(value=failed.output)
    afterwards(value=failed.output).ignore_upstream_failure()
    afterwards(value=text(value="well").output).ignore_upstream_failure()


@dsl.pipeline
def failing_branches():
    """Fail fast: tasks that run beside a failed task end, tasks that follow them do not begin."""
    fail(message="at once")
    text(value=slow(value="runs on").output)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def state_of(status: dsl.PipelineTaskFinalStatus) -> str:
    return status.state


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def never_ends():
    import time

    time.sleep(600)


@dsl.pipeline(pipeline_config=dsl.PipelineConfig(active_deadline_seconds=1))
def out_of_time():
    """A run that exceeds active_deadline_seconds fails, and its exit tasks run. kfp.local: no limit"""
    with dsl.ExitHandler(state_of(), name="guarded"):
        text(value="never").after(never_ends().set_retry(5))
