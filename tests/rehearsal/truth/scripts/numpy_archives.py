"""Saves its arrays by numpy in one archive after each epoch, beside, and renames it."""

import json
import os

import numpy

os.makedirs("kept", exist_ok=True)
epoch, w = 0, numpy.ones(65536)
if os.path.exists("kept/state.npz"):
    saved = numpy.load("kept/state.npz")
    epoch, w = int(saved["epoch"]), saved["w"]
while epoch < 20:
    for _ in range(200):
        w = numpy.sin(w * 1.5 + epoch) + w / 3
    epoch += 1
    numpy.savez("kept/new.npz", epoch=epoch, w=w)
    os.replace("kept/new.npz", "kept/state.npz")
with open("model.json", "w") as file:
    json.dump(w[:10].tolist(), file)
