from psflow import Adagrad, Adam, Ftrl, GradientDescent, Momentum, RMSProp
from psflow import CheckpointSaverHook as CheckpointSaverHook
from psflow import CheckpointSaverListener as CheckpointSaverListener
from psflow import ClusterSpec as ClusterSpec
from psflow import FinalOpsHook as FinalOpsHook
from psflow import GlobalStepWaiterHook as GlobalStepWaiterHook
from psflow import LoggingTensorHook as LoggingTensorHook
from psflow import MonitoredTrainingSession as MonitoredTrainingSession
from psflow import NanTensorHook as NanTensorHook
from psflow import ProfilerHook as ProfilerHook
from psflow import Saver as Saver
from psflow import Scaffold as Scaffold
from psflow import SecondOrStepTimer as SecondOrStepTimer
from psflow import Server as Server
from psflow import SessionRunArgs as SessionRunArgs
from psflow import SessionRunContext as SessionRunContext
from psflow import SessionRunHook as SessionRunHook
from psflow import SessionRunValues as SessionRunValues
from psflow import StepCounterHook as StepCounterHook
from psflow import StopAtStepHook as StopAtStepHook
from psflow import SummarySaverHook as SummarySaverHook
from psflow import get_or_create_global_step as get_or_create_global_step

AdagradOptimizer = Adagrad
AdamOptimizer = Adam
FtrlOptimizer = Ftrl
GradientDescentOptimizer = GradientDescent
MomentumOptimizer = Momentum
RMSPropOptimizer = RMSProp
get_global_step = get_or_create_global_step
