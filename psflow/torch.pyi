from psflow.ps_runtime.estimator.torch_estimator import TorchEstimator as TorchEstimator
from psflow.ps_runtime.torch_modules.bound import TorchModule as TorchModule
