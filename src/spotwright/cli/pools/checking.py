"""``pools check``: what would keep work from landing on the pools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spotwright.cli import FAILED, SUCCEEDED
from spotwright.cli.options import config_option, json_option
from spotwright.cli.pools.inputs import ask_cluster, cluster_options, read_file
from spotwright.config import find
from spotwright.config.document import read_input
from spotwright.errors import InputError
from spotwright.manifests.files.required_pools import require_pools
from spotwright.manifests.yamltext.documents import parse
from spotwright.pools.checks import check
from spotwright.pools.ground import Finding, Ground, Objects, PodWork, Severity, add_settings, ground_of, pod_works

__all__ = ["check_json", "check_pools"]


@click.command("check")
@click.argument("files", nargs=-1, metavar="NODES [MANIFEST]...", type=click.Path(path_type=Path))
@cluster_options
@config_option("here")
@json_option
def check_pools(files: tuple[Path, ...], cluster: bool, context: str | None, config: Path | None, as_json: bool) -> int:
    """Compare NODES with spotwright.yaml, and say what would keep work from landing there; exit code 1 on errors.

    NODES is what kubectl get nodes,daemonsets -A -o json wrote; - is standard input, and with --cluster it is left out. Each
    MANIFEST has work, DaemonSets, PriorityClasses, or the settings of a kubelet
    (kubectl get --raw /api/v1/nodes/NODE/proxy/configz).
    """
    configuration = find(Path.cwd() / "-", config)
    require_pools(configuration)
    if not cluster and not files:
        raise click.UsageError("name a file of nodes (- for standard input), or --cluster")
    objects = ask_cluster(context) if cluster else read_file(files[0])
    objects.require_nodes("the cluster" if cluster else str(files[0]))
    works = _works(files if cluster else files[1:], objects)
    ground = ground_of(configuration, objects, works)
    findings = check(ground)
    if as_json:
        click.echo(json.dumps(check_json(findings), indent=2))
    else:
        _print(ground, findings, objects, is_asked=cluster)
    return FAILED if any(finding.severity is Severity.ERROR for finding in findings) else SUCCEEDED


def check_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """What would keep work from landing on the pools, errors first.

    A finding has its ``code`` ([what each means](../how-to/pools/check.md)), its ``severity`` (``error``, ``warning`` or
    ``note``), ``where`` (a pool, a node or an object of a manifest), ``text``, and ``fix``.
    """
    return [finding._asdict() for finding in findings]


def _works(files: Sequence[Path], objects: Objects) -> list[PodWork | Finding]:
    """The pods of the manifests; settings of kubelets and PriorityClasses among them join those of the nodes' file."""
    works: list[PodWork | Finding] = []
    for path in files:
        found = 0
        for document in parse(read_input(path), str(path)):
            value = document.get(())
            items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
            for one in items if items and isinstance(items, list) else [value]:
                pods = list(pod_works(one, str(path)))
                works += pods
                found += len(pods) or (isinstance(one, dict) and add_settings(one, objects, str(path)))
        if not found:
            raise InputError(
                f"{path}: neither pods nor settings of a kubelet are in it: name manifests of work; compile pipelines "
                "first"
            )
    return works


def _print(ground: Ground, findings: Sequence[Finding], objects: Objects, *, is_asked: bool) -> None:
    for finding in findings:
        click.echo(f"{finding.severity}: {finding.where}: {finding.text} [{finding.code}]")
        click.echo(f"  {finding.fix}")
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    nodes = sum(map(len, ground.members.values()))
    pools = sum(map(bool, ground.members.values()))
    click.echo(
        f"nodes: {len(objects.nodes)}, {nodes} of them in {pools} of {len(ground.pools)} pools; DaemonSets: "
        f"{len(ground.daemon_sets)}; pod templates: {len(ground.works)}; errors: {errors}"
    )
    if objects.no_daemon_sets:
        click.echo(
            f"DaemonSets cannot be listed, so device plugins, drivers and logs are not checked: {objects.no_daemon_sets}"
        )
    elif not ground.daemon_sets and is_asked:
        click.echo("the cluster has no DaemonSets: no device plugin, driver or log collector runs there")
    elif not ground.daemon_sets:
        click.echo(
            "no DaemonSets were given, so device plugins, drivers and logs are not checked: kubectl get "
            "nodes,daemonsets -A -o json"
        )
