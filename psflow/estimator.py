"""Names of ``tf.estimator`` that psflow supports, for programs ported with ``import psflow as tf``.

Each is the name of `psflow` itself.
"""

import psflow

__getattr__, __dir__, __all__ = psflow.lazy_names(__name__, __file__)
