"""Stops after four epochs without a better loss, and does not save how many there were."""

import json
import os
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "best": 100.0}
worse = 0
while state["epoch"] < 40 and worse < 8:
    time.sleep(0.04)
    state["epoch"] += 1
    loss = abs(state["epoch"] - 9)
    worse = 0 if loss < state["best"] else worse + 1
    state["best"] = min(loss, state["best"])
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state, file)
