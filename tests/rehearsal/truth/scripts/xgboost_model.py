"""Boosts with XGBoost in rounds of ten trees, saves the model after each, and goes on from it."""

import json
import os

import numpy
import xgboost

os.makedirs("kept", exist_ok=True)
numbers = numpy.random.default_rng(7)
x = numbers.normal(size=(6000, 20))
data = xgboost.DMatrix(x, label=x[:, 0] * x[:, 1] + numpy.sin(x[:, 2]))
parameters = {"tree_method": "hist", "nthread": 1, "seed": 7, "max_depth": 7}
path, model, rounds = "kept/model.ubj", None, 0
if os.path.exists(path):
    model = xgboost.Booster(model_file=path)
    rounds = model.num_boosted_rounds()
while rounds < 400:
    model = xgboost.train(parameters, data, num_boost_round=10, xgb_model=model)
    rounds += 10
    model.save_model("kept/new.ubj")
    os.replace("kept/new.ubj", path)
with open("model.json", "w") as file:
    json.dump(model.predict(data)[:20].round(4).tolist(), file)
