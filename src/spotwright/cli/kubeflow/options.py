"""The options of ``run --on kfp``: which server, how to log in, and where the run belongs there.

The names of variables are those of the SDK where it has one, so a machine on which ``kfp`` works needs nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

__all__ = ["KfpOptions", "kfp_options"]

_Command = Callable[..., Any]

_LOCAL_ONLY = ("containers", "seed", "cache", "taken_every", "time_scale", "policy_texts", "deadline")
_INSTEAD = {
    "policy_texts": "write the policy into spotwright.yaml",
    "cache": "use set_caching_options in the pipeline",
    "deadline": "KFP knows no deadline of this sort",
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
    """Refuse options that the other place would ignore."""
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
