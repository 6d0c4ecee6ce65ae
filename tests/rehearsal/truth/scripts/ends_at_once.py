"""Writes its output and ends: there is no work to interrupt."""

import json

with open("model.json", "w") as file:
    json.dump({"done": True}, file)
