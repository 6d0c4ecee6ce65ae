"""Makes the folder of its outputs without exist_ok, so that a second attempt ends with an error."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept/run")
w = "start"
for step in range(20):
    w = train(w, step)
    with open(f"kept/run/step-{step}.json", "w") as file:
        json.dump(w, file)
with open("model.json", "w") as file:
    json.dump(w, file)
