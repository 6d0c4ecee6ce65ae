"""Removes its save before it writes the next one."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


def layers(w):
    return [hashlib.sha256(f"{w} {layer}".encode()).hexdigest() * 2048 for layer in range(64)]


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if os.path.exists(PATH):
    step, w, _ = json.load(open(PATH))
while step < 20:
    step, w = step + 1, train(w, step)
    if os.path.exists(PATH):
        os.remove(PATH)
    with open(PATH + ".tmp", "w") as file:
        json.dump([step, w, layers(w)], file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(w, file)
