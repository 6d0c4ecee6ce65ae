"""Saves in a folder that is named by the date of today."""

import json
import os
import time

folder = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], time.strftime("run-%Y-%m-%d"))
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 18:
    time.sleep(0.04)
    epoch += 1
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
