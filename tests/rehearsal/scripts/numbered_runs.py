"""Each attempt saves in a folder of the next free number, and loads from the first one."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
first = os.path.join(D, "first.json")
epoch = json.load(open(first))["epoch"] if os.path.exists(first) else 0
own = os.path.join(D, f"again{len(os.listdir(D))}.json") if os.path.exists(first) else first
while epoch < 18:
    time.sleep(0.04)
    epoch += 1
    with open(own + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(own + ".tmp", own)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
