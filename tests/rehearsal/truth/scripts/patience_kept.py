"""Stops when the loss has not fallen for five epochs, and saves the best loss and the epochs since."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state = {"epoch": 0, "w": "start", "best": 99, "bad": 0}
if os.path.exists("kept/state.json"):
    state = json.load(open("kept/state.json"))
while state["bad"] < 5:
    epoch, loss = state["epoch"] + 1, abs(state["epoch"] - 14)
    better = loss < state["best"]
    w = train(state["w"], epoch)
    state = {"epoch": epoch, "w": w, "best": min(loss, state["best"]), "bad": 0 if better else state["bad"] + 1}
    with open("kept/state.json.tmp", "w") as file:
        json.dump(state, file)
    os.replace("kept/state.json.tmp", "kept/state.json")
with open("model.json", "w") as file:
    json.dump(state, file)
