"""Computes all the time, and saves three times."""

import json
import os

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "sum": 0}
while state["epoch"] < 12:
    total = state["sum"]
    for number in range(900_000):
        total = (total * 31 + number) % 1_000_003
    state = {"epoch": state["epoch"] + 1, "sum": total}
    if state["epoch"] % 4 == 0:
        with open(path + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state, file)
