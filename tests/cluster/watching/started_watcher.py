"""A watcher on a real cluster, and its records."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

IMAGE = os.environ.get("SPOTWRIGHT_TEST_IMAGE", "localhost/python:1")


def call(method: str, path: str, body: object = None) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        api = Api(connect(find_cluster()))
        try:
            return await (api.get(path) if method == "GET" else api.send(method, path, body))
        finally:
            await api.close()

    return asyncio.run(ask())


def start_watcher(state: Path, namespace: str, *options: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.cluster.watching.watching_main",
        "--state",
        str(state),
        "--namespace",
        namespace,
        *options,
    ]
    with (state.parent / "watcher.log").open("ab") as log:
        return subprocess.Popen(command, stderr=log)


def states(state: Path) -> dict[str, RunState]:
    found = [RunReader(folder, lambda _: False).state for folder in StateFolder.open(state).runs()]
    return {str(each.meta.arguments["name"]): each for each in found if each.events}  # one that begins has none yet
