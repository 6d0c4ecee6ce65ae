"""Trains for a second of its own clock: how far it comes depends on the machine."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"steps": 0, "left": 1.0}
while state["left"] > 0:
    time.sleep(0.02)
    state = {"steps": state["steps"] + 1, "left": state["left"] - 0.02}
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"done": True, "at": time.time()}, file)
