"""Loads its save, and discards it because it was made on a host of another name."""

import json
import os
import socket
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
state = {"epoch": 0, "host": socket.gethostname()}
if os.path.exists(path):
    saved = json.load(open(path))
    if saved["host"] == state["host"]:
        state = saved
while state["epoch"] < 20:
    time.sleep(0.04)
    state["epoch"] += 1
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state["epoch"], file)
