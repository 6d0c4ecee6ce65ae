"""Writes each save under its own name, and then replaces the file that names the newest."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state = {"step": 0, "w": "start"}
if os.path.exists("kept/latest"):
    state = json.load(open("kept/" + open("kept/latest").read()))
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    name = f"global_step{state['step']}.json"
    with open(f"kept/{name}", "w") as file:
        json.dump(state, file)
    with open("kept/latest.tmp", "w") as file:
        file.write(name)
    os.replace("kept/latest.tmp", "kept/latest")
with open("model.json", "w") as file:
    json.dump(state, file)
