"""Trials that take a second, for the tests of training and of engines."""

from ordinate.training import Recipe, Sizes, Trial

PATTERN = "pattern:length=21,train=128,validation=32,test=32"
COPY = "copy:length=12,tokens=5,distance=2,train=128,validation=32,test=32"


def trial(position="learned", task=PATTERN, seed=0, lengths=(), sizes=None, files=None, **recipe):
    """A trial whose recipe has these changes."""
    return Trial(
        task=task, position=position, seed=seed, lengths=lengths, files=files,
        sizes=Sizes(**{"layers": 1, "dim": 16, "heads": 2, "dropout": 0.2, **(sizes or {})}),
        recipe=Recipe(**{"epochs": 2, "batch": 16, "every": 4, "goal": None, **recipe}),
    )  # fmt: skip


def close(one, other, atol=1e-4):
    """Whether two outcomes are one but for rounding: every loss, and the count of right answers."""
    curves = [[(p.train_loss, p.loss) for p in o.result.curve] for o in (one, other)]
    apart = max(abs(a - b) for x, y in zip(*curves, strict=True) for a, b in zip(x, y, strict=True))
    steps = [[p.step for p in o.result.curve] for o in (one, other)]
    tests = [[s.loss for s in o.result.test.values()] for o in (one, other)]
    apart = max(apart, *(abs(a - b) for a, b in zip(*tests, strict=True)))
    return steps[0] == steps[1] and apart < atol
