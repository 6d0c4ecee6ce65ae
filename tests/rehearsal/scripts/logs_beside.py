"""Saves twice, and keeps a log beside its saves that it never reads."""

import json
import os
import time

D = os.environ["SPOTWRIGHT_CHECKPOINT"]
path = os.path.join(D, "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
with open(os.path.join(D, "train.log"), "a") as log:
    while epoch < 18:
        time.sleep(0.04)
        epoch += 1
        log.write(f"epoch {epoch} at {time.time()}\n")
        log.flush()
        if epoch % 6 == 0 and epoch < 18:
            with open(path + ".tmp", "w") as file:
                json.dump({"epoch": epoch}, file)
            os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
