"""Saves by the library, which loads, saves and reports its progress."""

import hashlib
import json

from spotwright.checkpoint import Checkpoint


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


checkpoint = Checkpoint(every=0.2)
state = checkpoint.load(default={"w": "start"})
for step in checkpoint.steps(20):
    state["w"] = train(state["w"], step)
    checkpoint.step_done(state)
with open("model.json", "w") as file:
    json.dump(state["w"], file)
