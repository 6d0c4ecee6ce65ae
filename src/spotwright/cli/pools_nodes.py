"""``pools check`` and ``pools import``: read nodes from a file, standard input or a cluster, and compare or describe them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent, shorten
from typing import TYPE_CHECKING, Any

import click
import yaml

from spotwright.cli import FAILED, SUCCEEDED, cluster_extra, say
from spotwright.cli.options import config_option, json_option, strict_option, with_strict
from spotwright.config import Config, find, require_pools
from spotwright.config.document import name_of, read_input
from spotwright.errors import InputError
from spotwright.kube.admission import ADMITTING
from spotwright.model.not_judged import NotJudged, not_judged_json, not_judged_lines
from spotwright.placing.documents import parse
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import (
    ClusterInventory,
    Finding,
    Objects,
    PodWork,
    Severity,
    add_object,
    ground_of,
    objects_of,
    pod_works,
    read_objects,
)
from spotwright.pools.request import UNKNOWN_CAPACITY, ListedPool
from spotwright.visible_text import visible

if TYPE_CHECKING:
    from spotwright.cluster.found_pools import FoundPool
    from spotwright.pools.node_pool_files import Listing

__all__ = ["ask_cluster", "check_json", "check_pools", "cluster_options", "import_pools", "read_file"]


_SHOWN = 3
_MOST = 400 * 2**20  # bytes: 20,000 nodes as kubectl writes them are 200 MB


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--cluster`` and ``--context``."""
    for option in (
        click.option(
            "--context", metavar="NAME", help="With --cluster: a context of the kubeconfig.  [default: the current one]"
        ),
        click.option("--cluster", is_flag=True, help="Ask the cluster instead of reading a file."),
    ):
        command = option(command)
    return command


def read_file(path: Path) -> Objects:
    """The objects of a file; ``-`` is standard input."""
    text = read_input(path, _MOST, "select nodes (kubectl get nodes -l ... -o json)")
    return read_objects(text.removeprefix("\ufeff"), name_of(path))


def ask_cluster(context: str | None) -> Objects:
    """The nodes, NodePools and DaemonSets of a cluster."""
    with cluster_extra("--cluster"):
        from spotwright.cluster.autoscaler_reader import ask_for_pools
    shown = ask_for_pools(context)
    return Objects(
        nodes=list(shown.nodes),
        node_pools=list(shown.node_pools),
        daemon_sets=list(shown.daemon_sets),
        no_daemon_sets=shown.no_daemon_sets,
        config_maps={
            str(one["metadata"]["name"]): (f"the cluster: ConfigMap {one['metadata']['name']}", one)
            for one in shown.config_maps
        },
        no_config_maps=shown.no_config_maps,
        has_all=not shown.no_config_maps,
        is_empty=not shown.nodes,
    )


@click.command("check")
@click.argument("files", nargs=-1, metavar="NODES [MANIFEST]...", type=click.Path(path_type=Path))
@cluster_options
@config_option("here")
@strict_option
@json_option
def check_pools(
    files: tuple[Path, ...], cluster: bool, context: str | None, config: Path | None, strict: bool, as_json: bool
) -> int:
    """Compare NODES with spotwright.yaml, and report why work would not be scheduled there; exit code 1 on errors.

    NODES is the output of kubectl get nodes,daemonsets -A -o json; - is standard input; omit it with --cluster. Each MANIFEST
    has workloads, DaemonSets, PriorityClasses, the settings of a kubelet
    (kubectl get --raw /api/v1/nodes/NODE/proxy/configz), or ConfigMaps of the cluster autoscaler
    (kubectl get configmap -n kube-system cluster-autoscaler-priority-expander cluster-autoscaler-status -o yaml).
    """
    configuration = find(Path.cwd() / "-", config)
    require_pools(configuration)
    if not cluster and not files:
        raise click.UsageError("name a file of nodes (- for standard input), or --cluster")
    objects = ask_cluster(context) if cluster else read_file(files[0])
    objects.require_nodes("the cluster" if cluster else str(files[0]), or_others=True)
    works = _works(files if cluster else files[1:], configuration, objects)
    ground = ground_of(configuration, objects, works)
    findings = check(ground)
    if as_json:
        say(json.dumps(check_json(findings, ground.not_judged), indent=2))
    else:
        _print_findings(ground, findings, objects, is_asked=cluster)
    code = FAILED if any(finding.severity is Severity.ERROR for finding in findings) else SUCCEEDED
    return with_strict(code, ground.not_judged, strict=strict)


