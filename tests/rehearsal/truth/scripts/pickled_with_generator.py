"""Pickles its whole state with that of its generator, beside, and renames it."""

import hashlib
import json
import os
import pickle
import random


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
random.seed(7)
step, w = 0, "start"
if os.path.exists("kept/state.pickle"):
    step, w, generator = pickle.load(open("kept/state.pickle", "rb"))
    random.setstate(generator)
while step < 20:
    step, w = step + 1, train(w, random.randrange(10**6))
    with open("kept/state.pickle.tmp", "wb") as file:
        pickle.dump((step, w, random.getstate()), file)
    os.replace("kept/state.pickle.tmp", "kept/state.pickle")
with open("model.json", "w") as file:
    json.dump(w, file)
