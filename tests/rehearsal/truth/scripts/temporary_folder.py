"""Fills a temporary folder with a save of several files, and renames it when it is whole."""

import hashlib
import json
import os
import shutil


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


os.makedirs("kept", exist_ok=True)
folders = [name for name in os.listdir("kept") if name.startswith("epoch-")]
step, w = 0, "start"
if folders:
    newest = max(folders, key=lambda name: int(name[6:]))
    step, w = int(newest[6:]), open(f"kept/{newest}/weights").read()
    assert open(f"kept/{newest}/optimizer").read() == w[:8]
while step < 20:
    step, w = step + 1, train(w, step)
    shutil.rmtree("kept/partial", ignore_errors=True)
    os.makedirs("kept/partial")
    for name, text in (("weights", w), ("optimizer", w[:8])):
        with open(f"kept/partial/{name}", "w") as file:
            file.write(text)
    os.rename("kept/partial", f"kept/epoch-{step}")
    shutil.rmtree(f"kept/epoch-{step - 2}", ignore_errors=True)
with open("model.json", "w") as file:
    json.dump(w, file)
