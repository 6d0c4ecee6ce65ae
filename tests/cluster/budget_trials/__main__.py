"""Tries every order on the test bed: ``python -m tests.cluster.budget_trials [FILE [ENDINGS ...]]``; about fifteen minutes.

It needs a test bed with Argo, JobSet and Trainer. It writes ``tests/cluster/recordings/budgets.json``, or FILE, from which
``scripts/make_budgets_page.py`` makes a page of the site. With ENDINGS only those orders are tried.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.building.images import BUSYBOX
from testbed.building.programs import version_of
from testbed.control.api import Api as BedApi
from testbed.settings import Settings
from tests.cluster.budget_trials.orders import TRIED
from tests.cluster.budget_trials.trial import KINDS, as_data, run_orders
from tests.cluster.live.kube import Kube
from tests.cluster.live.replicas import controllers
from tests.cluster.recorder.api import Api

RESULTS = Path(__file__).resolve().parent.parent / "recordings" / "budgets.json"
_AT_ONCE = 3  # orders, each with a workload of every kind
_PRODUCTS = {
    "Kubernetes": ("kubernetes", "k8s.io/kubernetes"),
    "Argo": ("argo", "github.com/argoproj/argo-workflows/v3"),
    "JobSet": ("jobset", "sigs.k8s.io/jobset"),
    "Trainer": ("trainer", "github.com/kubeflow/trainer/v2"),
}


def main() -> None:
    """Try the orders, a few at a time, and write the observations after each few."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    orders = [order for order in TRIED if not sys.argv[2:] or order.endings in sys.argv[2:]]
    settings = Settings.from_environment()
    kinds = [kind for kind in KINDS if kind == "job" or _controller(kind) in settings.controllers]
    kube = Kube(BedApi(settings).kubectl_path, settings.kubeconfig, BUSYBOX)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, controllers(settings, kube, Path(folder)) as made:
        for begin in range(0, len(orders), _AT_ONCE):
            for result in run_orders(Api(settings.kubeconfig), made, orders[begin : begin + _AT_ONCE], kinds):
                results.append(as_data(result))
                sys.stdout.write(f"{json.dumps(results[-1])}\n")
            sys.stdout.flush()
            _write(file, results)


def _controller(kind: str) -> str:
    return {"trainjob": "trainer", "kfp": "argo"}.get(kind, kind)


def _write(file: Path, results: Sequence[Mapping[str, Any]]) -> None:
    versions = {name: version_of(*place).removeprefix("v") for name, place in _PRODUCTS.items()}
    lines = ",\n".join(json.dumps(each) for each in results)
    file.write_text(f'{{"versions": {json.dumps(versions)}, "results": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