def check_json(findings: Sequence[Finding], not_judged: Sequence[NotJudged]) -> dict[str, Any]:
    """``findings``: why work would not be scheduled on the pools, errors first; ``not_judged``: what could not be compared.

    A finding has its ``code`` ([what each means](../how-to/pools/check.md)), its ``severity`` (``error``, ``warning`` or
    ``note``), ``where`` (a pool, a node or an object of a manifest), ``text``, and ``fix``.
    """
    return {"findings": [finding._asdict() for finding in findings], "not_judged": not_judged_json(not_judged)}


def _works(files: Sequence[Path], config: Config, objects: Objects) -> list[PodWork | Finding]:
    """The pods of the manifests; their kubelet settings and PriorityClasses are added to the nodes' file's.

    A manifest that cannot be read is a finding beside the others. Raises :class:`InputError` where none can.
    """
    works: list[PodWork | Finding] = []
    errors: dict[Path, str] = {}
    read: dict[Path, tuple[list[Any], bool]] = {}
    for path in files:  # all files before the pods: any file may say what the cluster adds to pods
        try:
            read[path] = _objects_in(path, objects)
        except InputError as error:
            errors[path] = str(error)
    for path, (found, has_settings) in read.items():
        pods = [pod for one in found for pod in pod_works(one, str(path), config, objects.of_kind)]
        works += pods
        if not pods and not has_settings:
            errors[path] = (
                f"{path}: neither pods nor settings of a kubelet are in it: name manifests of work; compile pipelines first"
            )
    if errors and len(errors) == len(set(files)):
        raise InputError("\n".join(errors.values()))
    return [*works, *(_unread(path, text) for path, text in errors.items())]


def _unread(path: Path, text: str) -> Finding:
    """The finding for a manifest; its place is the file, and the line where the message names one."""
    place = re.match(rf"{re.escape(str(path))}(:[0-9]+)?(?=: )", text)
    where = place[0] if place else str(path)
    said = text.removeprefix(f"{where}: ")
    return Finding("manifest-not-readable", Severity.ERROR, where, said, "correct the manifest, or leave it out")


def _objects_in(path: Path, objects: Objects) -> tuple[list[Any], bool]:
    """The objects of one manifest, and whether settings are among them, which join the others. Raises :class:`InputError`."""
    every: list[Any] = []
    has_settings = False
    for document in parse(read_input(path), str(path)):
        found = objects_of(document.get(()), str(path))
        if not found:
            objects.is_empty = has_settings = True
        every += found
    for one in every:
        if isinstance(one, dict):
            has_settings |= add_object(one, objects, str(path)) or one.get("kind") in ADMITTING
    return every, has_settings


def _print_findings(ground: ClusterInventory, findings: Sequence[Finding], objects: Objects, *, is_asked: bool) -> None:
    for finding in findings:
        say(f"{finding.severity}: {visible(finding.where)}: {visible(finding.text)} [{finding.code}]")
        for line in finding.fix.splitlines():
            say(f"  {visible(line)}")
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    nodes = sum(map(len, ground.members.values()))
    pools = sum(map(bool, ground.members.values()))
    say(
        f"nodes: {len(objects.nodes)}, {nodes} of them in {pools} of {len(ground.pools)} pools; DaemonSets: "
        f"{len(ground.daemon_sets)}; pod templates: {len(ground.works)}; errors: {errors}"
    )
    for line in not_judged_lines(ground.not_judged):
        say(visible(line))
    if not objects.knows_nodes:
        say("no nodes were given, so none are checked. To get them: kubectl get nodes,daemonsets -A -o json")
    status = ground.autoscalers.status
    if status is not None:
        say(f"groups of the cluster autoscaler: {len(status.groups)}")
    if objects.no_config_maps:
        say(f"a ConfigMap of the cluster autoscaler cannot be read, so it is not checked: {objects.no_config_maps}")
    if objects.no_daemon_sets:
        say(
            f"DaemonSets cannot be listed, so device plugins, drivers and logs are not checked: {objects.no_daemon_sets}"
        )
    elif not ground.daemon_sets and is_asked:
        say("the cluster has no DaemonSets: no device plugin, driver or log collector runs there")
    elif not ground.daemon_sets:
        say(
            "no DaemonSets were given, so device plugins, drivers and logs are not checked: kubectl get "
            "nodes,daemonsets -A -o json"
        )


