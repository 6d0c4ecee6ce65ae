"""Boosts with LightGBM in rounds of ten trees, saves the model after each, and goes on from it."""

import json
import os

import lightgbm
import numpy

os.makedirs("kept", exist_ok=True)
numbers = numpy.random.default_rng(7)
x = numbers.normal(size=(6000, 20))
y = x[:, 0] * x[:, 1] + numpy.sin(x[:, 2])
parameters = {"objective": "regression", "verbose": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True}
path, model = "kept/model.txt", None
if os.path.exists(path):
    model = lightgbm.Booster(model_file=path)
while model is None or model.num_trees() < 300:
    model = lightgbm.train(parameters, lightgbm.Dataset(x, y), num_boost_round=10, init_model=model)
    model.save_model(path + ".tmp")
    os.replace(path + ".tmp", path)
    model = lightgbm.Booster(model_file=path)
with open("model.json", "w") as file:
    json.dump(model.predict(x[:20]).round(6).tolist(), file)
