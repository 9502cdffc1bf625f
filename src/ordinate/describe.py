"""An attention problem in words."""

from __future__ import annotations

from ordinate.attend import Attend
from ordinate.norms import Softmax, StickBreaking
from ordinate.terms import Dense, Distance, Local, Lookup, Product, Term


def describe(a: Attend) -> str:
    """One line: the shapes, who sees whom, then the steps in the order in which they happen."""
    return f"{shapes(a)}; {sight(a)}: {' → '.join(steps(a))}"


def shapes(a: Attend) -> str:
    b, h, n, d = a.q.shape
    kv, m = a.k.shape[1:3]
    heads = f"{h} head{'s' * (h > 1)} of {d}" + (f" on {kv} for keys" if kv < h else "")
    kind = str(a.q.dtype).removeprefix("torch.")
    return f"batch {b}, {heads}, {n} queries × {m} keys, {kind} on {a.q.device}"


def sight(a: Attend) -> str:
    """Who sees whom, and where the tokens are."""
    mask = a.mask
    said = ["causal" if mask.causal else "both directions"]
    said += ["two sequences"] if a.cross else []
    said += [f"window {mask.window}"] if mask.window is not None else []
    said += ["a token does not see itself"] if not mask.current else []
    said += [
        name
        for name, given in (
            ("padding", mask.valid),
            ("documents", mask.documents),
            ("a mask", mask.dense),
        )
        if given is not None
    ]
    if not (a.space.unit and not a.cross):
        said.append("positions as given")
    return ", ".join(said)


def steps(a: Attend) -> list[str]:
    """What happens to q, k and the scores, in order."""
    said = []
    for rotation in a.rotations:
        gain = " with a gain" if rotation.gain is not None else ""
        said.append(f"turn q and k by position ({rotation.pairing} pairs{gain})")
    said.append(f"{'a rule of q and k' if a.score is not None else 'q·k'} × {a.scale:.4g}")
    rows = a.rows
    said += [in_words(term) for term in a.terms if term not in rows]
    said += ["mask"] if rows else []
    said += [in_words(term) for term in rows]
    if isinstance(a.norm, StickBreaking):
        said.append(f"stick-breaking, {a.norm.order} key first")
    elif isinstance(a.norm, Softmax) and a.norm.sink is not None:
        said.append("softmax with a sink")
    else:
        said.append("softmax")
    said += [f"dropout {a.dropout:g}"] if a.dropout else []
    said.append("values" if a.values is None else "values + a vector per distance")
    return said


def in_words(term: Term) -> str:
    """What a term does to the scores."""
    if isinstance(term, Distance):
        axis = "" if term.coord is None else " along one axis"
        return f"{'+ a bias' if term.op == 'add' else '× a factor'} per distance{axis}"
    if isinstance(term, Lookup):
        return f"+ {'query' if term.side == 'q' else 'key'} · vector per distance"
    if isinstance(term, Product):
        return "+ position · position"
    if isinstance(term, Dense):
        return "+ a bias per pair"
    assert isinstance(term, Local)
    if term.op == "add":
        return "+ a rule of content and place" if term.query or term.key else "+ a rule of place"
    what = {"pair": "each score", "heads": "all heads of a pair", "row": "whole rows"}
    return f"a rule on {what[term.reach]}"
