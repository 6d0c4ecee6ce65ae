"""Renames a state and a log of its loss, which do not depend on each other, and forgets its generator."""

import json
import os
import random
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
random.seed(7)


def put(name, value):
    with open(os.path.join(D, name + ".tmp"), "w") as file:
        json.dump(value, file)
    os.replace(os.path.join(D, name + ".tmp"), os.path.join(D, name))


path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "w": 1.0}
while state["epoch"] < 20:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + random.random()}
    put("state.json", state)
    put("loss.json", 1 / state["w"])
with open("model.json", "w") as file:
    json.dump(state, file)
