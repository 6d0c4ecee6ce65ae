"""Policies that a pipeline sets itself: ``spot.prefer``, ``spot.require``, ``spot.never`` and ``spot.defaults``."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest

from spotwright.errors import PipelineError
from spotwright.model.policy import PolicyValueError
from spotwright.policies import NeverOptions, PreferOptions, RequireOptions, defaults, never, prefer, require


class Container:
    def __init__(self) -> None:
        self.resources: Any = None


class Task:
    """As much of an SDK task as the functions touch; the real one is compiled in the fixture ``training``."""

    name = "train"
    pipeline_spec: Any = None

    def __init__(self) -> None:
        self.platform_config: dict[str, Any] = {}
        self.container_spec: Any = Container()
        self.gpus: list[Any] = []

    def set_accelerator_type(self, kind: str) -> None:
        self.gpus.append(kind)

    def set_accelerator_limit(self, count: int) -> None:
        self.gpus.append(count)


def policy(task: Task) -> Any:
    return json.loads(task.platform_config["spotwright"]["policy"])


@pytest.mark.parametrize(("function", "word"), [(prefer, "prefer"), (require, "require"), (never, "never")])
def test_each_function_returns_the_task_with_its_policy(function: Any, word: str) -> None:
    task = Task()
    assert function(task, retries=2, timeout="1h") is task
    assert policy(task) == {"spot": word, "errors": {"retries": 2}, "timeout": "1h"}


def test_every_argument_is_written_in_the_shape_of_the_configuration() -> None:
    task = prefer(
        Task(), interruptions=5, retries=1, ladder=("a", "b"), fall_back_after=3, pending_timeout="1m", timeout=60,
        grace_period="20s", checkpoint="pvc://c",
    )  # fmt: skip
    assert policy(task) == {
        "spot": "prefer", "interruptions": {"max": 5}, "errors": {"retries": 1}, "ladder": ["a", "b"], "fall_back_after": 3,
        "pending_timeout": "1m", "timeout": 60, "grace_period": "20s", "checkpoint": "pvc://c",
    }  # fmt: skip
    assert policy(prefer(Task(), deadline="8h"))["deadline"] == "8h"


def test_label_and_annotation_are_added_to_the_pod_metadata() -> None:
    task = Task()
    task.platform_config["kubernetes"] = {"podMetadata": {"labels": {"team": "a"}}, "tolerations": [{"key": "k"}]}
    never(task)
    kubernetes = task.platform_config["kubernetes"]
    assert kubernetes["podMetadata"]["labels"] == {"team": "a", "spotwright.dev/spot": "never"}
    assert json.loads(kubernetes["podMetadata"]["annotations"]["spotwright.dev/policy"]) == {"spot": "never"}
    assert kubernetes["tolerations"] == [{"key": "k"}]


def test_the_last_call_counts() -> None:
    task = require(prefer(Task(), interruptions=3))
    assert policy(task) == {"spot": "require"}
    assert task.platform_config["kubernetes"]["podMetadata"]["labels"]["spotwright.dev/spot"] == "require"


def test_gpus_are_of_the_type_that_the_task_names_or_else_nvidia() -> None:
    task = prefer(Task(), gpus=4)
    assert task.gpus == ["nvidia.com/gpu", 4]
    typed = Task()
    typed.container_spec.resources = type("Resources", (), {"accelerator_type": "amd.com/gpu"})()
    assert prefer(typed, gpus=1).gpus == [1]


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (prefer, {"interruptions": -1}, "interruptions: -1 is wrong; expected a whole number"),
        (prefer, {"retries": "2"}, "retries: '2' is wrong"),
        (prefer, {"gpus": 0}, "gpus: 0 is wrong; expected a whole number, 1 or more"),
        (prefer, {"gpus": True}, "gpus: True is wrong"),
        (prefer, {"timeout": "soon"}, "timeout: 'soon' is wrong; expected a duration"),
        (prefer, {"ladder": "spot-a"}, "ladder: 'spot-a' is wrong; expected a list"),
        (require, {"deadline": "tomorrow"}, "deadline: 'tomorrow' is wrong"),
        (prefer, {"interruptions": 2, "fall_back_after": 3}, "fall_back_after is 3 .*interruptions.max is 2"),
        (require, {"deadline": "8h"}, "deadline cannot be guaranteed with spot: require"),
        (prefer, {"deadline": "8h", "pending_timeout": "1m"}, "pending_timeout has no effect with a deadline"),
        (prefer, {"ladder": ["{{$.x}}"]}, "hold no '{{'"),
        (prefer, {"checkpoint": "{{$.x}}"}, "checkpoint: '{{.*}}' is wrong; expected .* without placeholders"),
        (prefer, {"checkpoint": "s3://" + "x" * 1000}, "under 1 KiB"),
    ],
)
def test_the_error_for_a_wrong_argument_names_the_expected_value(
    function: Any, arguments: dict[str, Any], words: str
) -> None:
    task = Task()
    with pytest.raises(ValueError, match=words):
        function(task, **arguments)
    assert task.platform_config == {}


def test_the_error_for_a_wrong_value_has_the_name_of_the_argument() -> None:
    with pytest.raises(PolicyValueError) as error:
        prefer(Task(), retries=-1)
    assert error.value.field == "retries"


def test_for_a_task_that_is_a_pipeline_the_error_names_the_setting_in_the_configuration() -> None:
    task = Task()
    task.pipeline_spec = object()
    with pytest.raises(
        PipelineError, match=r'by path in spotwright.yaml: policy: {tasks: {"train/\*\*": {spot: prefer}}}'
    ):
        prefer(task)


def test_a_value_that_is_no_task_is_refused() -> None:
    importer = Task()
    importer.container_spec = None
    with pytest.raises(PipelineError, match="train is an importer"):
        never(importer)
    with pytest.raises(PipelineError, match=r"spot\.never: expected a task, .* got str"):
        never("train")
    with pytest.raises(PipelineError, match=r"spot\.defaults stands above @dsl\.pipeline"):
        defaults(spot="prefer")(len)


def test_a_wrong_default_is_refused_by_the_decorator() -> None:
    with pytest.raises(ValueError, match="spot: 'maybe' is wrong"):
        defaults(spot="maybe")


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (prefer, {"interuptions": 2}, "spot.prefer takes no argument 'interuptions'; did you mean 'interruptions'?"),
        (never, {"deadline": "8h"}, "it is one of spot.prefer, spot.require, spot.defaults"),
        (require, {"fall_back_after": 2}, "it is one of spot.prefer, spot.defaults"),
        (never, {"zone": "1"}, "it takes retries, gpus, ladder, "),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_name(function: Any, options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        function(Task(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spott": "never"}, "spot.defaults takes no argument 'spott'; did you mean 'spot'?"),
        ({"gpus": 2}, "it is one of spot.prefer, spot.require, spot.never"),
    ],
)
def test_an_argument_that_is_no_default_is_refused(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        defaults(**options)


@pytest.mark.parametrize(
    ("function", "options"), [(prefer, PreferOptions), (require, RequireOptions), (never, NeverOptions)]
)
def test_help_shows_each_option_as_a_keyword_with_its_type(function: Any, options: Any) -> None:
    shown = inspect.signature(function).parameters

    assert [name for name in shown if name != "task"] == list(options.__annotations__)
    assert {shown[name].kind for name in options.__annotations__} == {inspect.Parameter.KEYWORD_ONLY}
    assert shown["timeout"].annotation == "str | float | None"


def test_the_documentation_of_prefer_explains_each_option() -> None:
    assert [name for name in PreferOptions.__annotations__ if f"``{name}``" not in (prefer.__doc__ or "")] == []


def test_the_defaults_of_a_pipeline_take_all_options_but_those_of_one_task() -> None:
    shown = set(inspect.signature(defaults).parameters)

    assert shown == {"spot", *PreferOptions.__annotations__} - {"gpus", "checkpoint"}


def test_an_option_of_none_is_left_out() -> None:
    assert policy(prefer(Task(), interruptions=None, gpus=None, ladder=None)) == {"spot": "prefer"}


def test_type_checkers_refuse_an_unknown_argument_too() -> None:
    """With ``warn_unused_ignores`` mypy fails here as soon as it accepts one of these calls."""
    with pytest.raises(TypeError):
        prefer(Task(), interuptions=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        require(Task(), fall_back_after=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        never(Task(), deadline="8h")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="retries"):
        prefer(Task(), retries="2")  # type: ignore[arg-type]
