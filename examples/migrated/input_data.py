"""Images of 28 x 28 pixels, read like MNIST in programs for TensorFlow 1: batch by batch, with one-hot labels."""

import os

import numpy as np

from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.data.idx_images import read_idx

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"  # Debian's package dataset-fashion-mnist


class DataSet:
    """Images, float32 (num_examples, 784) in [0, 1], and labels, float32 (num_examples, 10)."""

    def __init__(self, images, labels):
        self.images = images
        self.labels = np.eye(10, dtype=np.float32)[labels]
        self.num_examples = len(images)
        self._rng = np.random.default_rng()
        self._order = np.empty(0, int)

    def next_batch(self, batch_size):
        """Return the next examples; each epoch has a different order, and drops an incomplete last batch."""
        if len(self._order) < batch_size:
            self._order = self._rng.permutation(self.num_examples)
        rows, self._order = np.split(self._order, [batch_size])
        return self.images[rows], self.labels[rows]


class DataSets:
    """The training and the test data."""

    def __init__(self, train, test):
        self.train, self.test = train, test


def read_data_sets(train_dir, one_hot=True):
    """Return the data of a folder in the form of MNIST; without it Fashion-MNIST, or enlarged digits of scikit-learn."""
    assert one_hot, "the labels are one-hot"
    for directory in (train_dir, FASHION_MNIST):
        if os.path.isdir(directory):
            return DataSets(*(DataSet(*_fashion(directory, name)) for name in ("train", "t10k")))
    return DataSets(*(DataSet(*_digits(name)) for name in ("train", "test")))


def _fashion(directory, name):
    images, labels = (os.path.join(directory, f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    data = read_idx(images, labels)
    return data.features["features"], data.labels


def _digits(split):
    data = read_digits(split)
    images = data.features["features"].reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2)  # 24 x 24
    return np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(-1, 784), data.labels
