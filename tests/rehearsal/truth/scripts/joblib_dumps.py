"""Dumps its arrays by joblib after each epoch, beside, and renames them."""

import json
import os

import joblib
import numpy

os.makedirs("kept", exist_ok=True)
epoch, w = joblib.load("kept/model.joblib") if os.path.exists("kept/model.joblib") else (0, numpy.ones(65536))
while epoch < 20:
    for _ in range(200):
        w = numpy.sin(w * 1.5 + epoch) + w / 3
    epoch += 1
    joblib.dump((epoch, w), "kept/new.joblib")
    os.replace("kept/new.joblib", "kept/model.joblib")
with open("model.json", "w") as file:
    json.dump(w[:10].tolist(), file)
