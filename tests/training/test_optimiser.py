"""Rows of one vector, each followed as torch.optim.AdamW follows it alone."""

import pytest
import torch
from torch import nn

from ordinate.training.optimiser import AdamW

RATES = [1e-3, 3e-3, 1e-3]
STEPS = 7


def gradients(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # Of very different lengths, so that some are clipped and others are not.
    return [torch.randn(rows, 40, generator=generator) * 10.0 ** (step % 3 - 1)
            for step in range(STEPS)]  # fmt: skip


def ours(theta, rates, given, *, decay=0.1, warmup=0, clip=None, first=0, moments=None):
    """Theta and the moments after these gradients, from step `first` on."""
    theta = theta.clone()
    optimiser = AdamW(theta, rates, decay=decay, warmup=warmup, clip=clip)
    if moments is not None:
        optimiser.mean.copy_(moments[0])
        optimiser.square.copy_(moments[1])
        optimiser.restore(first)
    for i, gradient in enumerate(given[first:], first + 1):
        optimiser.gradient.copy_(gradient)
        optimiser.update(torch.tensor(i))
    return theta, optimiser.mean.clone(), optimiser.square.clone()


def torchs(row, rate, given, *, decay=0.1, warmup=0, clip=None):
    p = nn.Parameter(row.clone())
    inner = torch.optim.AdamW([p], lr=rate, weight_decay=decay)
    for i, gradient in enumerate(given, 1):
        p.grad = gradient.clone()
        if clip is not None:
            nn.utils.clip_grad_norm_([p], clip)
        inner.param_groups[0]["lr"] = rate * min(1, i / warmup) if warmup else rate
        inner.step()
    return p.detach()


@pytest.mark.parametrize("how", [{}, {"warmup": 4}, {"clip": 0.5}, {"decay": 0.0}])
def test_each_row_is_followed_as_torch_does(how):
    theta = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    given = gradients(3)
    moved, *_ = ours(theta, RATES, given, **how)
    for i, rate in enumerate(RATES):
        alone = torchs(theta[i], rate, [g[i] for g in given], **how)
        assert torch.allclose(moved[i], alone, rtol=0, atol=1e-6)
        assert not torch.allclose(theta[i], alone, rtol=0, atol=1e-4)
    plain, *_ = ours(theta, RATES, given)
    assert not how or not torch.allclose(plain, moved, rtol=0, atol=1e-4)


def test_a_row_is_the_same_in_any_company():
    theta, given = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)), gradients(3)
    together, *_ = ours(theta, RATES, given, warmup=4, clip=0.5)
    for i, rate in enumerate(RATES):
        alone, *_ = ours(
            theta[i : i + 1], [rate], [g[i : i + 1] for g in given], warmup=4, clip=0.5
        )
        assert torch.equal(together[i], alone[0])


@pytest.mark.parametrize("first", [1, 3, 6])
def test_restored_it_goes_on_to_the_same_bits(first):
    theta, given = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)), gradients(3)
    how = {"warmup": 4, "clip": 0.5}
    whole = ours(theta, RATES, given, **how)
    half, *moments = ours(theta, RATES, given[:first], **how)
    again = ours(half, RATES, given, first=first, moments=moments, **how)
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    wrong = ours(
        half, RATES, given, first=first, moments=[torch.zeros_like(m) for m in moments], **how
    )
    assert not torch.equal(whole[0], wrong[0])
