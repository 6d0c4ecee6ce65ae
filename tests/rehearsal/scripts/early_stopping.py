"""Stops when the loss no longer falls, and keeps what it needs for that."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "best": 9.0, "bad": 0}
while state["bad"] < 3:
    time.sleep(0.04)
    epoch = state["epoch"] + 1
    loss = abs(15 - epoch) / 10
    better = loss < state["best"]
    state = {"epoch": epoch, "best": min(loss, state["best"]), "bad": 0 if better else state["bad"] + 1}
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state, file)
