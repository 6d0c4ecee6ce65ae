"""Write the chart's files that follow from the code: rights, the webhook's registration, policies, labels of spot nodes.

`charts/spotwright/files` has them as data for templates; a test compares them with the code. The page on security has the
rights with their reasons, as a table that is made when the site is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spotwright.clouds.providers import SPOT_LABELS
from spotwright.cluster import permissions, record_policy
from spotwright.cluster.install import webhook_configuration
from spotwright.cluster.node_events import policy_spec

__all__ = ["FILES", "FOLDER", "rights_tables"]

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "spotwright" / "files"
_HEAD = "# Written by scripts/make_chart.py from {source}; change that.\n"
_CHOSEN = ("clientConfig", "namespaceSelector")
"""Fields of a webhook that the chart's values decide on."""


_WHERE: Mapping[str, tuple[str, tuple[permissions.Right, ...]]] = {
    "served": ("In each namespace that is served", permissions.SERVED),
    "library": ("there too, with `checkpoints.library`", permissions.LIBRARY),
    "claims": ("there too, with `checkpoints.claimSize`", permissions.CLAIMS),
    "namespaces": ("On the served namespaces themselves, by name", permissions.NAMESPACES),
    "toFill": (
        "On all namespaces, with `clusterWide` and either of the two `checkpoints`",
        permissions.NAMESPACES_TO_FILL,
    ),
    "cluster": ("On what has no namespace", permissions.CLUSTER),
    "home": ("In its own namespace", permissions.HOME),
    "default": ("In `default`", permissions.DEFAULT),
    "nodeLeases": ("In `kube-node-lease`", permissions.NODE_LEASES),
    "kubeSystem": ("In `kube-system`", permissions.KUBE_SYSTEM),
    "registration": ("On the chart's registration, unless a certificate is given", permissions.REGISTRATION),
}
"""By the key in the chart's file: where the rights hold, and which they are."""


def rights() -> Mapping[str, Any]:
    """The rules of the chart's roles, by process."""
    return {
        process: {key: permissions.rules(rights, process) for key, (_, rights) in _WHERE.items()}
        for process in permissions.PROCESSES
    }


def webhooks() -> Mapping[str, Any]:
    """The webhooks of the registration, without the parts that the chart's values decide."""
    made = webhook_configuration("", ("", ""), b"")["webhooks"]
    return {"webhooks": [{key: each[key] for key in each if key not in _CHOSEN} for each in made]}


def spot_labels() -> Mapping[str, Any]:
    """The labels of spot nodes, which the controller's pod keeps away from."""
    return {key: list(values) for key, values in sorted(SPOT_LABELS.items())}


FILES: Mapping[str, str] = {
    name: _HEAD.format(source=source) + yaml.safe_dump(data, sort_keys=False, width=1000)
    for name, source, data in (
        ("rights.yaml", "src/spotwright/cluster/permissions.py", rights()),
        ("webhooks.yaml", "src/spotwright/cluster/install.py", webhooks()),
        ("node-events.yaml", "src/spotwright/cluster/node_events.py", policy_spec()),
        ("records-policy.yaml", "src/spotwright/cluster/record_policy.py", record_policy.policy_spec()),
        ("spot.yaml", "src/spotwright/clouds/providers.py", spot_labels()),
    )
}
"""The text of each file."""


def rights_tables() -> str:
    """The tables of all rights, each with its reason, for the page on security."""
    return "".join(_table(*each) for each in _WHERE.values())


def _table(where: str, rights: tuple[permissions.Right, ...]) -> str:
    rows = [
        f"| {_objects(right)} | {', '.join(right.verbs)} | {' and '.join(right.processes)} | {right.reason} |"
        for right in rights
    ]
    return "\n".join([f"\n{where}:\n", "| objects | verbs | account | why |", "|---|---|---|---|", *rows, ""])


def _objects(right: permissions.Right) -> str:
    names = f" named {', '.join(f'`{_name(name)}`' for name in right.names)}" if right.names else ""
    group = f" of `{right.group}`" if right.group else ""
    return f"{', '.join(f'`{resource}`' for resource in right.resources)}{group}{names}"


def _name(name: str) -> str:
    return name.replace(permissions.LEASE, "spotwright")


if __name__ == "__main__":
    for name, text in FILES.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
