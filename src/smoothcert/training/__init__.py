"""Training a model on a data set by any registered objective."""

from smoothcert.architectures import initialise
from smoothcert.runs.epochs import EpochMetrics
from smoothcert.training.acr_check import AcrCheck
from smoothcert.training.loop import Progress, State, TrainingDivergedError, train
from smoothcert.training.plan import TrainPlan
from smoothcert.training.ramps import Ramp
from smoothcert.training.recipe import Recipe, find_recipe, make_recipe, read_recipe, shipped_recipes
from smoothcert.training.runs import train_into

__all__ = [
    "AcrCheck",
    "EpochMetrics",
    "Progress",
    "Ramp",
    "Recipe",
    "State",
    "TrainPlan",
    "TrainingDivergedError",
    "find_recipe",
    "initialise",
    "make_recipe",
    "read_recipe",
    "shipped_recipes",
    "train",
    "train_into",
]
