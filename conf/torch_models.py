"""The torch modules of torch_digits.yaml and torch_fashion_mnist.yaml."""

import torch
from torch import nn


class DigitsNet(nn.Module):
    """Two dense layers with batch normalization and dropout, for 64 pixels."""

    def __init__(self, hidden: int = 64, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return logits, ``(batch, 10)``."""
        return self.layers(pixels)


class ClothesNet(nn.Module):
    """Two convolutions with batch normalization, and two dense layers, for 28 x 28 pixels."""

    def __init__(self, channels: int = 16, dropout: float = 0.25) -> None:
        super().__init__()
        self.images = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.BatchNorm2d(2 * channels), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classes = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * channels * 49, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return logits, ``(batch, 10)``."""
        return self.classes(self.images(pixels.reshape(-1, 1, 28, 28)))
