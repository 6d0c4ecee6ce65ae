"""Overwrites its only save in place, layer by layer, and ends with an error where half a save is there."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


def layers(w):
    return [hashlib.sha256(f"{w} {layer}".encode()).hexdigest() * 2048 for layer in range(64)]


os.makedirs("kept", exist_ok=True)
step, w = 0, "start"
if os.path.exists("kept/state.txt"):
    lines = open("kept/state.txt").read().split("\n")
    step, w = int(lines[0]), lines[1]
    assert lines[2:] == layers(w), "the checkpoint is damaged"
while step < 20:
    step, w = step + 1, train(w, step)
    with open("kept/state.txt", "w") as file:
        file.write("\n".join([str(step), w]))
        for layer in layers(w):
            file.write("\n" + layer)
            file.flush()
with open("model.json", "w") as file:
    json.dump(w, file)
