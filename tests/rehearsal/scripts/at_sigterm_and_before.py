"""Saves every fifth epoch, and once more when SIGTERM comes."""

import json
import os
import signal
import sys
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0


def save(*_):
    with open(path + ".tmp", "w") as file:
        json.dump({"epoch": epoch}, file)
    os.replace(path + ".tmp", path)


def end(*_):
    save()
    sys.exit(143)


signal.signal(signal.SIGTERM, end)
while epoch < 18:
    time.sleep(0.04)
    epoch += 1
    if epoch % 5 == 0:
        save()
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
