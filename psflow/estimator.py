"""Those names of ``tf.estimator`` that psflow has, for a program that comes from there with ``import psflow as tf``.

Each is that of `psflow` itself.
"""

import psflow

__getattr__, __dir__, __all__ = psflow.lazy_names(__name__, __file__)
