"""Moves a whole folder to its place; the second time the place is there, and the folder lands inside it."""

import hashlib
import json
import os
import shutil


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
state = {"step": 0, "w": "start"}
if os.path.exists("kept/checkpoint/state.json"):
    state = json.load(open("kept/checkpoint/state.json"))
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    shutil.rmtree("kept/writing", ignore_errors=True)
    os.makedirs("kept/writing")
    with open("kept/writing/state.json", "w") as file:
        json.dump(state, file)
    shutil.rmtree("kept/checkpoint/writing", ignore_errors=True)
    shutil.move("kept/writing", "kept/checkpoint")
with open("model.json", "w") as file:
    json.dump(state, file)
