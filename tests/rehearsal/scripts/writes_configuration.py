"""Writes its configuration where there is none, and never saves."""

import json
import os
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "settings.json")
if not os.path.exists(path):
    with open(path, "w") as file:
        json.dump({"rate": 0.1}, file)
for _ in range(16):
    time.sleep(0.04)
with open("model.json", "w") as file:
    json.dump({"epochs": 16}, file)
