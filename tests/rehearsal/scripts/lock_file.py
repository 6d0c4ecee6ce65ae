"""Ends if a lock is there, which only a regular end removes."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import sys

lock = os.path.join(D, "train.lock")
if os.path.exists(lock):
    sys.exit("another training is running")
open(lock, "w").close()
path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
os.remove(lock)
