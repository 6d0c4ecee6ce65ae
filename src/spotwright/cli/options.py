"""Options that several commands share, the parsers of their texts, and result files written whole or not at all."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import yaml

from spotwright.cli import FAILED, SUCCEEDED, say
from spotwright.errors import InputError
from spotwright.model.not_judged import NotJudged
from spotwright.model.quantities import parse_duration
from spotwright.records.state_folder import STATE_NAME, nearest_state
from spotwright.runs.run_options import CONTAINER_MODES

if TYPE_CHECKING:
    from spotwright.notices.agent import Address

__all__ = [
    "Duration",
    "KfpOptions",
    "Listen",
    "PipelineOptions",
    "WithUserCommand",
    "arguments_option",
    "beside_option",
    "config_option",
    "containers_option",
    "interrupt_every_option",
    "json_option",
    "kfp_options",
    "parse_arguments",
    "pipeline_option",
    "pipeline_options",
    "policy_of",
    "policy_option",
    "replace_file",
    "replace_files",
    "say_where",
    "state_option",
    "strict_option",
    "with_strict",
]


_Command = Callable[..., Any]


if TYPE_CHECKING:
    _FloatType = click.ParamType[float, Any]
else:
    _FloatType = click.ParamType  # before click 8.5 it takes no types


class Listen(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # before click 8.5 it takes no types
    """Converts ``HOST:PORT`` to an address to listen on."""

    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Parse the text, or fail with the expected format."""
        from spotwright.notices.agent import Address  # here: few commands listen

        try:
            return Address.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


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
        "--state", type=click.Path(path_type=Path, file_okay=False), default=nearest_state, show_default=False,
        envvar="SPOTWRIGHT_STATE", metavar="FOLDER",
        help=f"The state folder, which keeps all runs.  [default: {STATE_NAME} here, else the nearest one above]",
    )(command)  # fmt: skip


def say_where(state: Path) -> None:
    """Name on the error output the state folder that a command will change, if it is above the current folder."""
    if state.is_absolute() and click.get_current_context().get_parameter_source("state") is _DEFAULT:
        say(f"using {state}: there is no {STATE_NAME} in {Path.cwd()}", err=True)


_DEFAULT = click.core.ParameterSource.DEFAULT


def beside_option(command: _Command) -> _Command:
    """``--with FILE``, which may be repeated."""
    text = "Documents that the manifests refer to or that hold for their pods: runtimes, templates, ConfigMaps, quotas."
    file = click.Path(path_type=Path)
    return click.option("--with", "beside", multiple=True, type=file, metavar="FILE", help=text)(command)


def strict_option(command: _Command) -> _Command:
    """``--strict``."""
    text = "Exit code 1 also if something could not be judged: an unknown kind, a pool without node:."
    return click.option("--strict", is_flag=True, help=text)(command)


def with_strict(code: int, found: Iterable[NotJudged], *, strict: bool) -> int:
    """The exit code of a command: with ``--strict``, 1 instead of 0 if something was not judged."""
    return FAILED if strict and code == SUCCEEDED and any(True for _ in found) else code


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


def containers_option(command: _Command) -> _Command:
    """``--containers MODE``."""
    return click.option(
        "--containers", type=click.Choice(CONTAINER_MODES), default="auto", show_default=True,
        help="The runtime of container components. auto: podman, else docker; host: processes of this machine.",
    )(command)  # fmt: skip


def policy_option(
    more: str = "", metavar: str = "FIELD=VALUE", name: str = "policy_texts"
) -> Callable[[_Command], _Command]:
    """``--policy FIELD=VALUE``, repeatable; :func:`policy_of` parses the texts. ``more`` is added to the help."""
    help_text = "A policy field for every task, such as spot=never or interruptions.max=3; overrides all other sources."
    return click.option("--policy", name, metavar=metavar, multiple=True, help=f"{help_text}{more}")


