"""Never overwrites its save: each attempt writes another one, and loads the first."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
first = os.path.join(D, "last.json")
epoch = json.load(open(first))["epoch"] if os.path.exists(first) else 0
path, version = first, 0
while os.path.exists(path):
    version += 1
    path = os.path.join(D, f"last-v{version}.json")
while epoch < 20:
    time.sleep(0.05)
    epoch += 1
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
