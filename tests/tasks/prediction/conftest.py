from __future__ import annotations

from collections.abc import Callable

import pytest

from psflow.tasks.prediction.model import FeatureForm, ModelInfo


@pytest.fixture
def model_info() -> Callable[..., ModelInfo]:
    def make(*features: tuple[str, tuple[int, ...]], columns: tuple[str, ...] = ()) -> ModelInfo:
        forms = tuple(FeatureForm(name, "float32", shape) for name, shape in features)
        return ModelInfo("models:/m/1", "1", "/nowhere", "u", 10, columns, forms)

    return make
