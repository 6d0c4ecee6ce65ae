"""Options that several commands share, and the conversion of their texts to values."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import yaml

from spotwright.model.quantities import parse_duration
from spotwright.runs.run_options import CONTAINER_MODES, DEFAULT_STATE

__all__ = [
    "Duration",
    "PipelineOptions",
    "arguments_option",
    "config_option",
    "json_option",
    "parse_arguments",
    "pipeline_option",
    "pipeline_options",
    "policy_of",
    "state_option",
]

_Command = Callable[..., Any]


if TYPE_CHECKING:
    _FloatType = click.ParamType[float, Any]
else:
    _FloatType = click.ParamType  # before click 8.5 it takes no types


class Duration(_FloatType):
    """Converts a duration such as ``20s`` or ``5m`` to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the text, or fail with the expected format."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def state_option(command: _Command) -> _Command:
    """``--state FOLDER``."""
    return click.option(
        "--state", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True,
        envvar="SPOTWRIGHT_STATE", metavar="FOLDER", help="The state folder, which keeps all runs.",
    )(command)  # fmt: skip


def json_option(command: _Command) -> _Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def pipeline_option(command: _Command) -> _Command:
    """``--pipeline NAME``, for a file with several pipelines."""
    return click.option(
        "--pipeline", "pipeline_name", metavar="NAME",
        help="The pipeline, if the file has several.  [default: the one that uses the others]",
    )(command)  # fmt: skip


def arguments_option(command: _Command) -> _Command:
    """``--arg NAME=VALUE``, repeatable; :func:`parse_arguments` parses the texts."""
    return click.option(
        "--arg", "argument_texts", metavar="NAME=VALUE", multiple=True,
        help="A pipeline argument; for an artifact its path or URI. @env:VAR and @file:PATH keep the value out of all records.",
    )(command)  # fmt: skip


def config_option(beside: str) -> Callable[[_Command], _Command]:
    """``--config FILE``; by default ``spotwright.yaml`` beside the file that ``beside`` describes, or above it."""
    help_text = f"The configuration.  [default: spotwright.yaml beside {beside}, or above it in its repository]"
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=help_text)


def _containers_option(command: _Command) -> _Command:
    """``--containers MODE``."""
    return click.option(
        "--containers", type=click.Choice(CONTAINER_MODES), default="auto", show_default=True,
        help="The runtime of container components. auto: podman, else docker; host: processes of this machine.",
    )(command)  # fmt: skip


def _seed_option(command: _Command) -> _Command:
    """``--seed NUMBER``."""
    return click.option("--seed", type=int, help="Makes all random choices repeatable.  [default: drawn and printed]")(
        command
    )


class PipelineOptions(NamedTuple):
    """The values of the options of every command that executes a pipeline. ``config``: None for the default file."""

    pipeline_name: str | None
    arguments: Mapping[str, str]
    config: Path | None
    containers: str
    seed: int | None
    state: Path
    as_json: bool


def pipeline_options(*own_options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Declare the options of :class:`PipelineOptions` around a command's own options.

    The command receives the values of the shared options as its first positional argument, its own ones by name.
    """

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def with_shared(
            *,
            pipeline_name: str | None,
            argument_texts: tuple[str, ...],
            config: Path | None,
            containers: str,
            seed: int | None,
            state: Path,
            as_json: bool,
            **own: Any,
        ) -> Any:
            arguments = parse_arguments(argument_texts)
            shared = PipelineOptions(pipeline_name, arguments, config, containers, seed, state, as_json)
            return command(shared, **own)

        first = (pipeline_option, arguments_option, config_option("the pipeline"), _containers_option, _seed_option)
        decorated: _Command = with_shared
        for option in reversed((*first, *own_options, state_option, json_option)):
            decorated = option(decorated)
        return decorated

    return decorate


def policy_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """A policy in the shape of ``spotwright.yaml`` from ``FIELD=VALUE`` texts; ``interruptions.max=3`` sets a nested field."""
    policy: dict[str, Any] = {}
    for text in texts:
        field, equals, value = text.partition("=")
        if not equals or not field:
            raise click.BadParameter(f"{text!r}: expected FIELD=VALUE, for example spot=never", param_hint="--policy")
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{text!r}: the value is not YAML", param_hint="--policy") from error
        group, dot, name = field.partition(".")
        if dot and not isinstance(policy.setdefault(group, {}), dict):
            raise click.BadParameter(f"{group!r} is given both as a whole and by its fields", param_hint="--policy")
        if dot:
            policy[group][name] = parsed
        else:
            policy[field] = parsed
    return policy


def _in_utf8(text: str) -> str:
    """The typed text decoded as UTF-8; Python decodes arguments by the locale, which may have another encoding."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{text!r}: is not UTF-8 text", param_hint="--arg") from error


def parse_arguments(texts: tuple[str, ...]) -> dict[str, str]:
    """A mapping from ``NAME=VALUE`` texts. Refuses a text without a name, one that is not UTF-8, and a repeated name."""
    arguments: dict[str, str] = {}
    for text in texts:
        name, equals, value = _in_utf8(text).partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--arg")
        if name in arguments:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--arg")
        arguments[name] = value
    return arguments
