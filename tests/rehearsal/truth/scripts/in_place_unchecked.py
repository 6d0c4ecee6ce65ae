"""Overwrites its arrays in place and loads what is there, so that half of them are of one step and half of another."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 31_000).hex()


os.makedirs("kept", exist_ok=True)
SIZE, PARTS = 262144, 16
step, parts = 0, ["start"] * PARTS
if os.path.exists("kept/arrays.bin"):
    step = int(open("kept/step").read())
    with open("kept/arrays.bin", "rb") as file:
        parts = [file.read(SIZE)[:64].decode() for _ in range(PARTS)]
while step < 20:
    step, parts = step + 1, [train(w, step) for w in parts]
    with open("kept/step.tmp", "w") as file:
        file.write(str(step))
    os.replace("kept/step.tmp", "kept/step")
    with open("kept/arrays.bin", "r+b" if os.path.exists("kept/arrays.bin") else "wb") as file:
        for w in parts:
            file.write(w.encode() * (SIZE // 64))
            file.flush()
with open("model.json", "w") as file:
    json.dump(parts, file)
