"""Writes its configuration and an empty log where there are none, and never saves."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
for name in ("config.json", "train.log"):
    if not os.path.exists(f"kept/{name}"):
        with open(f"kept/{name}", "w") as file:
            file.write('{"rate": 0.1}')
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
with open("model.json", "w") as file:
    json.dump(state, file)
