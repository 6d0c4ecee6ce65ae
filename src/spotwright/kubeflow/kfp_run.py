"""What is kept beside a run that Kubeflow Pipelines executes: which run of which server it is, and how to log in there again."""

from __future__ import annotations

import json
from typing import NamedTuple

from spotwright.errors import StateError
from spotwright.kubeflow.login import Login
from spotwright.records.state_folder import RunFolder, write_atomically

__all__ = ["KfpRun", "load_kfp_run", "save_kfp_run"]


class KfpRun(NamedTuple):
    """A run of a server, and its page there. ``controller``: as it was named, empty by default. It holds no secret."""

    run_id: str
    login: Login
    page: str = ""
    controller: str = ""


def save_kfp_run(folder: RunFolder, run: KfpRun) -> None:
    """Write it into the run's folder. Raises :class:`StateError`."""
    try:
        write_atomically(folder.kfp, {**run._asdict(), "login": run.login.to_data()})
    except OSError as error:
        raise StateError(
            f"{folder.path}: cannot be written ({error.strerror}); the run of KFP is {run.run_id}"
        ) from error


def load_kfp_run(folder: RunFolder) -> KfpRun:
    """What is kept of a run. Raises :class:`StateError`."""
    path = folder.kfp
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        page, controller = (str(data.get(name, "")) for name in ("page", "controller"))
        return KfpRun(str(data["run_id"]), Login.from_data(data["login"]), page, controller)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path}: cannot be read ({error})") from error
