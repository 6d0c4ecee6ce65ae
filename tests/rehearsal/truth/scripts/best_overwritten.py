"""Begins each attempt with no best loss, so that a worse model replaces the best one, its output."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
best = 99
while state["step"] < 20:
    loss = abs(state["step"] - 3)
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
    if loss < best:
        best = loss
        with open("kept/best.tmp", "w") as file:
            json.dump(state, file)
        os.replace("kept/best.tmp", "kept/best.json")
