"""What the tests of methods share. Formulas are rebuilt in float64, densely, from the papers."""

import torch


def draw(b=2, h=3, n=7, m=None, d=6, *, kv=None, dv=None, seed=0):
    """q [b, h, n, d], k and v [b, kv, m, d]: float64 leaves from N(0, 1)."""
    g = torch.Generator().manual_seed(seed)
    m, kv, dv = m or n, kv or h, dv or d
    shapes = (b, h, n, d), (b, kv, m, d), (b, kv, m, dv)
    return tuple(leaf(*shape, generator=g) for shape in shapes)


def leaf(*shape, generator=None):
    """A float64 tensor from N(0, 1) that takes gradients."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def redraw(position, seed=1):
    """The method in float64 with every parameter drawn from N(0, .5), within its domain."""
    g = torch.Generator().manual_seed(seed)
    position.double()
    with torch.no_grad():
        for name, p in position.named_parameters():
            drawn = torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.5
            owner = position.get_submodule(name.rpartition(".")[0])
            domain = getattr(owner, "domain", lambda _, value: value)
            p.copy_(domain(name.rpartition(".")[2], drawn))
    return position


def gaps(n, m=None, pos=None):
    """Key minus query position, [..., n, m]; the queries are the last n of the m tokens."""
    pos = torch.arange(m or n) if pos is None else pos
    return pos[..., None, :] - pos[..., pos.shape[-1] - n :, None]


def causal(n, m=None):
    """True where a query may look, [n, m]."""
    return gaps(n, m) <= 0


def scores(q, k):
    """q kᵀ / √d, with the keys repeated over their group of query heads."""
    return q @ repeated(k, q.shape[1]).mT / q.shape[-1] ** 0.5


def attention(s, v, mask=None):
    """softmax(s) v where the mask is True; a query without keys gets zeros."""
    mask = torch.ones((), dtype=torch.bool) if mask is None else mask
    w = s.masked_fill(~mask, torch.finfo(s.dtype).min).softmax(-1) * mask
    return w @ repeated(v, s.shape[1])


def repeated(x, heads):
    return x.repeat_interleave(heads // x.shape[1], 1)


def equal(ours, theirs, *leaves, rtol=1e-9, atol=1e-10):
    """Asserts that two outputs agree, and so do their gradients in every leaf (none zero)."""
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    if not leaves:
        return
    towards = torch.randn(ours.shape, generator=torch.Generator().manual_seed(9)).to(ours)
    found = torch.autograd.grad(ours, leaves, towards, retain_graph=True, allow_unused=True)
    wanted = torch.autograd.grad(theirs, leaves, towards, retain_graph=True)
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert other.abs().max() > 1e-6, f"leaf {i} has no gradient: the test would say nothing"
        assert one is not None, f"leaf {i} got no gradient"
        where = f"gradient of leaf {i}: "
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, msg=where.__add__)


def theta(width, base=10000.0):
    """The frequencies of rotary methods, base^(-2k/width) for k = 0 … width/2-1."""
    return torch.tensor([base ** (-2 * k / width) for k in range(width // 2)], dtype=torch.float64)


def turned_scores(q, k, phase, pairing):
    """Σ_c Re[q̃_c conj(k̃_c) phase_ijc], unscaled; channels without a phase multiply as they are.

    phase: complex, broadcastable to [b, h, n, m, r/2]; e^{i (p_i - p_j) θ_c} is RoPE
    """
    r = 2 * phase.shape[-1]
    zq, zk = pairs(q, r, pairing), pairs(repeated(k, q.shape[1]), r, pairing)
    turned = (zq[:, :, :, None] * zk[:, :, None].conj() * phase).sum(-1).real
    return turned + q[..., r:] @ repeated(k, q.shape[1])[..., r:].mT


def pairs(x, r, pairing):
    """The first r channels as r/2 complex numbers: (c, c + r/2) if half, (2c, 2c + 1) if not."""
    if pairing == "half":
        return torch.complex(x[..., : r // 2], x[..., r // 2 : r])
    return torch.complex(x[..., 0:r:2], x[..., 1:r:2])
