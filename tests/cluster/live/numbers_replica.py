"""``python -m tests.cluster.live.numbers_replica``: asks for numbers as a replica of the webhook does, all at once or in a row.

Its input is a line of JSON with what to ask for; it says that it is ready, waits for another line, and says what each review
got and how long that took, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from typing import Any

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.attempt_numbers import Asking, Given, Numbers

ADMISSION = Admission(("spot-a", "spot-b"), is_open=True, why="first attempt")


async def _ask(numbers: Numbers, asked: Asking) -> dict[str, Any]:
    began = time.monotonic()
    found = await numbers.number(asked, ignores_doubts=True)  # no pod is made here
    assert isinstance(found, Given), found
    numbered = time.monotonic()
    await numbers.keep(found, asked.root, ADMISSION)
    took = {"number_s": numbered - began, "keep_s": time.monotonic() - numbered}
    return {"slot": found.slot, "number": found.number, "token": str(found.token), **took}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _main() -> None:
    given = json.loads(sys.stdin.readline())
    api = Api(connect(find_cluster(kubeconfig=given["kubeconfig"]), many_streams=True))
    numbers = Numbers(api)
    asked = [
        Asking(
            str(uuid.uuid4()),
            given["root"]["metadata"]["namespace"],
            given["root"],
            given["path"],
            given["slots"],
            is_settled=True,
        )
        for _ in range(given["reviews"])
    ]
    await api.get("/version")  # a replica has a connection
    _say("ready")
    sys.stdin.readline()
    began = time.monotonic()
    if given["at_once"]:
        found = list(await asyncio.gather(*(_ask(numbers, each) for each in asked)))
    else:
        found = [await _ask(numbers, each) for each in asked]
    store = numbers._store
    said = {"found": found, "seconds": time.monotonic() - began, "writes": store.writes, "reads": store.reads}
    _say(json.dumps(said))
    await numbers.close()
    await api.close()


if __name__ == "__main__":
    asyncio.run(_main())
