"""Serves without an end: no execution is a whole one."""

import hashlib
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
step = 0
while True:
    step += 1
    with open("kept/served", "w") as file:
        file.write(train("request", step))
