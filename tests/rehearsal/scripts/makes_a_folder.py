"""Makes the folder of its saves, looks for one, and never saves."""

import json
import os
import time

folder = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "run")
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 16:
    time.sleep(0.04)
    epoch += 1
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
