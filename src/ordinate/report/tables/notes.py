"""Footnotes: who did not converge, failed, is missing or refuses, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ordinate.experiments.comparison import Comparison, Row
from ordinate.report.tables.numbers import count, listed, raised


class Notes:
    """The footnotes of some rows, and the marks of each method."""

    def __init__(self, comparison: Comparison, rows: Sequence[Row]) -> None:
        self.comparison, self.rows = comparison, rows
        self.many = len({row.cell for row in rows}) > 1
        self._said: list[tuple[list[str], str]] = []
        for note in (self._unconverged, self._failed, self._missing, self._refused):
            note()
        order = list(dict.fromkeys(row.method for row in rows))
        self._said.sort(key=lambda one: order.index(one[0][0]) if one[0] else len(order))
        self.found = [(raised(i), said) for i, (who, said) in enumerate(self._said, 1) if who]
        self.found += [("–", said) for who, said in self._said if not who]
        if lines := comparison.lines():
            why = "; ".join(f"{line.name} ({line.why.rstrip('.')})" for line in lines)
            self.found.append(("–", f"Computed, not measured: {why}."))
        self.marks: dict[str, str] = {}
        for i, (who, _) in enumerate(self._said, 1):
            for method in who:
                self.marks[method] = f"{self.marks.get(method, '')} {raised(i)}".strip()

    def name(self, method: str) -> str:
        """A method with its marks: "rope ¹ ²"."""
        return f"{method} {self.marks[method]}" if method in self.marks else method

    def _add(self, methods: list[str], sentence: str) -> None:
        self._said.append((methods, sentence))

    def _counted(self, seeds: dict[int, list[int]]) -> dict[str, str]:
        """ "4 of 6 runs" by method, over all cells."""
        hit: dict[str, int] = {}
        all_: dict[str, int] = {}
        for i, row in enumerate(self.rows):
            all_[row.method] = all_.get(row.method, 0) + len(row.seeds)
            hit[row.method] = hit.get(row.method, 0) + len(seeds[i])
        return {m: f"{n} of {count(all_[m], 'run')}" for m, n in hit.items() if n}

    def _unconverged(self) -> None:
        late = self._counted({i: row.unconverged for i, row in enumerate(self.rows)})
        if late:
            late_, runs = (
                sum(len(r.unconverged) for r in self.rows),
                sum(len(r.seeds) for r in self.rows),
            )
            who = listed([f"{method} ({share})" for method, share in late.items()])
            who = f"all {runs} runs, of every method" if late_ == runs else who
            said = "counted as it stood" if self.comparison.plan.equal_budget else "not ranked"
            self._add(
                [] if late_ == runs else list(late),
                "Not converged: the budget of training was over before the run reached its goal or "
                f"stopped improving: {who}. More steps could change the score; {said}.",
            )

    def _failed(self) -> None:
        for method in dict.fromkeys(row.method for row in self.rows):
            mine = [row for row in self.rows if row.method == method and row.failures]
            why: dict[str, list[str]] = {}
            for row in mine:
                for seed, reason in row.failures.items():
                    where = f"{_cell(row)}, seed {seed}" if self.many else f"seed {seed}"
                    why.setdefault(reason.rstrip(".") or "no reason given", []).append(where)
            if not why:
                continue
            total = sum(len(row.seeds) for row in self.rows if row.method == method)
            reasons = "; ".join(f"{reason} ({listed(who)})" for reason, who in why.items())
            failed = sum(len(row.failures) for row in mine)
            kept = "Its means are over the other runs, and it" if failed < total else "It"
            self._add(
                [method],
                f"{method} failed in {failed} of {count(total, 'run')}: {reasons}. "
                f"{kept} is not ranked.",
            )

    def _missing(self) -> None:
        lack = self._counted({i: row.missing for i, row in enumerate(self.rows)})
        if lack:
            who = listed([f"{method} ({share})" for method, share in lack.items()])
            self._add(
                list(lack), f"Not run yet: {who}. Means are over the runs there are; not ranked."
            )

    def _refused(self) -> None:
        for method in dict.fromkeys(row.method for row in self.rows):
            row = next(r for r in self.rows if r.method == method)
            reasons = {n: why for n in self.comparison.lengths if (why := row.refused(n))}
            if reasons:
                at = listed([str(length) for length in reasons])
                why = next(iter(reasons.values())).rstrip(".")
                noun = "length" if len(reasons) == 1 else "lengths"
                self._add([method], f"{method} refuses {noun} {at}: {why}.")


def _cell(row: Row) -> str:
    return f"{count(row.cell.layers, 'layer')}, {count(row.cell.epochs, 'epoch')}"
