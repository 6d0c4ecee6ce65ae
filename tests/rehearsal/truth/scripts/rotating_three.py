"""Keeps the last three saves, named by their step, and sorts the numbers."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
steps = sorted(int(name[5:-5]) for name in os.listdir("kept") if name.endswith(".json"))
step, w = 0, "start"
if steps:
    step, w = steps[-1], json.load(open(f"kept/step-{steps[-1]}.json"))
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/new.tmp", "w") as file:
        json.dump(w, file)
    os.replace("kept/new.tmp", f"kept/step-{step}.json")
    if os.path.exists(f"kept/step-{step - 3}.json"):
        os.remove(f"kept/step-{step - 3}.json")
with open("model.json", "w") as file:
    json.dump(w, file)
