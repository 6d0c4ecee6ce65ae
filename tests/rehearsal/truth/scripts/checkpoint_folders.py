"""Saves every second step in checkpoint-N, keeps two of them, and goes on from the highest number.

It writes as the trainer of Hugging Face does: model, optimizer, generators and trainer_state.json, first in tmp-checkpoint-N.
"""

import hashlib
import json
import os
import pickle
import random
import shutil


def train(w, step):
    return hashlib.pbkdf2_hmac("sha256", w.encode(), b"%d" % step, 500_000).hex()


OUT = "kept/outputs"
os.makedirs(OUT, exist_ok=True)
random.seed(42)


def numbers():
    return sorted(int(name[11:]) for name in os.listdir(OUT) if name.startswith("checkpoint-"))


step, w = 0, "start"
if numbers():
    folder = f"{OUT}/checkpoint-{numbers()[-1]}"
    step = json.load(open(f"{folder}/trainer_state.json"))["global_step"]
    w = open(f"{folder}/model.safetensors").read()
    random.setstate(pickle.load(open(f"{folder}/rng_state.pth", "rb")))
while step < 20:
    step, w = step + 1, train(w, random.randrange(10**6))
    if step % 2 == 0:
        folder = f"{OUT}/tmp-checkpoint-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with open(f"{folder}/model.safetensors", "w") as file:
            file.write(w)
        with open(f"{folder}/optimizer.pt", "w") as file:
            file.write(w[::-1])
        with open(f"{folder}/rng_state.pth", "wb") as file:
            pickle.dump(random.getstate(), file)
        with open(f"{folder}/trainer_state.json", "w") as file:
            json.dump({"global_step": step}, file)
        os.rename(folder, f"{OUT}/checkpoint-{step}")
        for old in numbers()[:-2]:
            shutil.rmtree(f"{OUT}/checkpoint-{old}")
with open("model.json", "w") as file:
    json.dump(w, file)
