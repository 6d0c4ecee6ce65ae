"""Saves after every epoch, in a file beside that is renamed."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "w": 1.0}
while state["epoch"] < 20:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + 1}
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state, file)
