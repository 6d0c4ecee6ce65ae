"""Keeps three saves, the last by name: after checkpoint-9 it removes each new one."""

import glob
import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if found := glob.glob("kept/checkpoint-*.json"):
    step, w = json.load(open(max(found, key=lambda name: int(name[16:-5]))))
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/writing", "w") as file:
        json.dump([step, w], file)
    os.replace("kept/writing", f"kept/checkpoint-{step}.json")
    for old in sorted(glob.glob("kept/checkpoint-*.json"))[:-3]:
        os.remove(old)
with open("model.json", "w") as file:
    json.dump(w, file)
