"""Saves only twice, so that no save fits into a life of a third."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 20:
    time.sleep(0.06)
    epoch += 1
    if epoch % 10 == 0:
        with open(path + ".tmp", "w") as file:
            json.dump({"epoch": epoch}, file)
        os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
