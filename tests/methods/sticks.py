"""Stick-breaking by hand, a key at a time."""

import torch


def turns(gap, order):
    """The keys of one query, at `gap` from it, in the order in which they take their part."""
    # At equal distance the one before the query is first, at one place the one of lower index.
    near = order == "nearest"
    return sorted(range(len(gap)), key=lambda j: (abs(gap[j]) if near else 0, gap[j], j))


def broken(z, mask, gap, order):
    """Scores [b, h, n, m] to parts β_ij ∏_{t before j} (1 - β_it); a masked key has β = 0."""
    beta = z.sigmoid() * mask
    rows = [[row(beta[x, :, i], gap[x % len(gap), i].tolist(), order) for i in range(z.shape[2])]
            for x in range(z.shape[0])]  # fmt: skip
    return torch.stack([torch.stack(r, 1) for r in rows])


def row(beta, gap, order):
    """One query's β [h, m] to its parts [h, m]."""
    left, parts = torch.ones_like(beta[:, 0]), [None] * len(gap)
    for j in turns(gap, order):
        parts[j] = beta[:, j] * left
        left = left * (1 - beta[:, j])
    return torch.stack(parts, -1)
