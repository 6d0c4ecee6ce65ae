"""Keeps the best state for its user and the last state for itself, and goes on from the last."""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


def save(name, state):
    with open(f"kept/{name}.tmp", "w") as file:
        json.dump(state, file)
    os.replace(f"kept/{name}.tmp", f"kept/{name}.json")


os.makedirs("kept", exist_ok=True)
state = {"step": 0, "w": "start", "best": 9.0}
if os.path.exists("kept/last.json"):
    state = json.load(open("kept/last.json"))
while state["step"] < 20:
    w = train(state["w"], state["step"])
    loss = int(w[:4], 16) / 65536
    better = loss < state["best"]
    state = {"step": state["step"] + 1, "w": w, "best": min(loss, state["best"])}
    if better:
        save("best", state)
    save("last", state)
with open("model.json", "w") as file:
    json.dump(json.load(open("kept/best.json")), file)
