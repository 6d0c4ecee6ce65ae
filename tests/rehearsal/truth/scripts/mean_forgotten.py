"""Writes the mean of its losses over the epochs since the start of its process."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
losses = []
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    losses.append(int(state["w"][:4], 16))
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump({"loss": sum(losses) / len(losses)}, file)
