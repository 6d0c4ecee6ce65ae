"""Writes docs/reference/pipelines.md: what of the KFP language runs, from the pipelines of the conformance suite.

Each of them says in its docstring what it is about, and after ``kfp.local:`` what ``kfp.local`` 2.17 makes of it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGE", "main", "text"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "pipelines.md"
PIPELINES = ROOT / "tests" / "conformance" / "pipelines"

_HEAD = """# What of the KFP language runs

<!-- Written by scripts/make_pipelines_page.py from tests/conformance/pipelines; change those. -->

Every line is a pipeline of the conformance suite (`tests/conformance`). It is compiled by the KFP SDK and run twice, undisturbed
and on pools whose nodes are taken every second, and must come to the values that the KFP backend gives, types included. The
last column says what `kfp.local` 2.17 makes of the same pipeline, where that is something else: "no" is an error, "wrong" another
value without one.
"""

_TAIL = """
## Where the backend of KFP 2.17 gives nothing

- Texts with quotes in conditions: the SDK writes them so that the backend refuses the condition. Here they mean what was
  written.
- A whole number for an input that is declared `float`: the backend gives the code an `int`, as its JSON knows no other.
  Here it is a `float`.
- A number in a list whose items have no declared type (`-> list`): the backend makes a text of the item, which a component that
  wants a number then refuses. Here the item keeps its type until a component reads it.
- `set_memory_limit(parameter)` and its kind in a loop, condition or exit handler: the SDK does not pass the parameter into it,
  and the task fails. Here it counts, and a note at the start says so. On a cluster, give it to a task in there as an input too.
- A pipeline that must be given an artifact: KFP can give a run parameters only. Here an argument is its path or address
  (`--arg data=iris.csv`, `--arg data=gs://bucket/iris.csv`), or a mapping with `uri` and `metadata`; of a list, a list of them.
- Placeholders of the run and the task inside longer texts (`f"{dsl.PIPELINE_JOB_NAME_PLACEHOLDER}/x"`), which the backend leaves
  as they are: here they are filled in. `PIPELINE_JOB_NAME` and `PIPELINE_JOB_RESOURCE_NAME` are the run's name, the ids UUIDs.
  `PIPELINE_ROOT` stays as it is, as in the backend.
- A list of artifacts as an argument of a container's command: the backend leaves the placeholder as it is. Here it is the JSON
  list of what is known of each: `name`, `type`, `uri`, `metadata`.
- Loops over artifacts, and texts that are made of an inner loop's item: the backend stops with an error.
- Retries in loops, and `set_retry` on a pipeline inside a pipeline, count for every task in it.

## After a failure

What has begun comes to its end, over interruptions and retries. What has not begun among the tasks of the same pipeline, loop or
iteration does not begin, but for exit tasks and tasks with `ignore_upstream_failure`; the pipeline then fails, and so the one
around it. The run fails even where an exit task succeeds. `PipelineTaskFinalStatus.state` is `COMPLETE`, `FAILED`, `SKIPPED`,
`CACHED`, or `CANCELED` where the tasks never began; `error_message` holds the path of the task that failed first and the
last line of its log.

A run that takes longer than its pipeline allows (`active_deadline_seconds`) fails: what runs is stopped, nothing new begins but
exit tasks. The time is not scaled by `--time-scale`, does not pass while no engine is there, and begins again with a run that is
resumed after it had failed. Limits on how many runs of a pipeline a server may have at a time (`maxActiveRuns`,
`pipelineRunParallelism`, `pipelineVersionConcurrencyLimit`) are named once and left out, as is how long a run is kept.

## Imported artifacts

An imported artifact keeps its address. What lies in Google Cloud Storage or S3 is fetched once for the run by the first task that
is given it, and is at `artifact.path` (`/gcs/...`, `/s3/...`) as in a pod; this takes the extra `gs` or `s3`. Where it cannot be
fetched the attempt's log says why; so it does of models in images (`oci://`) and of Hugging Face (`huggingface://`), which only
a cluster brings. Other addresses (`https://`) are passed on as they are, and nothing lies at their path. Backends that look for
the bucket of every artifact stop at such a one when a task reads it ("unsupported Cloud bucket"); later ones skip it. A
path of this machine must be absolute, and nobody looks whether it is there before the task does.

## Not supported yet

Named before the run starts, each with its task and, where it can be known, its line:

- pipelines and Python components that kfp 1 compiled (component YAML of kfp 1 runs)
- init containers
- a component in a loop of its own, a list of artifacts as the output of a component, and parameters picked by expressions other
  than those that the SDK writes; only other tools write these
"""


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is behind."""
    if "--check" in arguments:
        behind = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text()
        if behind:
            print(f"{PAGE.relative_to(ROOT)} is behind: run scripts/make_pipelines_page.py")
        return int(behind)
    PAGE.write_text(text(), encoding="utf-8")
    return 0


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for path in sorted(PIPELINES.glob("*.py")):
        rows = list(_rows(path))
        if rows:
            title = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem).rstrip(".")
            parts.append(f"\n## {title.partition(':')[0]}\n\n| | `kfp.local` |\n|---|---|\n{''.join(rows)}")
    return "".join([*parts, _TAIL])


def _rows(path: Path) -> Iterator[str]:
    """A row for every pipeline that the module names in ``__all__``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and named and node.name in named[0]:
            what, _, there = " ".join((ast.get_docstring(node) or "").split()).partition(" kfp.local: ")
            yield f"| {_cell(what.rstrip('.'))} | {_cell(there) or 'the same'} |\n"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
