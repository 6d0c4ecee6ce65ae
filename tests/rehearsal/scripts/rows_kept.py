"""Appends a row of each epoch to a table beside its saves, of which there is one in three epochs."""

import json
import os
import time

path = os.path.join("kept", "state.json")
epoch = json.load(open(path))["epoch"] if os.path.exists(path) else 0
with open(os.path.join("kept", "history.csv"), "a", buffering=1) as table:
    while epoch < 18:
        time.sleep(0.04)
        epoch += 1
        table.write(f"{epoch},{epoch**2}\n")
        if epoch % 3 == 0:
            with open(path + ".tmp", "w") as file:
                json.dump({"epoch": epoch}, file)
            os.replace(path + ".tmp", path)
with open("model.json", "w") as file:
    json.dump({"epoch": epoch}, file)
