"""Writes a save under its own name, and then replaces the file that names the newest one."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
latest = os.path.join(D, "latest")
state = {"epoch": 0, "w": 1.0}
if os.path.exists(latest):
    state = json.load(open(os.path.join(D, open(latest).read())))
while state["epoch"] < 24:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + 1}
    if state["epoch"] % 3 == 0:
        name = f"ck{state['epoch']:04d}.json"
        with open(os.path.join(D, name), "w") as file:
            json.dump(state, file)
        with open(latest + ".tmp", "w") as file:
            file.write(name)
        os.replace(latest + ".tmp", latest)
with open("model.json", "w") as file:
    json.dump(state, file)
