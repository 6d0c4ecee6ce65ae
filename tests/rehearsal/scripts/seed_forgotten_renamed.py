"""Renames its saves, whose temporary names have the process in them, and forgets its generator."""

import json
import os
import random
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
random.seed(7)
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "w": 1.0}
while state["epoch"] < 20:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + random.random()}
    beside = os.path.join(D, f"{os.getpid()}-saving")
    with open(beside, "w") as file:
        json.dump(state, file)
    os.replace(beside, path)
with open("model.json", "w") as file:
    json.dump(state, file)
