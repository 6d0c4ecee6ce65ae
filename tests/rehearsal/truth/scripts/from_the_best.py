"""Saves the best state only, which is that of a quarter of the work, and goes on from there each time."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state = {"step": 0, "w": "start", "best": 99}
if os.path.exists("kept/best.json"):
    state = json.load(open("kept/best.json"))
while state["step"] < 20:
    loss = abs(state["step"] - 4)
    better = loss < state["best"]
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"]), "best": min(loss, state["best"])}
    if better:
        with open("kept/best.json.tmp", "w") as file:
            json.dump(state, file)
        os.replace("kept/best.json.tmp", "kept/best.json")
with open("model.json", "w") as file:
    json.dump(state, file)
