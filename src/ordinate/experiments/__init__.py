"""Comparisons: a plan becomes trials, engines run them, a store keeps them, statistics read them."""

from ordinate.experiments.comparison import Comparison, Row
from ordinate.experiments.plan import Cell, Plan, presets
from ordinate.experiments.run import Event, compare

__all__ = ["Cell", "Comparison", "Event", "Plan", "Row", "compare", "presets"]