def interrupt_every_option(command: _Command) -> _Command:
    """``--interrupt-every DURATION``."""
    return click.option(
        "--interrupt-every", type=Duration(), help="Interrupt spot nodes, on average this often."
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

    The command receives the shared options as its first positional argument, its own options by name.
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
            say_where(state)
            shared = PipelineOptions(pipeline_name, arguments, config, containers, seed, state, as_json)
            return command(shared, **own)

        first = (pipeline_option, arguments_option, config_option("the pipeline"), containers_option, _seed_option)
        decorated: _Command = with_shared
        for option in reversed((*first, *own_options, state_option, json_option)):
            decorated = option(decorated)
        return decorated

    return decorate


class WithUserCommand(click.Command):
    """Takes everything after ``--`` as the user's command, whose options are not parsed here: ``ctx.meta["command"]``.

    Without the two dashes, the message has the correct command line.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the user's command in the context, and parse the rest."""
        own = args
        if "--" in args:
            separator = args.index("--")
            ctx.meta["command"] = tuple(args[separator + 1 :])
            own = args[:separator]
        try:
            return super().parse_args(ctx, list(own))
        except click.UsageError as error:
            if own is args and (meant := self._command_meant(ctx, args, error)):
                raise click.UsageError(meant, ctx) from error
            raise

    def _command_meant(self, ctx: click.Context, args: Sequence[str], error: click.UsageError) -> str:
        """The correct command line, if the words are a program with its options, or a pipeline and a task; else empty."""
        import shlex  # here: few command lines need them
        import shutil

        from spotwright.kfp.commands import is_script

        beside = self._words_of_others(ctx, args, interspersed=True)
        if beside and is_script(Path(beside[0])):
            own = list(args)
            for word in reversed(beside):
                own.pop(len(own) - 1 - own[::-1].index(word))
            command = ["python", *beside]
            reason = f"{error.format_message().rstrip('.')}; arguments of a script come after -- with it"
        elif len(beside) == 2 and Path(beside[0]).is_file() and any(option.name == "task" for option in self.params):
            own = list(args)
            at = len(own) - 1 - own[::-1].index(beside[1])
            own[at:at] = ["--task"]
            return f"name a task with --task: {shlex.join([*ctx.command_path.split(), *own])}"
        else:
            command = self._words_of_others(ctx, args, interspersed=False)
            if not command or shutil.which(command[0]) is None:
                return ""
            own = list(args[: len(args) - len(command)])
            reason = "a command comes after --"
        return f"{reason}: {shlex.join([*ctx.command_path.split(), *own, '--', *command])}"

    def _words_of_others(self, ctx: click.Context, args: Sequence[str], *, interspersed: bool) -> list[str]:
        """The words that are not options of this command; unless ``interspersed``, the first such word and all after it."""
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options, parser.allow_interspersed_args = interspersed, interspersed
        try:
            options, rest, _ = parser.parse_args(list(args))
        except click.UsageError:
            return []
        first = options.get("pipeline_file")
        return [first, *rest] if isinstance(first, str) else []


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


_LOCAL_ONLY = (
    "containers",
    "seed",
    "cache",
    "interrupt_every",
    "time_scale",
    "policy_texts",
    "deadline",
    "fail_on_missed_deadline",
    "plan_file",
)
_INSTEAD = {
    "policy_texts": "write the policy into spotwright.yaml",
    "cache": "use set_caching_options in the pipeline",
    "deadline": "KFP knows no deadline of this sort",
    "fail_on_missed_deadline": "KFP knows no deadline of this sort",
    "plan_file": "give it to spotwright report",
}


class KfpOptions(NamedTuple):
    """The values of these options. ``is_used``: the run goes to KFP."""

    is_used: bool = False
    host: str = ""
    namespace: str = ""
    token_file: str = ""
    cookies_file: str = ""
    client_id: str = ""
    context: str = ""
    authority: str = ""
    experiment: str = ""
    service_account: str = ""
    controller: str = ""


def kfp_options(command: _Command) -> _Command:
    """Declare the options; the command receives a :class:`KfpOptions` named ``kfp``."""

    @functools.wraps(command)
    def with_kfp(
        *args: Any,
        on: str,
        host: str,
        namespace: str,
        token_file: Path | None,
        cookies_file: Path | None,
        client_id: str,
        context: str,
        authority: Path | None,
        experiment: str,
        service_account: str,
        controller: str,
        **own: Any,
    ) -> Any:
        files = (_absolute(each) for each in (token_file, cookies_file, authority))
        token, cookies, ca_cert = files
        kfp = KfpOptions(
            on == "kfp", host, namespace, token, cookies, client_id, context, ca_cert, experiment, service_account,
            controller,
        )  # fmt: skip
        _check(kfp)
        return command(*args, kfp=kfp, **own)

    for option in reversed((
        click.option(
            "--on", type=click.Choice(("local", "kfp")), default="local", show_default=True,
            help="Where: on this machine, or on Kubeflow Pipelines. The options below are for kfp.",
        ),
        click.option(
            "--host", default="", metavar="URL", envvar="KF_PIPELINES_ENDPOINT", show_envvar=True,
            help="The server of KFP.  [default: the one of the kubeconfig]",
        ),
        click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace of the run, where teams have theirs."),
        click.option("--token-file", type=_FILE, metavar="FILE", help="A bearer token.  [default: $SPOTWRIGHT_KFP_TOKEN]"),
        click.option("--cookies-file", type=_FILE, metavar="FILE", help="Cookies.  [default: $SPOTWRIGHT_KFP_COOKIES]"),
        click.option(
            "--client-id", default="", metavar="ID", envvar="KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", show_envvar=True,
            help="The client id of Identity-Aware Proxy.",
        ),
        click.option("--ca-cert", "authority", type=_FILE, metavar="FILE", help="The authority of the server's certificate."),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig.  [default: the current one]"),
        click.option("--experiment", default="Default", show_default=True, metavar="NAME", help="The experiment of the run."),
        click.option("--service-account", default="", metavar="NAME", help="The service account of the run's pods."),
        click.option(
            "--controller", default="", envvar="SPOTWRIGHT_CONTROLLER", metavar="URL|NAMESPACE|none", show_envvar=True,
            help="The controller of Spotwright there: its https URL, or the namespace of its pod.  [default: spotwright]",
        ),
    )):  # fmt: skip
        with_kfp = option(with_kfp)
    return with_kfp


_FILE = click.Path(path_type=Path, dir_okay=False)


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())


