"""Seeds its generator at each start and does not save its state."""

import hashlib
import json
import os
import random


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
numbers = random.Random(7)
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], numbers.randrange(10**6))}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
