"""Reports its progress to the library after each step, and saves in the folder that the library names."""

import hashlib
import json
import os

import spotwright.checkpoint


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = os.path.join(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
spotwright.checkpoint.progress(state["step"] / 20)
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
    spotwright.checkpoint.progress(state["step"] / 20)
with open("model.json", "w") as file:
    json.dump(state, file)