@click.command("import")
@click.argument("nodes", required=False, type=click.Path(path_type=Path))
@cluster_options
def import_pools(nodes: Path | None, cluster: bool, context: str | None) -> int:
    """Print a first spotwright.yaml with the pools found in a cluster's nodes or a list of node pools.

    NODES is the output of kubectl get nodes -o json; - is standard input. Pools come from the labels of nodes and from
    Karpenter's NodePools; neither has prices, limits or times of notice. Deprecated labels are reported with their replacement;
    values that no label gives, such as the capacity, are reported too.

    Pools that have no node now come from the output of their provider's tool: az aks nodepool list, gcloud container node-pools
    list, aws eks describe-nodegroup, eksctl get nodegroup (each as JSON), terraform show -json, and the API model of
    aks-engine; and from controllers' objects: Crossplane, Config Connector, ACK, Azure Service Operator, OpenShift's
    MachineSets, kOps, and a ComputeClass. Other objects that make nodes are named.
    """
    if cluster == (nodes is not None):
        raise click.UsageError("name a file of nodes (- for standard input), or --cluster")
    from spotwright.pools.azure import pools_of_api_model
    from spotwright.pools.node_pool_files import Listing, listed_pools

    objects = ask_cluster(context) if nodes is None else read_file(nodes)
    name = "the cluster" if nodes is None else str(nodes)
    if objects.api_models:
        past = [pool for model in objects.api_models for pool in pools_of_api_model(model, name)]
        _print_pools(
            (f"Read from {name}, an API model of aks-engine. AKS replaced it; the forms are current.",),
            ((pool.name, "", pool.settings, pool.notes) for pool in past),
        )
        return SUCCEEDED
    listing = Listing("", ())
    if objects.listings and not objects.nodes:
        listing = listed_pools(objects.listings, name, has_others=bool(objects.node_pools))
    elif nodes is None and not objects.nodes and not objects.node_pools:
        raise InputError("the cluster has no nodes and no NodePool of Karpenter, so it shows no pools")
    elif not objects.node_pools:
        objects.require_nodes(name)
    from spotwright.cluster.found_pools import found_pools, left_out

    taken = [pool.name for pool in listing.pools]
    found = found_pools(objects.nodes, objects.node_pools, taken)
    if not found and not listing.pools:
        raise InputError(
            f"{name}: none of the {len(objects.nodes)} nodes is one to place work on. {' '.join(left_out(objects.nodes))}"
        )
    titles = [
        f"Read from {name}, node pools as described by {listing.tools}. Prices and times of notice are yours to add."
        if listing.pools
        else "Read off the nodes of a cluster. Prices, limits and times of notice are yours to add.",
        *left_out(objects.nodes),
        *_left_beside(objects, listing),
    ]
    listed = ((pool.name, "", pool.settings, pool.notes) for pool in listing.pools)
    _print_pools(titles, (*listed, *_described(found, objects)))
    _warn_of_unknown([*listing.pools, *found])
    for one in (*listing.unread, *objects.unread):
        say(f"warning: not read: {visible(one.text)}", err=True)
    return SUCCEEDED


def _left_beside(objects: Objects, listing: Listing) -> Iterator[str]:
    """The file's other objects, from which no pool is read."""
    for one in (*listing.unread, *objects.unread):
        yield f"Not read: {one.text}."
    if listing.others:
        most = Counter(listing.others).most_common(_SHOWN)
        kinds = ", ".join(f"{count} {kind}" for kind, count in most)
        more = " and others" if len(listing.others) > _SHOWN else ""
        yield f"{sum(listing.others.values())} other resources make no nodes, as far as is known: {kinds}{more}."
    if objects.listings and objects.nodes:
        yield "Left out a list of node pools, because nodes stand beside it. Import it from a separate file."
    if objects.others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in objects.others.most_common(_SHOWN))
        yield f"Left out, because no pool can be read off it: {kinds}{' and others' if len(objects.others) > _SHOWN else ''}."


def _warn_of_unknown(pools: Iterable[FoundPool | ListedPool]) -> None:
    """Name the pools of unknown capacity on standard error, because standard output goes to a file."""
    for pool in pools:
        if not pool.is_known:
            say(f"warning: pool {pool.name}: {UNKNOWN_CAPACITY}", err=True)


_Described = tuple[str, str, Mapping[str, Any], Iterable[str]]


def _described(found: Iterable[FoundPool], objects: Objects) -> Iterable[_Described]:
    from spotwright.pools.node_facts import notes_on

    by_name = {str((node.get("metadata") or {}).get("name")): node for node in objects.nodes}
    for pool in found:
        shown = ", ".join(pool.nodes) or "no node now"
        notes = [*pool.notes, *notes_on([by_name[name] for name in pool.nodes])]
        yield pool.name, shorten(shown, width=90, placeholder=" ..."), pool.settings, notes


def _print_pools(titles: Sequence[str], pools: Iterable[_Described]) -> None:
    for title in titles:
        say(f"# {visible(title)}")
    say("version: 1\npools:")
    for name, remark, settings, notes in pools:
        say(f"  {name}:  # {visible(remark)}" if remark else f"  {name}:")
        for note in notes:
            say(f"    # {visible(note)}")
        say(indent(yaml.safe_dump(dict(settings), sort_keys=False), "    "), nl=False)
