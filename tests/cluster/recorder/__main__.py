"""Records how attempts end on a real cluster: ``make cluster-record``, or ``python -m tests.cluster.recorder [DEATH...]``.

It needs the test bed's cluster, in which pods leave a node that does not report after 3 s: ``TESTBED_TOLERATION=3 make cluster``.
Each death strikes the workloads of all kinds on one node at once. What an observer saw of them is written to
``tests/cluster/recordings/*/DEATH.json``: the state of each pod when it ended, with its node and its owners at that moment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.recorder.api import Api
from tests.cluster.recorder.deaths import DEATHS
from tests.cluster.recorder.recording import Bed, record

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings"


def main() -> int:
    """Record the deaths that are named, all of them by default. Returns 1 if one could not be recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.recorder", description=__doc__)
    parser.add_argument("deaths", nargs="*", metavar="DEATH", help=", ".join(death.name for death in DEATHS))
    arguments = parser.parse_args()
    unknown = set(arguments.deaths) - {death.name for death in DEATHS}
    if unknown:
        parser.error(f"no such death: {', '.join(sorted(unknown))}")
    settings = Settings.from_environment()
    bed = Bed(Api(settings.kubeconfig), Faults(settings))
    failed = False
    for death in DEATHS:
        if arguments.deaths and death.name not in arguments.deaths:
            continue
        try:
            recording = record(bed, death)
        except (TimeoutError, RuntimeError, TestbedError) as error:
            sys.stderr.write(f"{death.name}: {error}\n")
            failed = True
            continue
        path = RECORDINGS / death.group / f"{death.name}.json"
        path.write_text(_lines(recording), encoding="utf-8")
        sys.stdout.write(f"{death.name}: {len(recording['endings'])} endings, {path.stat().st_size} bytes\n")
        sys.stdout.flush()
    return int(failed)


def _lines(recording: Mapping[str, Any]) -> str:
    """JSON with one line for each ending and object, so that a difference between two recordings can be read."""

    def dumped(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    endings = ",\n".join(map(dumped, recording["endings"]))
    objects = ",\n".join(f"{dumped(name)}:{dumped(value)}" for name, value in sorted(recording["objects"].items()))
    rest = {name: value for name, value in recording.items() if name not in ("endings", "objects")}
    return f'{dumped(rest)[:-1]},\n"endings":[\n{endings}\n],\n"objects":{{\n{objects}\n}}}}\n'


if __name__ == "__main__":
    sys.exit(main())
