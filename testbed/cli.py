"""The command line of the test bed. `make cluster` and its kind call it; settings come from `TESTBED_*` variables."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable

import click

from testbed import builder
from testbed.cluster import bring_down, bring_up, build, build_first
from testbed.control import control_plane, controllers
from testbed.control.api import Api
from testbed.errors import TestbedError
from testbed.faults import FAULT_TAINT, Faults
from testbed.machine import leftovers, nodes
from testbed.machine.processes import Processes, ended_by_sigterm
from testbed.settings import Settings
from testbed.suite import run_suite

__all__ = ["main"]

_ALL = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class _Group(click.Group):
    """Shows a :class:`TestbedError` as one message, with exit code 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TestbedError as error:
            raise click.ClickException(str(error)) from error


class _Node(click.ParamType[int]):
    """A node by its name or number: n2 or 2."""

    name = "node"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of a node that exists."""
        text = str(value).removeprefix("n")
        settings = Settings.from_environment()
        if not text.isdecimal() or not settings.node_folder(int(text)).is_dir():
            self.fail(
                f"{value}: no such node; `python -m testbed status` lists the nodes of a running cluster", param, ctx
            )
        return int(text)


@click.group(cls=_Group)
def main() -> None:
    """A real Kubernetes on this machine, whose nodes can lose power."""


@main.command("build")
def _build() -> None:
    """Build the programs and images that are not in the cache yet."""
    with ended_by_sigterm():
        build(Settings.from_environment(), click.echo)


@main.command()
def up() -> None:
    """Start the cluster; a running one is taken down first. If interrupted, it leaves nothing running.

    Kubernetes is built first. Missing controllers are built beside the cluster, and start as soon as they are ready.
    """
    settings = Settings.from_environment()
    with ended_by_sigterm():
        bring_up(settings, click.echo, build_first(settings, click.echo))
    click.echo(f"use it: export KUBECONFIG={settings.kubeconfig}")
    click.echo("end it: make cluster-down")


@main.command()
def down() -> None:
    """Stop the cluster, remove everything that belongs to it, and check that nothing is left."""
    settings = Settings.from_environment()
    existed = settings.folder.exists()
    bring_down(settings)
    click.echo("down: nothing is left of the cluster" if existed else f"there is no cluster {settings.name}")


@main.command(context_settings=_ALL)
@click.option("--within", type=click.FloatRange(min=0), metavar="MINUTES", default=math.inf, help="Time for all of it.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ci(within: float, arguments: tuple[str, ...]) -> None:
    """Run the CI tests on a separate cluster; say in one line why if this machine cannot. ARGUMENTS are pytest's.

    With CI=true, missing Debian packages are installed first.
    """

    def say(text: str) -> None:
        click.echo(f"== cluster: {text}")

    install = os.environ.get("CI") == "true"
    sys.exit(run_suite(say, within=within * 60, install=install, arguments=arguments))


@main.command()
def status() -> None:
    """Show processes, pending builds and nodes; without a cluster, its leftovers."""
    settings = Settings.from_environment()
    if not settings.folder.exists():
        left = leftovers.find(settings)
        click.echo("\n".join(left) if left else f"there is no cluster {settings.name}")
        sys.exit(bool(left))
    processes = Processes(settings)
    for name in processes.names():
        click.echo(f"{name:20} {processes.pid(name) or 'has ended, see ' + str(processes.log(name))}")
    for name in builder.coming(settings):
        click.echo(f"{name:20} still to be built")
    for name, reason in builder.failed(settings).items():
        click.echo(f"{name:20} could not be built or started: {reason}")
    click.echo(Api(settings).kubectl("get", "nodes", "--show-labels"), nl=False)


@main.command()
def env() -> None:
    """Print shell commands that select the cluster: eval "$(python -m testbed env)"."""
    click.echo(f"export KUBECONFIG={Settings.from_environment().kubeconfig}")


@main.command(context_settings=_ALL)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> None:
    """Run the cluster's kubectl."""
    settings = Settings.from_environment()
    program = Api(settings).kubectl_path
    os.execv(program, [str(program), "--kubeconfig", str(settings.kubeconfig), *arguments])


@main.command("exec", context_settings=_ALL)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option("--node", type=_Node(), help="Inside this node, with its processes and mounts.")
def execute(command: tuple[str, ...], node: int | None) -> None:
    """Run a command in the control plane's network, which reaches all pods and nodes."""
    settings = Settings.from_environment()
    if node is not None:
        nodes.execute(settings, node, list(command))
    os.environ["KUBECONFIG"] = str(settings.inside_kubeconfig)
    os.execvp("nsenter", ["nsenter", f"--net=/run/netns/{settings.namespace}", *command])


@main.command()
@click.argument("name")
def restart(name: str) -> None:
    """Restart one process: etcd, apiserver, controller-manager, scheduler, argo, jobset and so on."""
    settings = Settings.from_environment()
    if name in control_plane.END_ORDER:
        control_plane.restart(settings, name)
    elif name in settings.controllers:
        controllers.run_again(settings, name)
    else:
        raise TestbedError(f"there is no process {name}; `python -m testbed status` lists them")


@main.group()
def fault() -> None:
    """Let something happen to a node, such as n2."""


def _fault(name: str, help_text: str, action: Callable[[Faults, int], object]) -> None:
    """Add a fault that only needs a node."""

    @fault.command(name, help=help_text)
    @click.argument("node", type=_Node())
    def command(node: int) -> None:
        result = action(Faults(Settings.from_environment()), node)
        if isinstance(result, float):
            click.echo(f"after {result:.1f} s")


_fault("power-cut", "End every process of the node at once.", Faults.cut_power)
_fault("unplug", "Cut the node's network; its processes go on.", Faults.unplug)
_fault("plug", "Connect the node's network again.", Faults.plug)
_fault("shutdown", "Shut the node down gracefully, then cut its power.", Faults.shut_down)
_fault("drain", "Cordon the node and evict its pods.", Faults.drain)
_fault("delete", "Delete the Node object; the machine runs on.", Faults.delete)
_fault("withdraw", "Take the notice of the node's metadata server back.", Faults.withdraw)
_fault("restore", "Undo every fault of the node and wait until it is Ready.", Faults.restore)


@fault.command()
@click.argument("node", type=_Node())
@click.option("--key", default=FAULT_TAINT, show_default=True)
@click.option("--effect", default="NoExecute", show_default=True)
def taint(node: int, key: str, effect: str) -> None:
    """Taint the node; NoExecute deletes the pods that do not tolerate it."""
    Faults(Settings.from_environment()).taint(node, key, effect)


@fault.command()
@click.argument("node", type=_Node())
@click.option("--seconds", type=float, help="Until the node is reclaimed; by default the notice of its cloud.")
def notice(node: int, seconds: float | None) -> None:
    """Make the node's metadata server announce that the node is going away."""
    Faults(Settings.from_environment()).notice(node, seconds)
