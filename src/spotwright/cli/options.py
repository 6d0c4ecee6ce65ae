"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from spotwright.model.quantities import parse_duration
from spotwright.runs.options import CONTAINER_MODES, DEFAULT_STATE

__all__ = [
    "Duration",
    "arguments_of",
    "arguments_option",
    "config_option",
    "containers_option",
    "json_option",
    "pipeline_option",
    "policy_of",
    "state_option",
]

_Command = Callable[..., Any]


if TYPE_CHECKING:
    _FloatType = click.ParamType[float, Any]
else:
    _FloatType = click.ParamType  # before click 8.5 it takes no types


class Duration(_FloatType):
    """A duration such as ``20s`` or ``5m``, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the text, or say what is expected."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def state_option(command: _Command) -> _Command:
    """``--state FOLDER``."""
    return click.option(
        "--state", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True,
        envvar="SPOTWRIGHT_STATE", metavar="FOLDER", help="Where runs are kept.",
    )(command)  # fmt: skip


def json_option(command: _Command) -> _Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="The same facts as JSON on standard output.")(command)


def pipeline_option(command: _Command) -> _Command:
    """``--pipeline NAME``, of a file that may hold several."""
    return click.option(
        "--pipeline", "pipeline_name", metavar="NAME", help="Which pipeline; else the one that uses the others."
    )(command)


def arguments_option(help_text: str) -> Callable[[_Command], _Command]:
    """``--arg NAME=VALUE``, as often as there are; :func:`arguments_of` reads them."""
    return click.option("--arg", "texts", metavar="NAME=VALUE", multiple=True, help=help_text)


def config_option(beside: str) -> Callable[[_Command], _Command]:
    """``--config FILE``; without it the configuration lies beside what is named here."""
    help_text = f"Instead of spotwright.yaml beside {beside}."
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=help_text)


def containers_option(help_text: str) -> Callable[[_Command], _Command]:
    """``--containers MODE``."""
    return click.option(
        "--containers", type=click.Choice(CONTAINER_MODES), default="auto", show_default=True, help=help_text
    )


def policy_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """``FIELD=VALUE`` texts as a policy in the shape of ``spotwright.yaml``: ``interruptions.max=3`` stands one level down."""
    policy: dict[str, Any] = {}
    for text in texts:
        field, equals, value = text.partition("=")
        if not equals or not field:
            raise click.BadParameter(f"{text!r}: expected FIELD=VALUE, for example spot=never", param_hint="--policy")
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{text!r}: the value is not YAML", param_hint="--policy") from error
        group, dot, name = field.partition(".")
        if dot and not isinstance(policy.setdefault(group, {}), dict):
            raise click.BadParameter(f"{group!r} is given as a whole and by its fields", param_hint="--policy")
        if dot:
            policy[group][name] = read
        else:
            policy[field] = read
    return policy


def _in_utf8(text: str) -> str:
    """The text that was typed, whatever encoding this Python took it to be in: that depends on the shell's language."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{text!r}: is no text in UTF-8", param_hint="--arg") from error


def arguments_of(texts: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. Refuses a text without a name, one that is no UTF-8, and a name given twice."""
    arguments: dict[str, str] = {}
    for text in texts:
        name, equals, value = _in_utf8(text).partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--arg")
        if name in arguments:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--arg")
        arguments[name] = value
    return arguments
