"""Saves the state of its learning rate's schedule beside its weights, in one file."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


class Cosine:
    def __init__(self):
        self.t = 0

    def step(self):
        self.t += 1
        return self.t * 3 % 7


os.makedirs("kept", exist_ok=True)
schedule, step, w = Cosine(), 0, "start"
if os.path.exists("kept/state.json"):
    step, w, schedule.t = json.load(open("kept/state.json"))
while step < 20:
    step, w = step + 1, train(w, schedule.step())
    with open("kept/state.json.tmp", "w") as file:
        json.dump([step, w, schedule.t], file)
    os.replace("kept/state.json.tmp", "kept/state.json")
with open("model.json", "w") as file:
    json.dump(w, file)
