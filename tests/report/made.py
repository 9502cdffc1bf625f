"""Comparisons as they could have come out, made up in a moment: nothing is trained here."""

import math
import random

from ordinate.experiments.comparison import Comparison
from ordinate.experiments.plan import Plan, changed, load
from ordinate.tasks import make as make_task
from ordinate.training import Outcome, Point, Score
from ordinate.training.outcome import Cost, Made, Result

#: Per method: the step it is half there, then accuracy at the trained length, at 64 and at 128.
QUICK = {
    "learned": (190, 0.9985, None, None),
    "sinusoidal": (270, 0.991, 0.78, 0.55),
    "relative": (130, 0.998, 0.93, 0.81),
    "continuous": (310, 0.95, 0.70, 0.47),
    "rope": (160, 0.997, 0.965, 0.86),
    "alibi": (430, 0.90, 0.84, 0.80),
    "none": (260, 0.455, 0.42, 0.40),
}
OTHER = (220, 0.985, 0.88, 0.7)
#: Per method: nats above what is perfect after one epoch in one layer, and how fast they fall.
GRID = {
    "sinusoidal": (0.62, 0.85),
    "sininit": (0.55, 0.85),
    "learned": (0.70, 0.80),
    "rope": (0.30, 0.95),
    "lrope": (0.31, 0.95),
}
DIVERGED = "the training loss was not finite at step 112"


def base():
    """The preset "quick" with four epochs and every test sample."""
    plan = load("quick")
    return changed(plan, {"task": "pattern", "about": plan.about, "recipe.epochs": 4})


def quick(
    seeds: int = 6, leave_out: int = 0, failing: bool = True, **changes: object
) -> Comparison:
    """The preset "quick": learned refuses 64 and 128, continuous fails once, two do not converge."""
    plan = changed(base(), {"seeds": seeds, **changes})
    return _made(plan, _quick, leave_out, fails=("continuous", 3) if failing else None)


def swept(**changes: object) -> Comparison:
    """As quick, with a learning rate per method out of three."""
    plan = changed(base(), {"rates": (3e-4, 1e-3, 3e-3), **changes})
    sweep = [_quick(trial, random.Random(trial.id)) for trial in plan.sweep()]
    rates = Comparison.of(plan, sweep).rates
    final = [_quick(trial, random.Random(trial.id)) for trial in plan.final(dict(rates))]
    return Comparison.of(plan, [*sweep, *final], "runs/swept")


def grid(seeds: int = 6, **changes: object) -> Comparison:
    """The preset "template-grid": three depths, three budgets, five methods, three parts."""
    plan = changed(load("template-grid"), {"seeds": seeds, **changes})
    return _made(plan, _template, 0)


def depth() -> Comparison:
    """As the preset "depth", with one budget and three depths, on the task of quick."""
    return quick(layers=(1, 2, 4), failing=False)


def long_names() -> Comparison:
    """Ten methods, more than there are colours, some with names of a line and a half."""
    names = ("randomized(rope:base=1e6):draw_from=512", "rope+alibi", "t5:buckets=16,distance=64")
    return quick(methods=(*QUICK, *names), lengths=(64, 128, 512), failing=False)


def two_seeds() -> Comparison:
    return quick(seeds=2, failing=False)


def unfinished() -> Comparison:
    """A comparison of which a third is still to be run."""
    return quick(leave_out=14, failing=False)


def saturated() -> Comparison:
    """Everyone is at the top."""
    return quick(failing=False, methods=("learned", "relative", "rope", "sinusoidal"))


def empty() -> Comparison:
    return Comparison.of(base(), [])


def _made(plan: Plan, outcome, leave_out: int, fails: tuple[str, int] | None = None) -> Comparison:
    trials = plan.final({})
    outcomes = []
    for trial in trials[: len(trials) - leave_out]:
        made = outcome(trial, random.Random(f"{trial.position} {trial.sizes} {trial.seed}"))
        if fails == (trial.position, trial.seed):
            made = Outcome(trial=trial, status="failed", reason=DIVERGED)
        outcomes.append(made)
    return Comparison.of(plan, outcomes, f"runs/{plan.name}")


