"""Stops after six epochs without a better loss, and does not save how many there were."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
best, bad = 99, 0
while bad < 6:
    loss = abs(state["step"] - 8)
    best, bad = (loss, 0) if loss < best else (best, bad + 1)
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