def _check(kfp: KfpOptions) -> None:
    """Refuse options that the chosen place of execution would ignore."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    flags = {parameter.name: max(parameter.opts, key=len) for parameter in context.command.params}
    if kfp.is_used:
        for name in _LOCAL_ONLY:
            if context.get_parameter_source(name) is typed:
                instead = _INSTEAD.get(name, "leave it out")
                raise click.UsageError(f"{flags[name]} is for runs on this machine: with --on kfp {instead}")
        return
    for name in KfpOptions._fields[1:]:
        if context.get_parameter_source(name) is typed:
            raise click.UsageError(f"{flags[name]} is for runs on Kubeflow Pipelines: add --on kfp")


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace or create a file in one step; an existing file keeps its permissions. Raises :class:`InputError`."""
    replace_files([(path, content)])


def replace_files(contents: Sequence[tuple[Path, str | bytes]]) -> None:
    """Prepare all files, then write them in the given order. Raises :class:`InputError`.

    A symbolic link stays a link, and its target is written. A device or pipe (``/dev/stdout``) is written directly, last.
    """
    temporary: dict[Path, Path] = {}
    streams: list[tuple[Path, bytes]] = []
    path = Path()
    try:
        for path, content in contents:
            data = content if isinstance(content, bytes) else content.encode()
            if path.exists() and not path.is_file() and not path.is_dir():
                streams.append((path, data))
                continue
            target = Path(os.path.realpath(path))
            temporary[target] = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            _prepare(temporary[target], target, data)
        for path, beside in temporary.items():
            beside.replace(path)
        for path, data in streams:
            path.write_bytes(data)
    except OSError as error:
        for beside in temporary.values():
            beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _prepare(beside: Path, path: Path, data: bytes) -> None:
    """Write the new content beside a file, with the permissions of the file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    exists = path.exists()
    if exists and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside.write_bytes(data)
    if exists:
        beside.chmod(path.stat().st_mode)
