"""Spot policies in the pipeline itself: ``spot.prefer``, ``spot.require`` and ``spot.never`` of a task, ``spot.defaults`` of all.

The policy is stored in the compiled file, as one JSON string per task under ``platforms.spotwright`` (numbers in a platform's
struct would become floats), and on the task's pod as a label and an annotation, for a cluster's webhook. The pod's metadata
also make the entry under ``platforms.kubernetes``, without which a KFP server mistakes the platform document for the pipeline.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack

from spotwright.errors import PipelineError
from spotwright.model.policy import PolicyValueError, check, parse_policy, resolve

__all__ = ["NeverOptions", "PreferOptions", "RequireOptions", "defaults", "never", "prefer", "require"]

_Task = TypeVar("_Task")
_Decorated = TypeVar("_Decorated")
_Function = TypeVar("_Function", bound=Callable[..., Any])

_LABEL = "spotwright.dev/spot"
_ANNOTATION = "spotwright.dev/policy"
_MAX_ANNOTATION = 1023  # bytes
_GPU = "nvidia.com/gpu"
_FIELD_OF = {"interruptions": ("interruptions", "max"), "retries": ("errors", "retries")}
_OPTION_OF = {".".join(field): option for option, field in _FIELD_OF.items()}
_OF_ONE_TASK = ("gpus", "checkpoint")


class NeverOptions(TypedDict, total=False):
    """The keyword arguments of :func:`never`; :func:`prefer` says what each means. ``None`` equals omitting it."""

    retries: int | None
    gpus: int | None
    ladder: Iterable[str] | None
    pending_timeout: str | float | None
    timeout: str | float | None
    grace_period: str | float | None
    checkpoint: str | None


class RequireOptions(NeverOptions, total=False):
    """The keyword arguments of :func:`require`: as for :func:`never`, with those for interruptions."""

    interruptions: int | None
    deadline: str | float | None


class PreferOptions(RequireOptions, total=False):
    """The keyword arguments of :func:`prefer`: as for :func:`require`, with those for leaving spot."""

    fall_back_after: int | None


_DEFAULTS_OPTIONS = ("spot", *(name for name in PreferOptions.__annotations__ if name not in _OF_ONE_TASK))


def _shows(options: Iterable[str]) -> Callable[[_Function], _Function]:
    """Let ``help()``, notebooks and the reference show each option as a keyword argument instead of ``**options``."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        fixed = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=PreferOptions.__annotations__[name].__forward_arg__,
            )
            for name in options
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*fixed, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate


@_shows(PreferOptions.__annotations__)
def prefer(task: _Task, **options: Unpack[PreferOptions]) -> _Task:
    """Run a task on spot pools first, and on on-demand pools when spot is reclaimed or unavailable. Returns the task.

    ``interruptions`` and ``retries`` are budgets: the allowed interruptions and failures. ``gpus`` asks for that many GPUs of
    any kind. ``ladder`` names pools in the order of trial; ``fall_back_after`` is the number of interruptions after which only
    on-demand pools are used. Durations are text (``"10m"``) or seconds: ``pending_timeout`` waits for a node before the next
    pool is tried, ``timeout`` ends an attempt, ``grace_period`` is between SIGTERM and SIGKILL. ``checkpoint`` is a folder, a
    URL or ``pvc://NAME``; ``deadline`` a duration from the start or a time with zone.

    Raises ``TypeError`` for an unknown argument, ``ValueError`` that names the argument and the value it expects, and
    :class:`~spotwright.errors.PipelineError` for something that is not a task of a pipeline, or a task that is a pipeline itself.
    """
    return _set_policy("prefer", task, options, PreferOptions.__annotations__)


@_shows(RequireOptions.__annotations__)
def require(task: _Task, **options: Unpack[RequireOptions]) -> _Task:
    """Run a task on spot pools only: it waits, or fails, without one. Arguments as of :func:`prefer`.

    A ``deadline`` is not certain on spot alone, so it must be best-effort: ``deadline="8h best-effort"``.
    """
    return _set_policy("require", task, options, RequireOptions.__annotations__)


@_shows(NeverOptions.__annotations__)
def never(task: _Task, **options: Unpack[NeverOptions]) -> _Task:
    """Run a task on on-demand pools only. Arguments as of :func:`prefer`."""
    return _set_policy("never", task, options, NeverOptions.__annotations__)


