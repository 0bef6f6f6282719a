"""Names of ``tf.feature_column`` that psflow supports: feature columns of raw features."""

import psflow

__getattr__, __dir__, __all__ = psflow.lazy_names(__name__, __file__)
