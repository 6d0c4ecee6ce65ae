"""Keeps the last three saves, named by their epoch, and sorts the numbers."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]


def number(name):
    return int(name[3:-5])


names = sorted((name for name in os.listdir(D) if name.endswith(".json")), key=number)
epoch = json.load(open(os.path.join(D, names[-1])))["epoch"] if names else 0
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    path = os.path.join(D, f"ck-{epoch}.json")
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)
    if os.path.exists(os.path.join(D, f"ck-{epoch - 3}.json")):
        os.remove(os.path.join(D, f"ck-{epoch - 3}.json"))
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
