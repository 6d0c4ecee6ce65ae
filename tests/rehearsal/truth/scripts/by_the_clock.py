"""Saves when a quarter of a second has passed since its last save."""

import hashlib
import json
import os
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
saved = time.monotonic()
while state["step"] < 40:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    if time.monotonic() - saved > 0.25:
        with open(PATH + ".tmp", "w") as file:
            json.dump(state, file)
        os.replace(PATH + ".tmp", PATH)
        saved = time.monotonic()
with open("model.json", "w") as file:
    json.dump(state, file)
