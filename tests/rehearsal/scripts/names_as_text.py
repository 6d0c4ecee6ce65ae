"""Sorts the names of its saves as text: from the tenth on the ninth is the last."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import glob

found = sorted(glob.glob(os.path.join(D, "ck-*.json")))
epoch = json.load(open(found[-1]))["epoch"] if found else 0
while epoch < 60:
    time.sleep(0.02)
    epoch += 1
    path = os.path.join(D, f"ck-{epoch}.json")
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
