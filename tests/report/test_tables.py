"""Tables: whole at 80 columns, every number with its unit, and what is missing said."""

import re

import pytest
from rich.cells import cell_len

from ordinate.experiments.stats import Interval
from ordinate.experiments.steps import Censored
from ordinate.report import tables
from ordinate.report.tables import numbers
from report import made

NAMES = (
    "quick", "swept", "grid", "depth", "two_seeds", "unfinished", "saturated", "long_names", "empty",
)  # fmt: skip
MADE = {name: getattr(made, name)() for name in NAMES}


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_too_long_and_no_number_is_cut(name, width):
    comparison = MADE[name]
    for options in ({}, {"seeds": True, "cells": True}):
        text = tables.text(comparison, width, **options)
        assert max(map(cell_len, text.splitlines())) <= width
        assert "…" not in text
        for report in tables.reports(comparison, **options):
            for sheet in report.sheets:
                for line in sheet.lines:
                    for cell in line.cells[1:]:
                        assert all(part in text for part in cell.strip().split("\n")), cell


def test_a_wide_terminal_shows_one_table():
    lines = tables.text(MADE["swept"], 160).splitlines()
    head = next(line for line in lines if line.startswith("method  "))
    assert "(trained)" in head and "95 %" in head and "per step" in head
    assert sum(line.startswith("method  ") for line in lines) == 1


def test_plus_minus_stand_under_each_other():
    lines = tables.text(MADE["quick"]).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("method"))
    rows = [line for line in lines[start + 1 : start + 8]]
    places = {tuple(m.start() for m in re.finditer("±", line)) for line in rows[1:]}
    assert len(places) == 1 and rows[0].index("±") == next(iter(places))[0]


def test_best_first_and_computed_rows_last():
    comparison = MADE["quick"]
    sheet = next(tables.reports(comparison)).sheets[0]
    first = [line.cells[0].split()[0] for line in sheet.lines if line.kind == "method"]
    means = [comparison.row(m).interval(32, "accuracy").mean for m in first]
    assert means == sorted(means, reverse=True) and set(first) == set(comparison.plan.methods)
    computed = [line.cells[0].strip() for line in sheet.lines if line.kind == "computed"]
    assert computed == ["computed:", "chance", "order-blind", "perfect"]
    assert {line.kind for line in sheet.lines[-4:]} == {"computed"}


def test_footnotes_give_the_reasons():
    text = flat(tables.text(MADE["quick"]))
    assert "continuous failed in 1 of 6 runs: the training loss was not finite at step 112" in text
    assert "learned refuses lengths 64 and 128: learned has a table of 32 places" in text
    assert "Not converged: " in text and "alibi (6 of 6 runs)" in text
    marks = re.findall(
        r"^(?:learned|relative|rope|continuous) [¹²³ ]*", tables.text(MADE["quick"]), re.M
    )
    assert "¹" in marks[0], "footnotes are counted from the top"
    clean = tables.text(MADE["saturated"])
    assert "failed in" not in clean and "Not run yet" not in clean
    assert "Not run yet: " in flat(tables.text(MADE["unfinished"]))


def test_verdicts():
    text = flat(tables.text(MADE["quick"]))
    ranking = MADE["quick"].ranking
    assert flat(ranking(32).sentence) in text and flat(ranking(128).sentence) in text
    assert flat(MADE["quick"].ranking_steps(0.95).sentence) in text
    assert "Noise floor: " in text and "equal budget" in text
    assert "pattern · 3 layers, 128 wide" in text and "5,000 train" in text
    text = flat(tables.text(MADE["saturated"]))
    assert flat(MADE["saturated"].saturated()) in text
    assert MADE["saturated"].ranking(32).sentence not in text
    text = flat(tables.text(MADE["two_seeds"]))
    assert "nothing is ranked with fewer than 6" in text and "Noise floor" not in text
    text = flat(tables.text(MADE["unfinished"]))
    assert text.count("14 of 42 runs are still to be made") == 1