@_shows(_DEFAULTS_OPTIONS)
def defaults(*, spot: str | None = None, **options: Unpack[PreferOptions]) -> Callable[[_Decorated], _Decorated]:
    """Give every task of a pipeline a policy, unless the task has its own.

    Write it above ``@dsl.pipeline``::

        @spot.defaults(spot="prefer", interruptions=5)
        @dsl.pipeline
        def training(url: str): ...

    ``spot`` is ``"prefer"``, ``"require"`` or ``"never"``; the other arguments are as for :func:`prefer`, except ``gpus``
    and ``checkpoint``, which belong to one task. It applies to the pipeline that is run, not to one inside another pipeline.
    """
    _check_names("defaults", options, _DEFAULTS_OPTIONS)
    text = _policy_text({"spot": spot, **options})

    def decorate(pipeline: _Decorated) -> _Decorated:
        platforms = getattr(getattr(pipeline, "platform_spec", None), "platforms", None)
        if platforms is None or not hasattr(pipeline, "pipeline_func"):
            raise PipelineError("spot.defaults stands above @dsl.pipeline, not below it or on something else")
        platforms["spotwright"].config.update({"policy": text})
        platforms["kubernetes"].SetInParent()
        return pipeline

    return decorate


def _check_names(function: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``TypeError``, with the nearest name, for an option that a function does not take."""
    for name in options:
        if name in known:
            continue
        others = [other for other, taken in _OPTIONS.items() if name in taken]
        close = difflib.get_close_matches(name, known, n=1)
        if others:
            hint = f"it is one of {', '.join(f'spot.{other}' for other in others)}"
        else:
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}"
        raise TypeError(f"spot.{function} takes no argument {name!r}; {hint}")


_OPTIONS: Mapping[str, Iterable[str]] = {
    "prefer": PreferOptions.__annotations__,
    "require": RequireOptions.__annotations__,
    "never": NeverOptions.__annotations__,
    "defaults": _DEFAULTS_OPTIONS,
}


def _set_policy(spot: str, task: _Task, options: Mapping[str, Any], known: Iterable[str]) -> _Task:
    _check_names(spot, options, known)
    _check_task(spot, task)
    target: Any = task
    text = _policy_text({"spot": spot, **{name: value for name, value in options.items() if name != "gpus"}})
    if options.get("gpus") is not None:
        _request_gpus(target, options["gpus"])
    target.platform_config["spotwright"] = {"policy": text}
    metadata = target.platform_config.setdefault("kubernetes", {}).setdefault("podMetadata", {})
    metadata.setdefault("labels", {})[_LABEL] = spot
    metadata.setdefault("annotations", {})[_ANNOTATION] = text
    return task


def _check_task(spot: str, task: Any) -> None:
    """Raise :class:`PipelineError` for anything but a task whose code runs in its own pod."""
    if not hasattr(task, "platform_config") or not hasattr(task, "container_spec"):
        kind = type(task).__name__
        raise PipelineError(
            f"spot.{spot}: expected a task, which a component returns inside a @dsl.pipeline function, got {kind}"
        )
    if getattr(task, "pipeline_spec", None) is not None:
        raise PipelineError(
            f"spot.{spot}: {task.name} is a pipeline, and KFP keeps no settings for it; set the policy inside that pipeline, or "
            f'by path in spotwright.yaml: policy: {{tasks: {{"{task.name}/**": {{spot: {spot}}}}}}}'
        )
    if task.container_spec is None:
        raise PipelineError(f"spot.{spot}: {task.name} is an importer, which has no pod; leave its policy out")


def _policy_text(options: Mapping[str, Any]) -> str:
    """The policy as one JSON text in the shape of ``spotwright.yaml``. Raises ``ValueError`` for a wrong value."""
    policy: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        group, field = _FIELD_OF.get(name, ("", name))
        given = list(value) if name == "ladder" and not isinstance(value, str) else value
        (policy.setdefault(group, {}) if group else policy)[field] = given
    try:
        layer = parse_policy(policy, "these arguments")
    except PolicyValueError as error:
        raise PolicyValueError(_OPTION_OF.get(error.field, error.field), error.expected, error.given) from error
    for problem in check(resolve([layer])):
        raise ValueError(problem.replace(" (these arguments)", ""))
    text = json.dumps(policy, separators=(",", ":"))
    if "{{" in text or len(text.encode()) > _MAX_ANNOTATION:
        raise ValueError(
            f"the policy must be under 1 KiB and hold no '{{{{', because it travels in an annotation: {text[:80]}"
        )
    return text


def _request_gpus(task: Any, gpus: Any) -> None:
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
        raise PolicyValueError("gpus", "a whole number, 1 or more", gpus)
    resources = task.container_spec.resources
    if resources is None or not resources.accelerator_type:
        task.set_accelerator_type(_GPU)
    task.set_accelerator_limit(gpus)
