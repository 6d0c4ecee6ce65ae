"""Writes two files in turn, each with a checksum, and loads the newer one that is whole."""

import json
import os
import time
import zlib

D = os.environ["SPOTWRIGHT_CHECKPOINT"]


def read(slot):
    try:
        check, body = open(os.path.join(D, slot)).read().split("\n", 1)
        return json.loads(body) if int(check) == zlib.crc32(body.encode()) else None
    except (OSError, ValueError):
        return None


states = [state for state in map(read, ("a", "b")) if state]
state = max(states, key=lambda each: each["epoch"]) if states else {"epoch": 0, "w": 1.0}
while state["epoch"] < 20:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + 1}
    body = json.dumps(state)
    with open(os.path.join(D, "ab"[state["epoch"] % 2]), "w") as file:
        file.write(f"{zlib.crc32(body.encode())}\n{body}")
with open("model.json", "w") as file:
    json.dump(state, file)
