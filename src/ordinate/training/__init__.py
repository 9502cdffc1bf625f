"""Training: one trial, or several of one shape at once, the same everywhere and resumed exactly."""

from ordinate.training.loop import train
from ordinate.training.outcome import Outcome, Point, Score
from ordinate.training.trial import Recipe, Sizes, Trial

__all__ = ["Outcome", "Point", "Recipe", "Score", "Sizes", "Trial", "train"]
