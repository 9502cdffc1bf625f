"""A comparison from Python: train, read the table as objects, write the page.

python compare.py            # a few minutes on two cores
"""

import ordinate as od
from ordinate.report import page, tables


def main(folder: str = "ordinate-runs", **changes: object) -> od.experiments.Comparison:
    comparison = od.compare(
        "quick",
        ["learned", "alibi", "none"],
        folder=folder,
        **{"seeds": 6, "sizes": {"dim": 32, "heads": 4}, "layers": 2, "rates": 3e-3, **changes},
    )
    print(tables.text(comparison))
    for length in comparison.lengths:
        print(length, comparison.ranking(length).sentence)
    for row in comparison.rows:
        mean = row.interval(comparison.task.length, comparison.metric)
        print(row.method, mean.mean, mean.low, mean.high, row.failures)
    print(page.write(comparison, f"{folder}/report.html"))
    return comparison


if __name__ == "__main__":
    main()
