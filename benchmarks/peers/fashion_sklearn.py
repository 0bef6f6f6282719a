"""Fashion-MNIST by scikit-learn: 784-100-10, Adam, five epochs; prints the accuracy on the test part."""

from __future__ import annotations

import warnings

from sklearn.neural_network import MLPClassifier

from benchmarks.peers.fashion import read

warnings.simplefilter("ignore")  # five epochs are fewer than it wants
model = MLPClassifier([100], batch_size=100, learning_rate_init=0.001, alpha=0, max_iter=5, random_state=7)
model.fit(*read("train"))
print(model.score(*read("t10k")))