def test_rates_are_shown_when_they_were_swept():
    heads = [[c.head for c in next(tables.reports(MADE[n])).sheets[0].columns] for n in MADE]
    assert [("learning\nrate" in head) for head in heads] == [n == "swept" for n in MADE]
    text = flat(tables.text(MADE["swept"], 160))
    assert "The best of 3e-4, 1e-3, 3e-3 for each method" in text


def test_every_seed_on_request():
    text = tables.text(MADE["quick"], 160, seeds=True)
    assert text.count("  seed 3 ") == 7
    row = MADE["quick"].row("rope")
    for value in row.scores(64, "accuracy").values():
        assert f"{100 * value:.1f}" in text
    assert "seed 3" not in re.sub(r"\(.*?\)", "", tables.text(MADE["quick"], 160))


def test_a_grid_is_a_table_per_target_and_no_more():
    reports = list(tables.reports(MADE["grid"]))
    titles = [sheet.title for sheet in reports[0].sheets]
    assert titles == [
        "Loss of all targets, at length 32",
        *(f"Loss of {p} alone, at length 32" for p in ("numbers", "markers", "continuation")),
        "Cost by depth",
    ]
    assert len(reports) == 2
    for sheet in reports[0].sheets[:4]:
        assert len(sheet.lines) == 5 * 3 + 3 + 4
    cells = [cell for line in reports[0].sheets[0].lines for cell in line.cells]
    row = MADE["grid"].row("rope", MADE["grid"].plan.cells[4])
    assert numbers.Unit("loss").mean(row.interval(32, "loss")) in cells
    winners = [line.cells[2:] for line in reports[0].sheets[0].lines if line.kind == "verdict"]
    flat_ = " ".join(cell for line in winners for cell in line)
    assert "rope\nby 0." in flat_ and "cannot tell" in flat_ and "±" in flat_
    assert len(list(tables.reports(MADE["grid"], cells=True))) == 1 + 9 + 1


def test_depths_are_columns_if_there_is_one_budget():
    sheet = next(tables.reports(MADE["depth"])).sheets[0]
    assert [column.head for column in sheet.columns] == [
        "method",
        "1 layer",
        "2 layers",
        "4 layers",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_markdown_is_a_table_of_equal_rows(name):
    text = tables.as_markdown(MADE[name])
    blocks = [b for b in text.split("\n\n") if b.startswith("|")]
    assert blocks
    for block in blocks:
        pipes = {line.replace("\\|", "").count("|") for line in block.splitlines()}
        assert len(pipes) == 1
    for method in MADE[name].plan.methods:
        assert f"| {method}" in text


def test_numbers():
    accuracy, loss = numbers.Unit("accuracy"), numbers.Unit("loss")
    assert accuracy.mean(Interval(6, 0.998, 0.996, 1.0, 0.001)) == "99.8 ±0.2"
    assert loss.mean(Interval(6, 0.675, 0.674, 0.676, 0.001)) == "0.675 ±0.001"
    assert accuracy.mean(Interval(1, 0.5)) == "50.0" and accuracy.mean(Interval(0)) == "–"
    runs = Censored({0: 300, 1: 300, 2: 350, 3: 350, 4: 400, 5: None}, 624)
    assert numbers.steps(runs) == "350 (300–>624) 5/6"
    assert numbers.steps(Censored({0: None, 1: None, 2: 9}, 624)) == ">624 1/3"
    assert numbers.steps(Censored(dict.fromkeys(range(6), 50), 624)) == "50 (50–50)"
    assert numbers.steps(Censored({}, 1)) == "–"
    short = [numbers.short(x) for x in (0, 0.01149, 1.234, 99.94, 123.4, 8448, None)]
    assert short == ["0", "0.0115", "1.23", "99.9", "123", "8,448", "–"]
    assert [numbers.rate(x) for x in (1e-3, 3e-4, 0.01, 2.5e-4)] == [
        "1e-3",
        "3e-4",
        "0.01",
        "2.5e-4",
    ]
