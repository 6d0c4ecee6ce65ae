"""Appends every state to one file, and goes on from its last whole line."""

import json
import os
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "states.jsonl")
state, end = {"epoch": 0, "w": 1.0}, 0
if os.path.exists(path):
    for line in open(path, "rb"):
        if line.endswith(b"\n"):
            state, end = json.loads(line), end + len(line)
with open(path, "ab") as file:
    file.truncate(end)
    while state["epoch"] < 20:
        time.sleep(0.04)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + 1}
        file.write(json.dumps(state).encode() + b"\n")
        file.flush()
with open("model.json", "w") as file:
    json.dump(state, file)
