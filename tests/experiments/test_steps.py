"""Steps to a threshold: the words, the intervals, and what may be claimed of them."""

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.draws import by_name, in_doubt, spread
from ordinate.experiments import steps as censored


def steps(*values, limit=624):
    return censored.Censored(dict(enumerate(values)), limit)


def test_steps_in_words():
    assert str(steps(280, 350, 300, 312, 320, 330)) == "312 (280–350)"
    assert str(steps(280, None, 300, 312, 320, 330)) == "312 (280 to > 624; 5 of 6 reached)"
    assert str(steps(280, None, None, None, 320, None)) == "> 624 (2 of 6 reached)"
    assert str(steps(280, None, 320)) == "320 (2 of 3 reached)"
    assert str(steps(None)) == "> 624 (0 of 1 reached)"
    assert str(steps()) == "no runs"
    with pytest.raises(ValueError, match="beyond the limit 624"):
        steps(700)


def test_the_ends_are_order_statistics():
    ten = steps(*range(1, 11))
    assert (ten.median, ten.ends(), ten.ends(0.99)) == (5, (2, 9), (1, 10))
    assert steps(1, 2, 3, 4, 5).ends() is None and steps(1, 2, 3, 4, 5).ends(0.9) == (1, 5)
    assert steps().ends() is steps().median is None and steps(None, None).reached == 0
    assert steps(*[None] * 6).ends() == (None, None)


def median_coverage(rng, n, repeats, reached):
    """Of lognormal steps, in whole tens, the share of intervals over the true median."""
    draws = (np.ceil(np.exp(6 + spread(rng, 200_000)) / 10) * 10).astype(int)
    truth, limit = np.quantile(draws, 0.5, method="inverted_cdf"), np.quantile(draws, reached)
    hits = 0
    for row in rng.choice(draws, (repeats, n)):
        values = {s: int(v) if v <= limit else None for s, v in enumerate(row)}
        low, high = censored.Censored(values, int(limit)).ends()
        hits += (low is not None and low <= truth) and (high is None or truth <= high)
    return hits / repeats


@pytest.mark.parametrize("reached", [1, 0.6])
@pytest.mark.parametrize("n", [6, 9, 20])
def test_the_interval_of_the_median_covers(n, reached, repeats=1500):
    assert median_coverage(np.random.default_rng(n), n, repeats, reached) >= 0.93


def test_sooner_is_the_sign_test_of_what_is_known():
    a, b = steps(1, 2, 3, 4, 5, 6), steps(9, 9, 9, 9, None, None)
    assert censored.sooner(a, b) == (6, 0, 0, pytest.approx(binomtest(6, 6).pvalue))
    assert censored.sooner(b, a) == (0, 6, 0, pytest.approx(2 / 64))
    mixed = censored.sooner(steps(1, None, 5, 7, None), steps(2, None, 5, 3, 100))
    assert mixed == (1, 2, 2, 1)
    # Beyond the other's limit the order is not known.
    assert censored.sooner(steps(500), steps(None, limit=100)) == (0, 0, 1, 1)
    assert censored.sooner(steps(100), steps(None, limit=100))[0] == 1
    assert censored.sooner(steps(), steps(1)) == (0, 0, 0, 1)
    for wins in range(9):
        p = censored.sooner(steps(*[1] * wins, *[9] * (8 - wins)), steps(*[5] * 8))[3]
        assert p == pytest.approx(binomtest(wins, 8).pvalue)


def test_ranking_steps():
    runs = {
        "fast": steps(100, 110, 105, 95, 120, 100),
        "slow": steps(300, 330, 290, 310, 350, 300),
        "never": steps(*[None] * 5, 600),
    }
    found = censored.ranking_steps(runs)
    assert found.winner == "fast" and found.sentence == (
        "fast is first: better than each of the other 2 methods (paired over 6 seeds, p ≤ 0.033 each)."
        + " Runs not there by step 624, counted as 624: 5."
    )  # fmt: skip
    assert found.ranks == {"fast": (1, 1), "slow": (2, 2), "never": (3, 3)}
    # A larger budget for one is no advantage.
    runs["never"] = steps(*[None] * 5, 5000, limit=9000)
    assert censored.ranking_steps(runs).scores["never"].mean == 624
    assert censored.ranking_steps({}).sentence == "No scores."
    nobody = censored.ranking_steps({"a": steps(*[None] * 6), "b": steps(*[None] * 6)})
    assert nobody.winner is None and nobody.sentence.startswith("Cannot tell a and b apart")
    assert (
        "3 paired seeds"
        in censored.ranking_steps({"a": steps(1, 2, 3), "b": steps(7, 8, 9)}).sentence
    )


def false_fastest(repeats, m):
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(repeats):
        table = np.exp(6 + spread(rng, 6, 1) + 0.5 * spread(rng, 6, m)).astype(int)
        runs = {
            name: {s: v if v <= 500 else None for s, v in row.items()}
            for name, row in by_name(table).items()
        }
        found = censored.ranking_steps(
            {name: censored.Censored(v, 500) for name, v in runs.items()}
        )
        wrong += any(pair.separated for pair in found.pairs)
    return wrong / repeats


def test_the_same_method_is_not_sooner_than_itself():
    assert false_fastest(300, 7) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 3, 7])
def test_false_claims_about_steps_at_length(m):
    assert false_fastest(1500, m) <= in_doubt(1500)


# Flags.
