"""Starts the training as a child, and passes SIGTERM on to it."""

import signal
import subprocess
import sys

TRAIN = """
import json, os, signal, time
path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
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
"""
child = subprocess.Popen([sys.executable, "-c", TRAIN])
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
sys.exit(child.wait())
