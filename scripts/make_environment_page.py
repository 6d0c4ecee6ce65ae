"""The reference page of environment variables: an attempt's, and the ones that the ``spotwright`` command reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["VARIABLES", "page"]

VARIABLES: Mapping[str, Mapping[str, Any]] = yaml.load(
    Path(__file__).with_name("environment.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
"""By reader, ``attempt`` or ``command``: the value of each variable, and for an attempt where it is set."""

_WHERE = ("value", "run", "placed", "compiled")

_HEAD = """# Environment of an attempt

The variables have the same meaning wherever an attempt runs, but not all are set everywhere. `spotwright.checkpoint` reads them
for you: `Checkpoint()`, `progress(share)` and `notice()` also work without them. Code that reads a variable itself needs a
fallback: `os.environ.get("SPOTWRIGHT_CHECKPOINT", "checkpoints")`. "With the controller" are pods of namespaces in which
[the controller](../how-to/cluster/run-the-controller.md) places.

| variable | value | `spotwright run` | placed Jobs, TrainJobs, steps of Argo and Tekton | compiled KFP tasks |
|---|---|---|---|---|
"""

_MISSING = """
Without a variable, the library does this:

| call | without its variable |
|---|---|
| `Checkpoint()` | saves in `spotwright-checkpoint/NAME` in the working directory, with a warning |
| `progress(share)` | does nothing |
| `notice()` | returns `None` |

Writers are not ordered by attempt number: each claims its place in the checkpoint's store, and the newest claim wins. The
number, the pod's UID and the host only name the other writer in messages.

The notice is a JSON object. Times are Unix time in seconds.

| key | value |
|---|---|
| `noticed_at` | When the notice came. |
| `goes_at` | When the node will be reclaimed. |
| `seconds` | The time between the two. |
| `why` | A sentence for people. |

## Other properties of an attempt

- The variables of the shell that started the run, and those set with `task.set_env_variable`.
- Its own current directory, empty at the start. Attempts do not share it.
- Its own process group and session. SIGTERM comes at the end of the notice minus the grace period, SIGKILL at the end
  of the notice.
- A memory limit, if the task sets one and this user may make control groups; otherwise a note says that limits are not
  enforced. Exceeding the limit counts as *out of memory*.
- The Python that runs Spotwright, with the SDK's executor; with `packages_to_install`, an environment that is built
  once for this set of packages, before a node is requested, has the same Spotwright, and is kept in
  `~/.cache/spotwright/environments` (`$XDG_CACHE_HOME`).

## Read by the `spotwright` command

| variable | value |
|---|---|
"""


def page() -> str:
    """Every variable with its meaning."""
    attempt = [[name, *(facts[key] for key in _WHERE)] for name, facts in VARIABLES["attempt"].items()]
    command = [[name, meaning] for name, meaning in VARIABLES["command"].items()]
    return "".join([_HEAD, *map(_row, attempt), _MISSING, *map(_row, command)])


def _row(cells: list[str]) -> str:
    return f"| `{cells[0]}` | {' | '.join(cells[1:])} |\n"
