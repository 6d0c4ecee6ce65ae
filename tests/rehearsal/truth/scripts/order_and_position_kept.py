"""Saves its position in a shuffled order, which its seed gives again."""

import hashlib
import json
import os
import random


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
order = list(range(20))
random.Random(7).shuffle(order)
position, w = 0, "start"
if os.path.exists("kept/position.json"):
    position, w = json.load(open("kept/position.json"))
for row in order[position:]:
    w = train(w, row)
    position += 1
    with open("kept/position.tmp", "w") as file:
        json.dump([position, w], file)
    os.replace("kept/position.tmp", "kept/position.json")
with open("model.json", "w") as file:
    json.dump(w, file)
