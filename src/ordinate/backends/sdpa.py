"""Torch's fused kernels: rotations, and biases without a gradient.

A bias that depends only on distance is never materialised. Read with the queries in reverse
order it is a Hankel matrix, a view with strides (1, 1) of one vector per head, which the kernel
accepts as its mask. Causality becomes blocks of rows that see fewer keys.
"""

from __future__ import annotations

import functools
import operator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ordinate.attend import Attend
from ordinate.backends.reference import repeated
from ordinate.tensors import hankel
from ordinate.terms import Dense, Distance

# Rows per call for a causal bias: large enough to keep the kernel busy, small enough to skip
# most of the future.
ROWS = 256


def refuses(a: Attend) -> str:
    if a.dropout and a.dice is not None:
        return "torch's kernel draws its dropout itself, not from the dice"
    if a.score is not None or a.norm is not None or a.values is not None:
        what = "score" if a.score is not None else "norm" if a.norm is not None else "values"
        return f"torch's kernel cannot replace the {what}"
    for term in a.terms:
        name = type(term).__name__
        if not isinstance(term, Distance | Dense):
            return f"torch's kernel has no place for a {name} term"
        if isinstance(term, Distance) and term.op == "mul":
            return "torch's kernel adds to scores and cannot multiply them"
        if torch.is_grad_enabled() and any(h.tensor.requires_grad for h in term.held):
            return f"the gradient of a {name} term would be a matrix of all pairs"
        if a.v.shape[3] != a.k.shape[3]:
            return "beside a bias torch's kernel wants values as wide as keys"
    if any(isinstance(t, Distance) for t in a.terms):
        return _refuses_distance(a)
    if a.terms and a.q.device.type != "cpu" and a.q.dtype.itemsize < 4:
        return f"on {a.q.device.type} torch's kernels round a dense bias to {a.q.dtype}"
    return ""


def _refuses_distance(a: Attend) -> str:
    if a.q.device.type != "cpu":
        return f"on {a.q.device.type} torch's kernels copy a strided bias to a matrix of all pairs"
    if not a.unit or any(isinstance(t, Distance) and t.coord for t in a.terms):
        return "a distance bias is a view of one vector only where positions go in unit steps"
    if any(isinstance(t, Dense) for t in a.terms) or not a.mask.by_index:
        return "a distance bias beside padding, documents or a dense bias is a matrix of all pairs"
    if not a.mask.current:
        return "beside a distance bias the kernel wants every token to see itself"
    if a.space.special is not None:
        return "a distance bias that skips special tokens is a matrix of all pairs"
    if a.dropout:
        return "with dropout torch's CPU kernel would make the matrix of all pairs"
    return ""


def run(a: Attend) -> Tensor:
    q, k = a.rotated()
    if any(isinstance(t, Distance) for t in a.terms):
        return _with_line(a, q, k)
    n, m = q.shape[2], k.shape[2]
    causal = a.mask.causal and a.mask.plain and n == m and not a.terms
    bias = allowed = None if causal else a.allowed()
    seen = None
    if allowed is not None and not a.fills_rows:
        # A query that sees nothing looks everywhere, and what it sees is dropped: kernels differ
        # there, and the gradient of some is NaN.
        seen = allowed.any(-1, keepdim=True)
        bias = allowed = allowed | ~seen
    if a.terms:
        bias = functools.reduce(operator.add, (t.bias for t in a.terms if isinstance(t, Dense)))
        if (special := a.tile.special) is not None:
            bias = bias.masked_fill(special, 0)
        bias = bias.to(a.wide).expand(*bias.shape[:2], n, m)
        bias = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
    out = scaled_dot_product_attention(
        q, k, a.v, bias, a.dropout, is_causal=causal, scale=a.scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return out if seen is None else out.masked_fill(~seen, 0)


def _with_line(a: Attend, q: Tensor, k: Tensor) -> Tensor:
    """A fixed bias per distance, through the kernel by blocks of reversed rows."""
    k, v = (repeated(x, q.shape[1]).contiguous() for x in (k, a.v))
    n, m = q.shape[2], k.shape[2]
    gap = a.tile.line()
    lines = (t.fn(gap, *t.tensors) for t in a.terms if isinstance(t, Distance))
    line = functools.reduce(operator.add, lines).to(a.wide).expand(q.shape[1], -1)
    if a.mask.causal:
        line = line.masked_fill(gap > 0, -torch.inf)
    if a.mask.window is not None:
        line = line.masked_fill(gap.abs() >= a.mask.window, -torch.inf)

    def block(low: int, high: int, seen: int) -> Tensor:
        # The bottom row of the block reads the line from here on.
        first = n - high
        bias = hankel(line[:, first : first + high - low + seen - 1], high - low, seen)
        rows, keys, values = q[:, :, low:high].flip(2), k[:, :, :seen], v[:, :, :seen]
        out = scaled_dot_product_attention(rows, keys, values, bias[None], scale=a.scale)
        return out.flip(2)

    # In a compiled graph the number of blocks would tie it to one length.
    if not a.mask.causal or torch.compiler.is_compiling():
        return block(0, n, m)
    lows = range(0, n, ROWS)
    highs = [min(low + ROWS, n) for low in lows]
    blocks = [block(low, high, high + a.offset) for low, high in zip(lows, highs, strict=True)]
    return torch.cat(blocks, 2)
