"""Reads and prepares its data anew in each attempt, a tenth of the work, and saves after each epoch."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
data = train("data", 0)
data = train(data, 1)
while state["step"] < 18:
    state = {"step": state["step"] + 1, "w": train(state["w"] + data, state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
