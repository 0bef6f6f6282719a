"""Names of ``tf.train`` that psflow supports, for programs ported with ``import psflow as tf``.

Each is a name of `psflow` itself; optimizers have their names of TensorFlow.
"""

import psflow

__getattr__, __dir__, __all__ = psflow.lazy_names(__name__, __file__)
