"""Fashion-MNIST by torch: 784-100-10, Adam, five epochs; prints the accuracy on the test part."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.peers.fashion import read

torch.manual_seed(7)
images, labels = map(torch.from_numpy, read("train"))
model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
optimizer = torch.optim.Adam(model.parameters(), 0.001)
for _ in range(5):
    for rows in torch.randperm(len(labels)).split(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
images, labels = map(torch.from_numpy, read("t10k"))
print((model(images).argmax(1) == labels).float().mean().item())
