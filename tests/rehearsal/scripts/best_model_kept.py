"""Keeps its best model beside its saves, and forgets after an interruption how good it was."""

import json
import os
import time

D = os.environ.get("SPOTWRIGHT_CHECKPOINT", "kept")
path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
best = 0
while epoch < 20:
    time.sleep(0.05)
    epoch += 1
    score = 100 - abs(epoch - 4)
    if score > best:
        best = score
        with open(os.path.join(D, "best.json"), "w") as file:
            json.dump({"epoch": epoch}, file)
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
