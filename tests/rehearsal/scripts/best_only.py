"""Saves whenever the loss falls, which is in most epochs, and goes on from the best."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "best.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "loss": 9.0}
epoch, best = state["epoch"], state["loss"]
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    loss = 1 / epoch
    if loss < best:
        best = loss
        with open(path + ".tmp", "w") as file:
            json.dump({"epoch": epoch, "loss": loss}, file)
        os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"loss": best}, file)
