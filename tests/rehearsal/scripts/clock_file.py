"""Has a file clock.txt in each epoch and removes it; a resumed attempt fails for another reason."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path, clock = os.path.join(D, "state.json"), os.path.join(D, "clock.txt")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "best": 9}
best = state["best"]
while state["epoch"] < 20:
    with open(clock, "w") as file:
        file.write(time.ctime())
    time.sleep(0.04)
    os.remove(clock)
    state = {"epoch": state["epoch"] + 1}  # without "best"
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(best, file)
