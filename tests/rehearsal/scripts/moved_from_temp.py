"""Writes the save in a temporary folder, and moves it to its place when it is whole."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
import shutil
import tempfile

path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
while epoch < 20:
    time.sleep(0.04)
    epoch += 1
    with tempfile.NamedTemporaryFile("w", dir=D, delete=False) as file:
        json.dump({"epoch": epoch}, file)
    shutil.move(file.name, path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
