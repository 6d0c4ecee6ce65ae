"""Ends if the process in its pid file is alive: in a container that is this process, whose number is the same each time."""

import hashlib
import json
import os
import sys


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


PATH = "kept/state.json"
os.makedirs("kept", exist_ok=True)
state = json.load(open(PATH)) if os.path.exists(PATH) else {"step": 0, "w": "start"}
PIDS = "kept/train.pid"
if os.path.exists(PIDS):
    try:
        os.kill(int(open(PIDS).read()), 0)
    except ProcessLookupError:
        pass
    else:
        sys.exit("another training is running")
with open(PIDS, "w") as file:
    file.write(str(os.getpid()))
while state["step"] < 20:
    state = {"step": state["step"] + 1, "w": train(state["w"], state["step"])}
    with open(PATH + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(PATH + ".tmp", PATH)
with open("model.json", "w") as file:
    json.dump(state, file)
os.remove(PIDS)
