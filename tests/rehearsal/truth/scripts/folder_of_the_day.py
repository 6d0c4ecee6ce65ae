"""Names the folder of its saves by the day, and starts over when an attempt begins on another day."""

import hashlib
import json
import os
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


folder = f"kept/{time.strftime('run-%Y-%m-%d')}"
os.makedirs(folder, exist_ok=True)
PATH = folder + "/state.json"
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
