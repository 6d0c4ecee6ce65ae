"""Measures the grace of Argo and KFP on the test bed: ``python -m tests.cluster.grace_trials [--times N] [--add] [FILE]``.

Each fault strikes N times, by default 5; with ``--add`` the trials that are in the file count, and stay. It needs a test bed with
Argo. It writes ``tests/cluster/recordings/grace.json``, or FILE, from which
``scripts/make_grace_page.py`` makes the table of docs/explanation/grace.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from testbed.building.programs import version_of
from testbed.settings import Settings
from tests.cluster.grace_trials.pod_webhook import serving
from tests.cluster.grace_trials.trial import FAULTS, as_data, run_trial
from tests.cluster.recorder.placing import CONFIGURATION

RESULTS = Path(__file__).resolve().parent.parent / "recordings" / "grace.json"


def main() -> None:
    """Run every fault as often as asked, and write the moments of every pod."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.grace_trials", description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="how often each fault strikes")
    parser.add_argument("--add", action="store_true", help="go on with the trials that the file has")
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    settings = Settings.from_environment()
    results: list[dict[str, Any]] = []
    if arguments.add and arguments.file.exists():
        results = json.loads(arguments.file.read_text(encoding="utf-8"))["trials"]
    with tempfile.TemporaryDirectory() as folder, serving(settings, CONFIGURATION, Path(folder)):
        for number, fault in product(range(arguments.times), FAULTS):
            if sum(result["fault"] == fault for result in results) > number:
                continue
            moments = [as_data(each) for each in run_trial(settings, fault, number)]
            results.append({"fault": fault, "load": round(os.getloadavg()[0], 1), "moments": moments})
            sys.stdout.write("".join(f"{fault} {number}: {json.dumps(each)}\n" for each in moments))
            sys.stdout.flush()
            _write(arguments.file, results)


def _write(file: Path, results: Sequence[Mapping[str, Any]]) -> None:
    versions = {
        "Kubernetes": version_of("kubernetes", "k8s.io/kubernetes").removeprefix("v"),
        "Argo": version_of("argo", "github.com/argoproj/argo-workflows/v3").removeprefix("v"),
    }
    text = json.dumps({"versions": versions, "trials": results}, indent=None)
    file.write_text(text.replace('{"shape"', '\n{"shape"').replace('{"fault"', '\n{"fault"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
