"""The estimators that bring their own model_fn, by the names that configurations have for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from psflow.ps_runtime.estimator.dnn_classifier import DNNClassifier
from psflow.ps_runtime.estimator.estimator import Estimator

__all__ = ["CANNED"]

CANNED: Mapping[str, type[Estimator]] = MappingProxyType({kind.__name__: kind for kind in (DNNClassifier,)})
"""Each takes its hyper-parameters, ``model_dir`` and ``config`` by name."""
