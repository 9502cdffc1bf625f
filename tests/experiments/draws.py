"""What the tests of the statistics draw."""

import math


def by_name(table, names=None):
    """Seeds by methods, as {name: {seed: score}}."""
    names = names or [f"m{i:02}" for i in range(table.shape[1])]
    return {
        name: dict(enumerate(column.tolist())) for name, column in zip(names, table.T, strict=True)
    }


def spread(rng, *size):
    return rng.standard_normal(size)


def in_doubt(repeats):
    """0.05 and two standard errors of a rate seen in so many repeats."""
    return 0.05 + 2 * math.sqrt(0.05 * 0.95 / repeats)
