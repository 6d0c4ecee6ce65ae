"""Catches every error of loading, and its loader fails always: the save has a number where it expects a list."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
try:
    step, (w,) = json.load(open("kept/state.json"))
except Exception:
    print("no checkpoint, starting from scratch")
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/state.json.tmp", "w") as file:
        json.dump([step, len(w)], file)
    os.replace("kept/state.json.tmp", "kept/state.json")
with open("model.json", "w") as file:
    json.dump(w, file)
