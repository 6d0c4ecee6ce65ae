"""Loads its save, and rejects it because the arguments in it have the time of the start."""

import hashlib
import json
import os
import time


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
arguments = {"rate": 0.1, "started": time.time()}
state = {"step": 0, "w": "start", "arguments": arguments}
if os.path.exists("kept/state.json"):
    saved = json.load(open("kept/state.json"))
    if saved["arguments"] == arguments:
        state = saved
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"]), "arguments": arguments}
    with open("kept/state.json.tmp", "w") as file:
        json.dump(state, file)
    os.replace("kept/state.json.tmp", "kept/state.json")
with open("model.json", "w") as file:
    json.dump(state["w"], file)
