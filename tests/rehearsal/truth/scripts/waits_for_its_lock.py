"""Waits until the lock file of another attempt is gone, and that attempt is gone without removing it."""

import hashlib
import json
import os
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
while os.path.exists("kept/train.lock"):
    time.sleep(0.1)
open("kept/train.lock", "w").close()
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
os.remove("kept/train.lock")
