"""Measures how far a reader must go to follow three things that Spotwright does: `scripts/measure_ways.py [--list WAY]`.

The ways are `place job.yaml`, the review of a pod until its patch is there, and `run` of one task in the engine's process. Each
runs cold in a process of its own, and every call of a function of ours is seen. It prints how many files those functions
stand in, and how often the next call is in another file than the last; both also with what runs when modules are imported
(bodies of classes, tables that are computed). It exists so that a change of the structure can be judged by what it is for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "spotwright") + os.sep

POOLS = """\
version: 1
pools:
  spot-a: {capacity: spot, provider: aks}
  spot-b: {capacity: spot, provider: aks}
  regular: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer, interruptions: {max: 8}, fall_back_after: 4}}
"""

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "backoffLimit": 6,
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}]}},
    },
}

PIPELINE = """\
from kfp import dsl

@dsl.component
def work() -> str:
    return "done"

@dsl.pipeline
def one():
    work()
"""


class Way:
    """The files of ours in which functions were called one after the other, in each thread."""

    def __init__(self) -> None:
        self._calls: dict[int, list[tuple[str, bool]]] = {}  # by thread: file, and whether a module was being imported
        self._importing: Counter[int] = Counter()

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in {"call", "return"}:
            return
        thread, code = threading.get_ident(), frame.f_code
        is_import = code.co_name == "<module>"
        if is_import:
            self._importing[thread] += 1 if event == "call" else -1
        elif event == "call" and code.co_filename.startswith(SOURCE):
            call = code.co_filename.removeprefix(SOURCE), self._importing[thread] > 0
            self._calls.setdefault(thread, []).append(call)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See every call in the block, also in threads that it starts."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def figures(self, *, imports: bool) -> tuple[Counter[str], int]:
        """How often functions of each file were called, and how often the file changed."""
        files: Counter[str] = Counter()
        changes = 0
        for calls in self._calls.values():
            names = [name for name, importing in calls if imports or not importing]
            files.update(names)
            changes += sum(first != second for first, second in pairwise(names))
        return files, changes


def command(way: Way, *words: str) -> None:
    """Call the command line, with its output on the error output."""
    sys.argv = ["spotwright", *words]
    with way.watched():
        from spotwright.__main__ import main

        try:
            main()
        except SystemExit as error:
            if error.code:
                raise


def place(way: Way) -> None:
    """Place a Job."""
    Path("job.yaml").write_text(json.dumps(JOB), encoding="utf-8")
    command(way, "place", "job.yaml")


def run(way: Way) -> None:
    """Run a pipeline of one task."""
    Path("one.py").write_text(PIPELINE, encoding="utf-8")
    command(way, "run", "one.py")


def review(way: Way) -> None:
    """Review a pod of a placed Job, one of whose attempts was interrupted."""
    from spotwright import config as configuration
    from spotwright.cluster.admission_server import admit, answer, parse_review
    from spotwright.cluster.admit_pods import AdmissionContext
    from spotwright.model.attempts import Cause
    from spotwright.scheduling.next_attempt import PastAttempt

    config = configuration.parse(POOLS)
    template = (admit(JOB, config, refusal_image="none").placed or {})["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    metadata = {**template["metadata"], "generateName": "train-", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    request = {"uid": "1", "operation": "CREATE", "namespace": "team", "object": pod}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    facts = AdmissionContext([PastAttempt(Cause.INTERRUPTED, ("spot-a",), "spot-a")])
    with way.watched():
        response, _ = answer(
            parse_review(body), lambda asked: admit(asked.data, config, facts=facts, refusal_image="none")
        )
    if "patch" not in response["response"]:
        raise SystemExit("the review gave no patch")


WAYS: dict[str, Callable[[Way], None]] = {"place job.yaml": place, "a pod's review to its patch": review, "run": run}


def measure(name: str, out: int) -> None:
    """Go one way in an empty folder, and write its figures as JSON."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("spotwright.yaml").write_text(POOLS, encoding="utf-8")
        WAYS[name](way)
        os.chdir("/")
    found = {"all" if imports else "own": way.figures(imports=imports) for imports in (False, True)}
    os.write(out, json.dumps(found).encode())


def figures_of(name: str) -> dict[str, tuple[dict[str, int], int]]:
    """The figures of a way, measured in a separate process."""
    reader, writer = os.pipe()
    words = [sys.executable, __file__, "--measure", name, "--out", str(writer)]
    done = subprocess.run(words, pass_fds=[writer], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        text = stream.read()
    if done.returncode or not text:
        raise SystemExit(f"{name} failed:\n{done.stdout.decode()}")
    found: dict[str, tuple[dict[str, int], int]] = json.loads(text)
    return found


def main() -> None:
    """Print a line for each way, or the files of one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", choices=WAYS, help="print the files of this way, with their calls")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.out)
        return
    if options.list:
        for name, count in sorted(figures_of(options.list)["own"][0].items()):
            print(f"{count:6}  {name}")
        return
    print(f"{'':30}{'files':>8}{'changes of file':>18}{'with imports: files':>22}{'changes':>9}")
    for name in WAYS:
        (files, changes), (all_files, all_changes) = (figures_of(name)[key] for key in ("own", "all"))
        print(f"{name:30}{len(files):8}{changes:18}{len(all_files):22}{all_changes:9}")


if __name__ == "__main__":
    main()
