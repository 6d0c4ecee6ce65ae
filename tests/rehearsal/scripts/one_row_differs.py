"""Appends rows and cuts them at the saved position; one row has a number that the save lacks."""

import json
import os
import time

path = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
state = json.load(open(path)) if os.path.exists(path) else {"epoch": 0, "rows": 0}
total = state["rows"]  # and not the sum of the rows before
os.makedirs("kept", exist_ok=True)
with open("kept/rows.csv", "a+b") as rows:
    rows.truncate(state["rows"])
    while state["epoch"] < 20:
        time.sleep(0.04)
        state["epoch"] += 1
        total += state["epoch"]
        rows.seek(0, os.SEEK_END)
        rows.write(b"%d,%d\n" % (state["epoch"], total if state["epoch"] == 20 else 0))
        rows.flush()
        state["rows"] = rows.tell()
        with open(path + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(path + ".tmp", path)
