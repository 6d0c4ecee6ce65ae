"""Works for three seconds of its clock and writes how far it came, which depends on the machine."""

import hashlib
import json
import os
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
state.setdefault("left", 3.0)
while state["left"] > 0:
    began = time.monotonic()
    left = state["left"]
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    state["left"] = left - (time.monotonic() - began)
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
