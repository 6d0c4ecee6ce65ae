"""Appends a row of each step to a table that is an output, and cuts it back to the length in its save."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state = {"step": 0, "w": "start", "rows": 0}
if os.path.exists("kept/state.json"):
    state = json.load(open("kept/state.json"))
with open("kept/history.csv", "ab") as table:
    table.truncate(state["rows"])
    while state["step"] < 20:
        state["step"], state["w"] = state["step"] + 1, train(state["w"], state["step"])
        table.write(f"{state['step']},{state['w']}\n".encode())
        table.flush()
        state["rows"] = os.fstat(table.fileno()).st_size
        if state["step"] % 3 == 0:
            with open("kept/state.json.tmp", "w") as file:
                json.dump(state, file)
            os.replace("kept/state.json.tmp", "kept/state.json")
