"""Dropout by counters: as good as drawn, and the same wherever and whenever it is computed."""

import math

import pytest
import torch
from torch.func import vmap

from ordinate.dice import Dice, by_bits, by_numbers, mixed


def dice(seed=1, row=0):
    return Dice(torch.tensor(seed, dtype=torch.int32), row)


def dropped(seed=1, site=0, shape=(64, 501), p=0.3, row=0):
    """Which elements are dropped."""
    return dice(seed, row).at(site).kept(torch.ones(shape), p) == 0


def surprise(count, n, p):
    """How many standard deviations a count of n is from p·n."""
    return abs(count - p * n) / math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_the_share_is_right_over_all_in_rows_in_columns_and_in_bits_of_the_place(p):
    gone = dropped(shape=(256, 1024), p=p)
    assert surprise(gone.sum().item(), gone.numel(), p) < 4
    # The largest of so many is about three and a half.
    for lines in (gone, gone.T):
        worst = max(surprise(line.sum().item(), line.numel(), p) for line in lines)
        assert 1.5 < worst < 5
    place = torch.arange(gone.numel()).view_as(gone)
    for bit in range(18):
        part = gone[(place >> bit) & 1 == 1]
        assert surprise(part.sum().item(), part.numel(), p) < 4.5


def test_steps_sites_and_rows_are_independent():
    masks = [dropped(seed=s, site=i) for s in (1, 2, 40504) for i in (0, 1, 7)]
    masks += [dropped(seed=1, site=0, row=64)]
    n = masks[0].numel()
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert surprise((one & other).sum().item(), n, 0.09) < 4.5
    # So are neighbours in a row, the two halves that one number serves, and rows.
    one = masks[0]
    for apart in (1, 2, 250, 251):
        both = one[:, apart:] & one[:, :-apart]
        assert surprise(both.sum().item(), both.numel(), 0.09) < 4.5
    both = one[1:] & one[:-1]
    assert surprise(both.sum().item(), both.numel(), 0.09) < 4.5


def test_what_is_kept_is_larger_so_that_the_mean_stays():
    x = torch.ones(200, 501, requires_grad=True)
    y = dice().drop(x, 0.3)
    assert y.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert dice().drop(x, 0) is x


@pytest.mark.parametrize("shape", [(6, 1), (6, 7), (6, 3, 5), (6, 2, 3, 3), (6, 8)])
def test_a_part_of_a_batch_is_dropped_as_in_the_whole(shape):
    whole = dropped(shape=shape, p=0.5)
    parts = [dropped(shape=(2, *shape[1:]), p=0.5, row=row) for row in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)
    assert len({tuple(part.flatten().tolist()) for part in parts}) > 1 or whole[0].numel() == 1


def test_stacked_and_compiled_it_is_the_same():
    seeds = torch.tensor([1, 5, 2**31 - 1, -7], dtype=torch.int32)
    x = torch.ones(4, 6, 3, 7)

    def drop(seed, x):
        return Dice(seed, 3).at(2).at(11).drop(x, 0.3)

    alone = torch.stack([drop(seed, one) for seed, one in zip(seeds, x, strict=True)])
    assert len({tuple(one.flatten().tolist()) for one in alone}) == 4
    assert torch.equal(vmap(drop)(seeds, x), alone)
    compiled = torch.compile(drop, backend="aot_eager")
    assert torch.equal(compiled(seeds[1], x[1]), alone[1])
    compiled = torch.compile(vmap(drop), backend="aot_eager")
    assert torch.equal(compiled(seeds, x), alone)


@pytest.mark.slow
def test_what_inductor_makes_of_it_is_the_same():
    seeds = torch.tensor([1, -7], dtype=torch.int32)

    def drop(seed, x):
        return Dice(seed, 3).at(2).at(11).drop(x, 0.3)

    x = torch.ones(2, 6, 3, 7)
    alone = torch.stack([drop(seed, one) for seed, one in zip(seeds, x, strict=True)])
    assert torch.equal(torch.compile(drop)(seeds[1], x[1]), alone[1])
    assert torch.equal(torch.compile(vmap(drop))(seeds, x), alone)


def test_numbers_are_scattered_one_to_one():
    x = torch.arange(-(2**16), 2**16, dtype=torch.int32)
    y = mixed(x)
    assert y.dtype == torch.int32 and y.unique().numel() == x.numel()
    # A bit that differs in one place differs in half of them.
    for bit in range(0, 31, 5):
        apart = mixed(x ^ (1 << bit)) ^ y
        ones = sum((apart >> i & 1).sum().item() for i in range(32)) / apart.numel()
        assert ones == pytest.approx(16, abs=0.5)
    # The same on every machine and for ever.
    assert mixed(torch.tensor([0, 1, -1], dtype=torch.int32)).tolist() == GOLDEN


GOLDEN = [0, 1364076727, -2114883783]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.93])
def test_a_cpu_and_a_gpu_drop_the_same(p, dtype):
    bits = torch.randint(-(2**31), 2**31 - 1, (64, 500), dtype=torch.int32)
    for width in (999, 1000):
        ours, theirs = (made(bits, width, p, dtype) for made in (by_bits, by_numbers))
        assert ours.dtype == theirs.dtype == dtype and torch.equal(ours, theirs)
        assert ours.eq(0).float().mean().item() == pytest.approx(p, abs=0.01)
    edges = torch.tensor([[0, -1, 1 << 15, 0x7FFF, -(1 << 31), 0x7FFF8000]], dtype=torch.int32)
    assert torch.equal(by_bits(edges, 12, p, dtype), by_numbers(edges, 12, p, dtype))