def _quick(trial, dice: random.Random) -> Outcome:
    half, *reach = QUICK.get(trial.position, OTHER)
    speed = {3e-4: 1.6, 3e-3: 1.1}.get(trial.recipe.rate, 1.0) / math.sqrt(trial.sizes.layers / 3)
    half *= speed * dice.gauss(1, 0.09)
    top = min(1, reach[0] + dice.gauss(0, (1.001 - reach[0]) / 4))
    chance, width, steps, curve, there = 1 / 3, 0.16 * half, 0, [], 0
    while there < trial.recipe.agree and steps < 624:
        steps = min(steps + trial.recipe.every, 624)
        grown = 1 / (1 + math.exp((half - steps) / width)) - 1 / (1 + math.exp(half / width))
        accuracy = round(min(1, chance + (top - chance) * grown + dice.gauss(0, 0.003)), 3)
        loss = 1.1 * (1 - accuracy) / (1 - chance) + 0.005 + 0.002 * dice.random()
        curve.append(Point(step=steps, train_loss=loss * 1.05, loss=loss, accuracy=accuracy))
        there = there + 1 if accuracy >= (trial.recipe.goal or 2) else 0
    lengths = (make_task(trial.task).length, *trial.lengths)
    test = {}
    for i, n in enumerate(lengths):
        if (aim := reach[min(i, len(reach) - 1)]) is None:
            test[n] = Score(refused=f"learned has a table of 32 places, and {n} were asked for")
            continue
        share = top if i == 0 else max(0, min(1, aim + dice.gauss(0, 0.35 * (1 - aim) * aim)))
        share = round(share, 3)
        test[n] = Score(loss=1.1 * (1 - share) + 0.01, accuracy=share, targets=1000)
    stop = "goal" if there >= trial.recipe.agree else "budget"
    result = Result(
        stop=stop, steps=steps, best=steps, curve=curve, digest="0" * 64, test=test,
        validation=Score(loss=curve[-1].loss, accuracy=curve[-1].accuracy, targets=1000),
    )  # fmt: skip
    own = {"learned": 4096, "relative": 3024, "continuous": 8448}.get(trial.position, 0)
    slow = {"relative": 1.6, "continuous": 1.1, "rope": 1.25, "alibi": 1.1}.get(trial.position, 1)
    return _done(trial, result, own, 0.0115 * slow * dice.gauss(1, 0.02), 61e6 * slow**0.5)


def _template(trial, dice: random.Random) -> Outcome:
    above, fall = GRID[trial.position]
    layers, epochs = trial.sizes.layers, trial.recipe.epochs
    above *= epochs**-fall * layers**-0.3 * math.exp(dice.gauss(0, 0.09))
    if layers == 16 and trial.position == "learned":
        above *= 2.5
    if layers > 1 and trial.position == "lrope":
        above *= 1.2 if epochs < 16 else 0.8
    perfect = {"": 0.675, "numbers": 0.649, "markers": 0.795, "continuation": 0.252}
    share = {"": 1, "numbers": 1.1, "markers": 0.6, "continuation": 0.7}
    loss = {part: perfect[part] + above * share[part] for part in perfect}
    scores = {p: Score(loss=v, accuracy=0.5, targets=9000) for p, v in loss.items()}
    whole = scores.pop("").model_copy(update={"parts": scores})
    steps = 125 * epochs
    curve = []
    for step in range(25, steps + 1, 25):
        at = 0.675 + above + 3.2 * math.exp(-step / 40) + abs(dice.gauss(0, 0.01))
        curve.append(Point(step=step, train_loss=at, loss=at, accuracy=min(0.72, 1 - at / 4.5)))
    result = Result(
        stop="budget", steps=steps, best=steps, curve=curve, digest="0" * 64, test={32: whole},
        validation=whole.model_copy(update={"parts": {}}),
    )  # fmt: skip
    own = {"learned": 32 * 64, "sininit": 32 * 64, "lrope": 8 * layers}.get(trial.position, 0)
    return _done(trial, result, own, 0.006 * layers * dice.gauss(1, 0.02), 9e6 * layers)


def _done(trial, result: Result, own: int, step: float, saved: float) -> Outcome:
    cost = Cost(
        parameters=400_000 + own, of_position=own, flops=2_400_000_000 * trial.sizes.layers,
        saved=int(saved), peak=None, seconds=step * result.steps, step_seconds=step,
    )  # fmt: skip
    made = Made(
        engine="process", device="cpu", threads=1, attention="math", graph=False, stacked=1,
        ordinate="0.1.0", torch="2.13.0", python="3.11.9", machine="x86_64, 2 cores",
        commit="0" * 40, started="2026-11-19T12:00:00Z",
    )  # fmt: skip
    return Outcome(trial=trial, status="done", result=result, cost=cost, made=made)
