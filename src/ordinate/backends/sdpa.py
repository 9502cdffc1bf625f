"""Torch's fused kernels: rotations, and biases without a gradient.

A bias that depends only on distance is never materialised. Read with the queries in reverse
order it is a Hankel matrix, a view with strides (1, 1) of one vector per head, which the kernel
accepts as its mask. Causality becomes blocks of rows that see fewer keys.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

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
    if any(isinstance(t, Distance) for t in a.terms):
        return _refuses_distance(a)
    return ""


def _refuses_distance(a: Attend) -> str:
    if a.q.device.type != "cpu":
        return f"on {a.q.device.type} torch's kernels copy a strided bias to a matrix of all pairs"
    if a.tile.low is None or any(isinstance(t, Distance) and t.coord for t in a.terms):
        return "a distance bias is a view of one vector only where positions go in unit steps"
    if any(isinstance(t, Dense) for t in a.terms) or not a.mask.by_index:
        return "a distance bias beside padding, documents or a dense bias is a matrix of all pairs"
    if a.tile.special is not None:
        return "a distance bias that skips special tokens is a matrix of all pairs"
    if a.dropout:
        return "with dropout torch's CPU kernel would make the matrix of all pairs"
    return ""


def run(a: Attend) -> Tensor:
    q, k = a.rotated()
    k, v = repeated(k, q.shape[1]), repeated(a.v, q.shape[1])
    if any(isinstance(t, Distance) for t in a.terms):
        return _with_line(a, q, k, v)
    n, m = q.shape[2], k.shape[2]
    bias, full_rows = None, a.mask.fills_rows
    if a.terms:
        allowed = a.allowed()
        bias = _sum(t.bias for t in a.terms if isinstance(t, Dense))
        if a.tile.special is not None:
            bias = bias.masked_fill(a.tile.special, 0)
        bias = bias.to(q.dtype).expand(*bias.shape[:2], n, m)
        bias = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
    elif not a.mask.causal or not a.mask.plain or n != m:
        bias = a.allowed()
    causal = bias is None and a.mask.causal
    out = scaled_dot_product_attention(q, k, v, bias, a.dropout, is_causal=causal, scale=a.scale)
    if full_rows or (allowed := a.allowed()) is None:
        return out
    # Kernels differ in what they return for a query that sees nothing: it is 0.
    return out.masked_fill(~allowed.any(-1, keepdim=True), 0)


def _with_line(a: Attend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A fixed bias per distance, through the kernel by blocks of reversed rows."""
    n, m = q.shape[2], k.shape[2]
    gap = a.tile.line()
    line = _sum(t.fn(gap, *t.tensors) for t in a.terms if isinstance(t, Distance))
    line = line.to(q.dtype).expand(q.shape[1], -1)
    hidden = torch.zeros_like(gap, dtype=torch.bool)
    if a.mask.causal:
        hidden |= gap > 0
    if a.mask.window is not None:
        hidden |= gap.abs() >= a.mask.window
    if not a.mask.current:
        hidden |= gap == 0
    line = line.masked_fill(hidden, -torch.inf)
    out = []
    for low in range(0, n, ROWS if a.mask.causal else n):
        high = min(low + ROWS, n) if a.mask.causal else n
        seen = high + a.offset if a.mask.causal else m
        # The bottom row of the block reads the line from here on.
        first = n - high
        bias = hankel(line[:, first : first + high - low + seen - 1], high - low, seen)
        block = scaled_dot_product_attention(
            q[:, :, low:high].flip(2), k[:, :, :seen], v[:, :, :seen], bias[None], scale=a.scale
        )
        out.append(block.flip(2))
    result = out[0] if len(out) == 1 else torch.cat(out, 2)
    if a.mask.fills_rows:
        return result
    allowed = a.allowed()
    return result if allowed is None else result.masked_fill(~allowed.any(-1, keepdim=True), 0)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(operator.add, parts)
