"""Appends its results to a file that it reads back by lines, and half a line at the end counts as one."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
done = len(open("kept/results.txt").read().splitlines()) if os.path.exists("kept/results.txt") else 0
with open("kept/results.txt", "a") as results:
    for number in range(done, 20):
        results.write(f"{number} ")
        results.flush()
        results.write(train("row", number) + "\n")
        results.flush()
with open("model.json", "w") as file:
    json.dump(open("kept/results.txt").read().splitlines(), file)
