"""Writes two files in turn, each with a checksum, and goes on from the newer one that is whole."""

import hashlib
import json
import os
import zlib


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


def read(slot):
    try:
        check, body = open(f"kept/{slot}").read().split("\n", 1)
        return json.loads(body) if int(check) == zlib.crc32(body.encode()) else None
    except (OSError, ValueError):
        return None


os.makedirs("kept", exist_ok=True)
states = [state for state in map(read, ("even", "odd")) if state]
state = max(states, key=lambda each: each["step"]) if states else {"step": 0, "w": "start"}
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    body = json.dumps(state)
    with open(f"kept/{'odd' if state['step'] % 2 else 'even'}", "w") as file:
        file.write(f"{zlib.crc32(body.encode())}\n{body}")
with open("model.json", "w") as file:
    json.dump(state, file)
