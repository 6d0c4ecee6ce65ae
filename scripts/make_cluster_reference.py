"""Pages of the reference about a cluster: metrics, the kinds of the records, and the findings of ``spotwright pools check``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from spotwright.cluster.metrics import Metrics
from spotwright.cluster.unavailable_pools import LeftOut, Tally
from spotwright.scheduling.budgets import Pause

__all__ = ["FINDINGS", "checks_page", "metrics_page", "records_page"]

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "charts" / "spotwright" / "crds"

FINDINGS: Mapping[str, tuple[str, str]] = yaml.load(
    (ROOT / "scripts" / "findings.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
"""The severity and the meaning of each finding, by its code."""

_CHECKS = """# Findings of `pools check`

The findings of `spotwright pools check` in pools, nodes, manifests and the autoscaler. An *error* keeps work from being
scheduled or from ending in order; a *warning* costs money or time; a *note* is advice. How to use it:
[Check pools](../how-to/pools/check.md).

| finding | severity | meaning |
|---|---|---|
"""

_METRICS = """# Metrics of the controller

The controller serves these metrics at `/metrics` in the text format of Prometheus; `--metrics-listen` sets the address.
`/healthz` answers 500 when the process should be restarted, `/readyz` answers 503 until it is ready. How to run it: [Run the
controller](../how-to/cluster/run-the-controller.md).

| metric | type | labels | meaning |
|---|---|---|---|
"""

_RECORDS = """# Record kinds

The kinds in which the controller keeps its records, in the API group `spotwright.dev`. The chart installs them; only the
controller writes them. Read them with `kubectl get spotruns` or [`spotwright show
--cluster`](../how-to/cluster/read-a-clusters-runs.md).
"""


def checks_page() -> str:
    """Every finding with its severity and meaning."""
    return _CHECKS + "".join(f"| `{code}` | {how} | {what} |\n" for code, (how, what) in FINDINGS.items())


def metrics_page() -> str:
    """Every metric of a controller that records, reviews and has used each label once."""
    tally = Tally()
    tally.waits("uid", "team-a", "Unschedulable")
    tally.kinds = {"jobs": True}
    pause = LeftOut("key", "team-a", "spot", Pause(1, 0.0, 1.0))
    text = Metrics(
        pauses=lambda: [pause], tally=tally, verdicts=lambda: {"placed": 1}, aside=lambda: [("webhook", "team-a")]
    ).text()
    return _METRICS + "".join(_metric(part) for part in text.split("# HELP ")[1:])


def _metric(part: str) -> str:
    head, _, rest = part.partition("\n")
    name, _, meaning = head.partition(" ")
    kind = re.findall(rf"# TYPE {name} (\w+)", rest)[0]
    labels = dict.fromkeys(re.findall(r'[{,](\w+)="', rest))
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |\n"


def records_page() -> str:
    """The kinds with their columns and fields, from the definitions that the chart installs."""
    definitions = [yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) for path in CRDS.glob("*.yaml")]
    return "\n".join(
        [_RECORDS, *(_kind(each["spec"]) for each in sorted(definitions, key=lambda one: one["metadata"]["name"]))]
    )


def _kind(spec: Mapping[str, Any]) -> str:
    names, (version,) = spec["names"], spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    columns = [f"{each['name']} (`{each['jsonPath']}`)" for each in version.get("additionalPrinterColumns", ())]
    parts = [
        f"## {names['kind']}\n\n{schema['description']}\n",
        f"`spotwright.dev/{version['name']}`, {spec['scope'].lower()} scope; `kubectl get {names['plural']}`"
        + (f" shows {', '.join(columns)}." if columns else "."),
        "\n| field | type | meaning |\n|---|---|---|",
        *_fields(schema, ""),
    ]
    return "\n".join(parts) + "\n"


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            here = f"{path}{name}"
            kind = field.get("type", "")
            if kind != "object" or "properties" not in field:
                yield f"| `{here}` | {field.get('format', kind)} | {_meaning(field)} |"
            yield from _fields(field, f"{here}.")
            yield from _fields(field.get("items", {}), f"{here}[].")


def _meaning(field: Mapping[str, Any]) -> str:
    words = " or ".join(f"`{word}`" for word in field.get("enum", ()))
    return " ".join(str(field.get("description", words)).split()).replace("|", "\\|")
