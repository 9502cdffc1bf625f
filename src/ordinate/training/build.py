"""From a trial's words to its task, its model and its samples."""

from __future__ import annotations

from ordinate.models import Config, Transformer
from ordinate.tasks import Samples, Split, Task
from ordinate.tasks import make as make_task
from ordinate.training.seeds import derived, seeded
from ordinate.training.trial import Trial


def task(trial: Trial) -> Task:
    """What it is trained and tested on."""
    return make_task(trial.task)


def model(trial: Trial, task: Task) -> Transformer:
    """The model as it is before the first step: equal for all methods, but for the method."""
    config = Config(
        **trial.sizes.model_dump(),
        vocab=task.vocab,
        kind=task.kind,
        output=task.output,
        outputs=task.classes,
        # A learned table has a row for every place tested; those beyond the trained length stay
        # as they were drawn.
        max_len=max((task.length, *trial.lengths)),
    )
    return seeded(lambda: Transformer(config, trial.position), trial.seed)


def samples(trial: Trial, task: Task, split: Split, length: int | None = None) -> Samples:
    """A split as this trial sees it: all methods of a seed see the same."""
    return task.samples(split, derived(trial.seed, "data"), length)
