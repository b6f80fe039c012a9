"""Training a model on a data set by any registered objective."""

from smoothcert.architectures import initialise
from smoothcert.training.loop import EpochMetrics, Progress, TrainingDivergedError, train
from smoothcert.training.plan import TrainPlan

__all__ = ["EpochMetrics", "Progress", "TrainPlan", "TrainingDivergedError", "initialise", "train"]
