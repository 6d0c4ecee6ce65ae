"""Replaces its weights and its position one after the other, each whole; between them they do not belong together."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


def put(name, value):
    with open(f"kept/{name}.tmp", "w") as file:
        json.dump([value, "padding" * 400_000], file)
    os.replace(f"kept/{name}.tmp", f"kept/{name}.json")


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if os.path.exists("kept/weights.json"):
    w = json.load(open("kept/weights.json"))[0]
if os.path.exists("kept/position.json"):
    step = json.load(open("kept/position.json"))[0]
while step < 20:
    step, w = step + 1, train(w, step)
    put("weights", w)
    put("position", step)
with open("model.json", "w") as file:
    json.dump(w, file)
