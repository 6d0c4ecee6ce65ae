"""Overwrites each of its arrays in place once it is trained: an interruption leaves some of one step and some of another."""

import hashlib
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 31_000).hex()


os.makedirs("kept", exist_ok=True)
SIZE, PARTS = 65536, 16
step, parts = 0, ["start"] * PARTS
if os.path.exists("kept/step"):
    step = int(open("kept/step").read())
    with open("kept/arrays.bin", "rb") as file:
        parts = [file.read(SIZE)[:64].decode() for _ in range(PARTS)]
with open("kept/arrays.bin", "r+b" if step else "wb", buffering=0) as file:
    while step < 20:
        file.seek(0)
        for number in range(PARTS):
            parts[number] = train(parts[number], step)
            file.write(parts[number].encode() * (SIZE // 64))
        step += 1
        with open("kept/step.tmp", "w") as marker:
            marker.write(str(step))
        os.replace("kept/step.tmp", "kept/step")
with open("model.json", "w") as file:
    file.write(" ".join(parts))
