"""Grows the scale of its losses every fourth step since its start, and does not save it."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
scale, since = 16, 0
while state["step"] < 20:
    since += 1
    scale *= 2 if since % 4 == 0 else 1
    state = {"step": state["step"] + 1, "w": train(state["w"], scale)}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
