"""Training of torch modules: `TorchEstimator`, parts of it for a model_fn of one's own, and `batches`. Needs torch."""

import psflow

__getattr__, __dir__, __all__ = psflow.lazy_names(__name__, __file__)
