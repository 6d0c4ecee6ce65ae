"""The page on pipelines: the supported KFP pipelines, from the conformance suite.

The docstring of each says what it shows, and after ``kfp.local:`` the result of ``kfp.local`` 2.17.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["page"]

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = ROOT / "tests" / "conformance" / "pipelines"

_HEAD = """# Supported KFP pipelines

Every line is a pipeline of the conformance suite (`tests/conformance`), compiled by the KFP SDK. It runs twice, undisturbed and
on pools whose nodes are reclaimed every second, and must give the values and types of the KFP backend. The last column shows a
different result of `kfp.local` 2.17: "no" is an error, "wrong" another value without an error.
"""

_TAIL = """
## Differences from the backend of KFP 2.17

- Strings with quotes in conditions: the backend refuses the condition as the SDK writes it. Here they work as written.
- A whole number for an input that is declared `float`: the backend passes an `int`. Here it is a `float`.
- A number in a list whose items have no declared type (`-> list`): the backend converts the item to a string, which a
  component that expects a number refuses. Here the item keeps its type until a component reads it.
- `set_memory_limit(parameter)` and the like in a loop, condition or exit handler: the SDK does not pass the parameter into
  the group, and the task fails. Here it works, with a note at the start. On a cluster, pass the parameter to a task of the
  group as an input too.
- A pipeline with a required input artifact: KFP accepts parameters only. Here the argument is the artifact's path or address
  (`--arg data=iris.csv`, `--arg data=gs://bucket/iris.csv`), or a mapping with `uri` and `metadata`; for a list of artifacts,
  a list of these.
- Placeholders of the run and the task inside longer strings (`f"{dsl.PIPELINE_JOB_NAME_PLACEHOLDER}/x"`): the backend
  does not replace them. Here they are replaced. `PIPELINE_JOB_NAME` and `PIPELINE_JOB_RESOURCE_NAME` are the run's name,
  the ids are UUIDs. `PIPELINE_ROOT` is not replaced, as in the backend.
- A list of artifacts as an argument of a container's command: the backend does not replace the placeholder. Here it becomes
  a JSON list with `name`, `type`, `uri` and `metadata` of each.
- Loops over artifacts, and strings with an inner loop's item: the backend stops with an error.
- `set_retry` on a nested pipeline: here it applies to every task in it.
- Retries: the manifests of 2.17 retry neither errors of the code nor drained pods, whatever `set_retry` says (seen on KFP
  2.17.0); here `set_retry` holds. On KFP the code's exit code is lost: its launcher turns every one into 1. See
  [what an interruption does](../kinds/kfp.md#what-an-interruption-does).

## After a failure

Running tasks continue to their end, through interruptions and retries. Other tasks of the same pipeline, loop or iteration do
not begin, except exit tasks and tasks with `ignore_upstream_failure`; then the pipeline fails, and so does the pipeline around
it. The run fails even if an exit task succeeds. `PipelineTaskFinalStatus.state` is `COMPLETE`, `FAILED`, `SKIPPED`, `CACHED`,
or `CANCELED` if the tasks never began; `error_message` has the path of the task that failed first and the last line of its log.

A run that takes longer than its pipeline allows (`active_deadline_seconds`) fails: running tasks are stopped, and only exit
tasks still begin. The time is not scaled by `--time-scale`, does not pass without an engine, and starts again when a failed
run is resumed. Limits of a server (`maxActiveRuns`, `pipelineRunParallelism`, `pipelineVersionConcurrencyLimit`, the
retention of runs) have no effect here; a note names them once.

## Imported artifacts

An imported artifact keeps its address. The first task that needs an artifact in Google Cloud Storage or S3 fetches it for the
run, and it is at `artifact.path` (`/gcs/...`, `/s3/...`) as in a pod; this needs the extra `gs` or `s3`. If it cannot be
fetched, the attempt's log says why. That includes models in images (`oci://`) and of Hugging Face (`huggingface://`), which
only a cluster can fetch. Other addresses (`https://`) are passed on unchanged, without a file at their path. Some backends
look for the bucket of every artifact and stop at such an address when a task reads it ("unsupported Cloud bucket"); later
ones skip it. A path of this machine must be absolute; only the task checks that it exists.

## Not supported yet

Refused before the run starts, with the task and, if known, the line:

- pipelines and Python components that kfp 1 compiled (component YAML of kfp 1 runs)
- init containers
- a loop over a single component without a group, a list of artifacts as the output of a component, and parameters selected by
  expressions that the SDK does not write; only other tools write these
"""


def page() -> str:
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
