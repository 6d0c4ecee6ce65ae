"""What a pipeline says about spot, in the pipeline itself: ``spot.prefer(task)`` and its kind.

The policy travels in the compiled file as one JSON text a task under ``platforms.spotwright`` (numbers in a platform's
struct would come back as floats), and on the task's pod as a label and an annotation, for the webhook of a cluster. The
entry under ``platforms.kubernetes`` that this makes is needed in any case: a KFP server takes a platform document without
it for the pipeline itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from spotwright.errors import PipelineError
from spotwright.model.policy import resolve
from spotwright.model.policy_values import PolicyValueError, check, parse_policy

__all__ = ["defaults", "never", "prefer", "require"]

_Task = TypeVar("_Task")
_Decorated = TypeVar("_Decorated")

_LABEL = "spotwright.dev/spot"
_ANNOTATION = "spotwright.dev/policy"
_LONGEST = 1023  # bytes of the annotation
_GPU = "nvidia.com/gpu"
_FIELD_OF = {"interruptions": ("interruptions", "max"), "retries": ("errors", "retries")}
_ARGUMENT_OF = {".".join(field): argument for argument, field in _FIELD_OF.items()}


def prefer(  # noqa: PLR0913 - each is a field of the policy, by keyword only
    task: _Task,
    *,
    interruptions: int | None = None,
    retries: int | None = None,
    gpus: int | None = None,
    ladder: Iterable[str] | None = None,
    fall_back_after: int | None = None,
    pending_timeout: str | float | None = None,
    timeout: str | float | None = None,
    grace_period: str | float | None = None,
    checkpoint: str | None = None,
    deadline: str | float | None = None,
) -> _Task:
    """Run a task on spot pools first, and on on-demand pools when spot is taken away or not to be had. Gives the task back.

    ``interruptions`` and ``retries`` are budgets: how often it may be interrupted, and how often it may fail. ``gpus`` asks
    for that many GPUs of any kind. ``ladder`` names pools in the order in which they are tried; ``fall_back_after`` is the
    number of interruptions after which only on-demand is used. Durations are text (``"10m"``) or seconds: ``pending_timeout``
    waits for a node before the next pool is tried, ``timeout`` ends an attempt, ``grace_period`` is between SIGTERM and
    SIGKILL. ``checkpoint`` is a folder, a URL or ``pvc://NAME``; ``deadline`` a duration from the start or a time with zone.

    Raises ``ValueError`` that names the argument and what was expected, :class:`~spotwright.errors.PipelineError` for
    something that is no task of a pipeline, or a task that is a pipeline itself.
    """
    said = {
        "interruptions": interruptions, "retries": retries, "ladder": ladder, "fall_back_after": fall_back_after,
        "pending_timeout": pending_timeout, "timeout": timeout, "grace_period": grace_period, "checkpoint": checkpoint,
        "deadline": deadline,
    }  # fmt: skip
    return _say("prefer", task, said, gpus)


def require(  # noqa: PLR0913 - as prefer
    task: _Task,
    *,
    interruptions: int | None = None,
    retries: int | None = None,
    gpus: int | None = None,
    ladder: Iterable[str] | None = None,
    pending_timeout: str | float | None = None,
    timeout: str | float | None = None,
    grace_period: str | float | None = None,
    checkpoint: str | None = None,
    deadline: str | float | None = None,
) -> _Task:
    """Run a task on spot pools only: it waits, or fails, where there is none. Arguments as of :func:`prefer`.

    A ``deadline`` cannot be kept for certain on spot alone, so it must say that: ``deadline="8h best-effort"``.
    """
    said = {
        "interruptions": interruptions, "retries": retries, "ladder": ladder, "pending_timeout": pending_timeout,
        "timeout": timeout, "grace_period": grace_period, "checkpoint": checkpoint, "deadline": deadline,
    }  # fmt: skip
    return _say("require", task, said, gpus)


def never(
    task: _Task,
    *,
    retries: int | None = None,
    gpus: int | None = None,
    ladder: Iterable[str] | None = None,
    pending_timeout: str | float | None = None,
    timeout: str | float | None = None,
    grace_period: str | float | None = None,
    checkpoint: str | None = None,
) -> _Task:
    """Run a task on on-demand pools only. Arguments as of :func:`prefer`."""
    said = {
        "retries": retries, "ladder": ladder, "pending_timeout": pending_timeout, "timeout": timeout,
        "grace_period": grace_period, "checkpoint": checkpoint,
    }  # fmt: skip
    return _say("never", task, said, gpus)


def defaults(  # noqa: PLR0913 - as prefer
    *,
    spot: str | None = None,
    interruptions: int | None = None,
    retries: int | None = None,
    ladder: Iterable[str] | None = None,
    fall_back_after: int | None = None,
    pending_timeout: str | float | None = None,
    timeout: str | float | None = None,
    grace_period: str | float | None = None,
    deadline: str | float | None = None,
) -> Callable[[_Decorated], _Decorated]:
    """Give every task of a pipeline a policy, where the task has none of its own.

    It stands above ``@dsl.pipeline``::

        @spot.defaults(spot="prefer", interruptions=5)
        @dsl.pipeline
        def training(url: str): ...

    ``spot`` is ``"prefer"``, ``"require"`` or ``"never"``; the other arguments are those of :func:`prefer`. It counts for
    the pipeline that is run, not for one inside another pipeline.
    """
    said = {
        "spot": spot, "interruptions": interruptions, "retries": retries, "ladder": ladder,
        "fall_back_after": fall_back_after, "pending_timeout": pending_timeout, "timeout": timeout,
        "grace_period": grace_period, "deadline": deadline,
    }  # fmt: skip
    text = _policy_text(said)

    def decorate(pipeline: _Decorated) -> _Decorated:
        platforms = getattr(getattr(pipeline, "platform_spec", None), "platforms", None)
        if platforms is None or not hasattr(pipeline, "pipeline_func"):
            raise PipelineError("spot.defaults stands above @dsl.pipeline, not below it or on something else")
        platforms["spotwright"].config.update({"policy": text})
        platforms["kubernetes"].SetInParent()
        return pipeline

    return decorate


def _say(spot: str, task: _Task, said: dict[str, Any], gpus: int | None) -> _Task:
    _refuse_others(spot, task)
    target: Any = task
    text = _policy_text({"spot": spot, **said})
    if gpus is not None:
        _ask_for_gpus(target, gpus)
    target.platform_config["spotwright"] = {"policy": text}
    metadata = target.platform_config.setdefault("kubernetes", {}).setdefault("podMetadata", {})
    metadata.setdefault("labels", {})[_LABEL] = spot
    metadata.setdefault("annotations", {})[_ANNOTATION] = text
    return task


def _refuse_others(spot: str, task: Any) -> None:
    if not hasattr(task, "platform_config") or not hasattr(task, "container_spec"):
        kind = type(task).__name__
        raise PipelineError(f"spot.{spot}: expected a task, which a component gives inside a @dsl.pipeline, got {kind}")
    if getattr(task, "pipeline_spec", None) is not None:
        raise PipelineError(
            f"spot.{spot}: {task.name} is a pipeline, and KFP keeps no settings for it; say it inside that pipeline, or "
            f'by path in spotwright.yaml: policy: {{tasks: {{"{task.name}/**": {{spot: {spot}}}}}}}'
        )
    if task.container_spec is None:
        raise PipelineError(f"spot.{spot}: {task.name} is an importer, which runs nowhere; leave its policy out")


def _policy_text(said: dict[str, Any]) -> str:
    """The policy as one JSON text in the shape of ``spotwright.yaml``, checked."""
    policy: dict[str, Any] = {}
    for name, value in said.items():
        if value is None:
            continue
        group, field = _FIELD_OF.get(name, ("", name))
        given = list(value) if name == "ladder" and not isinstance(value, str) else value
        (policy.setdefault(group, {}) if group else policy)[field] = given
    try:
        layer = parse_policy(policy, "these arguments")
    except PolicyValueError as error:
        raise PolicyValueError(_ARGUMENT_OF.get(error.field, error.field), error.expected, error.given) from error
    for problem in check(resolve([layer])):
        raise ValueError(problem.replace(" (these arguments)", ""))
    text = json.dumps(policy, separators=(",", ":"))
    if "{{" in text or len(text.encode()) > _LONGEST:
        raise ValueError(
            f"the policy must be under 1 KiB and hold no '{{{{', because it travels in an annotation: {text[:80]}"
        )
    return text


def _ask_for_gpus(task: Any, gpus: Any) -> None:
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
        raise PolicyValueError("gpus", "a whole number, 1 or more", gpus)
    resources = task.container_spec.resources
    if resources is None or not resources.accelerator_type:
        task.set_accelerator_type(_GPU)
    task.set_accelerator_limit(gpus)
