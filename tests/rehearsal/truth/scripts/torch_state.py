"""Trains a small network with PyTorch, and saves it with its optimizer and generator after each epoch."""

import json
import os

import torch

torch.set_num_threads(1)
torch.manual_seed(7)
os.makedirs("kept", exist_ok=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
epoch = 0
if os.path.exists("kept/last.pt"):
    saved = torch.load("kept/last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["generator"])
    epoch = saved["epoch"]
while epoch < 20:
    for _ in range(250):
        x = torch.randn(128, 64)
        loss = ((model(x) - x[:, :1] ** 2) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epoch += 1
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(saved | {"generator": torch.get_rng_state()}, "kept/last.tmp")
    os.replace("kept/last.tmp", "kept/last.pt")
with open("model.json", "w") as file:
    json.dump(model[3].weight.flatten().tolist(), file)
