"""Saves when a fifth of a second has passed since the last save."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"step": 0}
saved = time.monotonic()
while state["step"] < 50:
    time.sleep(0.02)
    state["step"] += 1
    if time.monotonic() - saved > 0.2:
        with open(path + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(path + ".tmp", path)
        saved = time.monotonic()
with open("model.json", "w") as file:
    json.dump(state, file)
