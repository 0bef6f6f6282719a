"""A model as a user writes it: a file of its own beside another one."""

import numpy as np
from user_parts import number_in, scaled

import psflow.ps_runtime.model.spec as spec
from psflow import embedding_lookup, export, placeholder
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.model.calls.scope import get_variable


def linear(features, mode, params):
    _ = params["scale"]

    import psflow
    import psflow.ps_runtime.model.calls.values

    assert _ is params["scale"]
    w = get_variable("w", (), initializer=zeros)
    assert psflow.ModeKeys is psflow.ps_runtime.model.spec.ModeKeys
    return psflow.EstimatorSpec(mode, predictions=scaled(w * features, params))


def baskets(features, mode):
    shared = {"num_rows": 10**6, "dim": 3, "admit_after": 2, "expire_after_steps": 50}
    items = embedding_lookup("shop/items", features["items"], combiner="mean", **shared)
    users = embedding_lookup("users", features["user"], 8, 2, initializer="normal")
    return spec.EstimatorSpec(mode, predictions={"items": items, "users": users})


def heads(features, mode):
    y = get_variable("w", (), initializer=zeros) * features["x"][:, 0]
    words = np.array(["low", "high"])[(y > 1).astype(int)]
    outputs = {
        "serving_default": export.PredictOutput({"y": y}),
        "price": export.RegressionOutput(y),
        "level": export.ClassificationOutput(np.stack([y, -y], axis=1), words[:, np.newaxis]),
    }
    return spec.EstimatorSpec(mode, predictions={"y": y}, export_outputs=outputs)


def lines():
    line = placeholder(str, [None], "line", example="0.5;red")
    features = np.array([number_in(text) for text in line], np.float32)
    return export.TensorServingInputReceiver(features, {"line": line})


def letters():
    line = placeholder(str, [None], "line", example="a")
    return export.ServingInputReceiver({"other": np.ones(len(line), np.float32)}, {"line": line})


def broken():
    raise KeyError("x")


class Model:
    def model_fn(self, features, mode, params):
        return linear(features, mode, params)


def outer():
    def inner(features, mode):
        return None

    return inner


if __name__ == "__main__":
    import psflow.flows.cli  # noqa: F401 - training is not for the export
