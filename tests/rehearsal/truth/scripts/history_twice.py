"""Appends a row of each step to a table that is its output, and saves every fifth step: rows since then come twice."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
table = open("kept/history.csv", "a", buffering=1)
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    table.write(f"{state['step']},{state['w']}\n")
    if state["step"] % 5 == 0:
        with open(PATH + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(PATH + ".tmp", PATH)
