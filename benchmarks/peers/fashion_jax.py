"""Fashion-MNIST by JAX: 784-100-10, Adam, five epochs; prints the accuracy on the test part."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.fashion import read


def logits(variables: Any, images: Any) -> Any:
    """Return the network's outputs for each class."""
    return jax.nn.relu(images @ variables["w0"] + variables["b0"]) @ variables["w1"] + variables["b1"]


def loss(variables: Any, images: Any, labels: Any) -> Any:
    """Return the mean cross-entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(variables, images)), labels[:, None], 1).mean()


def update(number: Any, state: Any, images: Any, labels: Any) -> Any:
    """Return the state after a step of Adam."""
    variables, first, second = state
    gradients = jax.grad(loss)(variables, images, labels)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    rate = 0.001 * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
    return jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), variables, first, second), first, second


step = jax.jit(update)
keys = jax.random.split(jax.random.key(7))
glorot = jax.nn.initializers.glorot_uniform()
weights = {"w0": glorot(keys[0], (784, 100)), "w1": glorot(keys[1], (100, 10))}
state: Any = {**weights, "b0": jnp.zeros(100), "b1": jnp.zeros(10)}
state = state, jax.tree.map(jnp.zeros_like, state), jax.tree.map(jnp.zeros_like, state)
random, number = np.random.default_rng(7), 0
images, labels = read("train")
for _ in range(5):
    for rows in random.permutation(len(labels)).reshape(-1, 100):
        number += 1
        state = step(number, state, images[rows], labels[rows])
images, labels = read("t10k")
print(float((logits(state[0], images).argmax(1) == labels).mean()))
