"""Loads its weights and counts its steps from 0 again, so that they are trained too long."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
w = json.load(open("kept/weights.json")) if os.path.exists("kept/weights.json") else "start"
for step in range(20):
    w = train(w, step)
    with open("kept/weights.tmp", "w") as file:
        json.dump(w, file)
    os.replace("kept/weights.tmp", "kept/weights.json")
with open("model.json", "w") as file:
    json.dump(w, file)
