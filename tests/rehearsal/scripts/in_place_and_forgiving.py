"""Overwrites its only save, and begins from the start where it cannot be read."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
try:
    epoch = json.load(open(path))["epoch"]
except (OSError, ValueError):
    epoch = 0
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    with open(path, "w") as file:
        json.dump({"epoch": epoch}, file)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
