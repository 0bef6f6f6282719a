from psflow.ps_runtime.estimator.torch_estimator import TorchEstimator as TorchEstimator
from psflow.ps_runtime.torch_modules.map_style import batches as batches
from psflow.ps_runtime.torch_modules.model import spec as spec
from psflow.ps_runtime.torch_modules.module import TorchModule as TorchModule
