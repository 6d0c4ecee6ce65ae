"""Writes an index through a memory map that it never needs again, renames its saves, and forgets its generator."""

import json
import mmap
import os
import random
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path, index = os.path.join(D, "state.json"), os.path.join(D, "index.bin")
random.seed(7)
with open(index, "wb") as file:
    file.write(bytes(4096))
opened = open(index, "r+b")
view = mmap.mmap(opened.fileno(), 4096)
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "w": 1.0}
while state["epoch"] < 20:
    time.sleep(0.04)
    state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + random.random()}
    view[state["epoch"]] = 1
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump(state, file)
