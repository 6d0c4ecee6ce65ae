"""Goes on from the last of its saves by name: checkpoint-9 comes after checkpoint-10."""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if found := sorted(glob.glob("kept/checkpoint-*.json")):
    step, w = json.load(open(found[-1]))
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/writing", "w") as file:
        json.dump([step, w], file)
    os.replace("kept/writing", f"kept/checkpoint-{step}.json")

with open("model.json", "w") as file:
    json.dump(w, file)
