"""Saves when SIGTERM comes, and at no other time."""

import hashlib
import json
import os
import signal
import sys


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}


def leave(*_):
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
    sys.exit(143)


signal.signal(signal.SIGTERM, leave)
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
with open("model.json", "w") as file:
    json.dump(state, file)
