"""What a pipeline says about spot itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotwright.errors import PipelineError
from spotwright.model.policy_values import PolicyValueError
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.policies import defaults, never, prefer, require


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
def test_each_function_gives_the_task_back_with_its_policy(function: Any, word: str) -> None:
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


def test_the_pod_carries_label_and_annotation_beside_what_is_there() -> None:
    task = Task()
    task.platform_config["kubernetes"] = {"podMetadata": {"labels": {"team": "a"}}, "tolerations": [{"key": "k"}]}
    never(task)
    kubernetes = task.platform_config["kubernetes"]
    assert kubernetes["podMetadata"]["labels"] == {"team": "a", "spotwright.dev/spot": "never"}
    assert json.loads(kubernetes["podMetadata"]["annotations"]["spotwright.dev/policy"]) == {"spot": "never"}
    assert kubernetes["tolerations"] == [{"key": "k"}]


def test_the_last_word_counts() -> None:
    task = require(prefer(Task(), interruptions=3))
    assert policy(task) == {"spot": "require"}
    assert task.platform_config["kubernetes"]["podMetadata"]["labels"]["spotwright.dev/spot"] == "require"


def test_gpus_ask_for_a_kind_unless_the_user_did() -> None:
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
        (require, {"deadline": "8h"}, "deadline cannot be kept beside spot: require"),
        (prefer, {"deadline": "8h", "pending_timeout": "1m"}, "pending_timeout has no meaning beside a deadline"),
        (prefer, {"checkpoint": "{{$.x}}"}, "hold no '{{'"),
        (prefer, {"checkpoint": "s3://" + "x" * 1000}, "under 1 KiB"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(function: Any, arguments: dict[str, Any], words: str) -> None:
    task = Task()
    with pytest.raises(ValueError, match=words):
        function(task, **arguments)
    assert task.platform_config == {}


def test_a_wrong_value_is_an_error_that_carries_the_arguments_name() -> None:
    with pytest.raises(PolicyValueError) as error:
        prefer(Task(), retries=-1)
    assert error.value.field == "retries"


def test_a_task_that_is_a_pipeline_is_told_where_to_say_it() -> None:
    task = Task()
    task.pipeline_spec = object()
    with pytest.raises(
        PipelineError, match=r'by path in spotwright.yaml: policy: {tasks: {"train/\*\*": {spot: prefer}}}'
    ):
        prefer(task)


def test_what_is_no_task_is_refused() -> None:
    importer = Task()
    importer.container_spec = None
    with pytest.raises(PipelineError, match="train is an importer"):
        never(importer)
    with pytest.raises(PipelineError, match=r"spot\.never: expected a task, .* got str"):
        never("train")
    with pytest.raises(PipelineError, match=r"spot\.defaults stands above @dsl\.pipeline"):
        defaults(spot="prefer")(len)


def test_a_wrong_default_is_refused_where_it_stands() -> None:
    with pytest.raises(ValueError, match="spot: 'maybe' is wrong"):
        defaults(spot="maybe")


def test_the_real_compiler_keeps_policy_label_annotation_and_default(training: Compiled) -> None:
    (label,) = training.platform["spotwright"]["deploymentSpec"]["executors"]
    text = training.platform["spotwright"]["deploymentSpec"]["executors"][label]["policy"]
    pod = training.platform["kubernetes"]["deploymentSpec"]["executors"][label]["podMetadata"]
    assert json.loads(text) == {"spot": "prefer", "interruptions": {"max": 5}}
    assert pod == {"labels": {"spotwright.dev/spot": "prefer"}, "annotations": {"spotwright.dev/policy": text}}
    assert json.loads(training.platform["spotwright"]["config"]["policy"]) == {
        "spot": "prefer",
        "interruptions": {"max": 3},
    }
