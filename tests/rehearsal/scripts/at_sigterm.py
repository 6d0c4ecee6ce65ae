"""Saves only when SIGTERM comes."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import signal

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 20:
    time.sleep(0.05)
    epoch += 1
    if told:
        with open(path + ".tmp", "w") as file:
            json.dump({"epoch": epoch}, file)
        os.replace(path + ".tmp", path)
        raise SystemExit(143)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
