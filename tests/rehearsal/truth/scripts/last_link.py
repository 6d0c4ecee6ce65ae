"""Saves epoch=N.ckpt and lets last.ckpt name it, which is a link that is replaced.

It writes as the callback ModelCheckpoint of Lightning does with save_last="link", but replaces the link in one operation.
"""

import hashlib
import json
import os


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept/checkpoints", exist_ok=True)
LAST = "kept/checkpoints/last.ckpt"
state = json.load(open(LAST)) if os.path.exists(LAST) else {"epoch": 0, "w": "start"}
while state["epoch"] < 20:
    state = {"epoch": state["epoch"] + 1, "w": train(state["w"], state["epoch"])}
    name = f"epoch={state['epoch']}.ckpt"
    with open("kept/checkpoints/writing", "w") as file:
        json.dump(state, file)
    os.replace("kept/checkpoints/writing", f"kept/checkpoints/{name}")
    if os.path.lexists(LAST + ".new"):
        os.remove(LAST + ".new")
    os.symlink(name, LAST + ".new")
    os.replace(LAST + ".new", LAST)
with open("model.json", "w") as file:
    json.dump(state, file)
