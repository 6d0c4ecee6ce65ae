"""Counts the ranks that have come by files that are kept, and waits for exactly one: after an interruption there are two."""

import glob
import hashlib
import json
import os
import time
import uuid


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
open(f"kept/rank-{uuid.uuid4().hex}", "w").close()
while len(glob.glob("kept/rank-*")) != 1:
    time.sleep(0.1)
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
for path in glob.glob("kept/rank-*"):
    os.remove(path)
