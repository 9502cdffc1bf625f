"""Contracts about texts: caches, causality, padding, packing, and where the tokens are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ordinate.masks import Mask
from ordinate.models import Attention, Cache, Memory
from ordinate.norms import StickBreaking
from ordinate.solve import attention
from ordinate.space import Space
from ordinate.testing.case import SEED, B, Broken, Case, D, H, N, Skipped, demand, skip_if
from ordinate.testing.statements import stated

DRAWS = "it draws positions for the whole batch at once"
READS = "it reads tokens, not positions"


def decoding(case: Case) -> None:
    """Token by token and in chunks, with a cache, gives what one pass gives, padded or placed."""
    # Methods that depend on the length must cross their trained length on the way.
    n, model = 9, case.model(case.make(max_len=32 if case.facts.max_len else 5))
    tokens, valid = case.tokens(n), torch.ones(B, n, dtype=torch.bool, device=case.device)
    valid[0, :3] = False
    places = case.place(torch.tensor([0, 1, 2, 4, 5, 7, 8, 10, 11]))
    special = (torch.arange(n) == 1)[None].to(case.device)
    worlds: dict[str, Callable[[int], Space]] = {
        "": case.space,
        ", padded in front": lambda m: case.space(m, valid=valid[:, :m]),
        ", at places of their own": lambda m: case.points(places[:m]),
        ", with a special token": lambda m: case.space(m, special=special[:, :m]),
    }
    if case.grid:
        del worlds[", padded in front"]
    for what, space in worlds.items():
        for how, steps in (("token by token", [1] * n), ("in chunks", [4, 1, 3, 1])):
            cache, done = Cache(), 0
            cache.seed = SEED
            for step in steps:
                end = done + step
                with torch.no_grad():
                    got = model(tokens[:, done:end], cache=cache, space=space(end))
                    # The text so far, seen whole, is what each step must equal.
                    whole = model(tokens[:, :end], space=space(end))[:, done:]
                if what == ", padded in front":
                    seen = valid[:, done:end]
                    got, whole = got[seen], whole[seen]
                if got.numel():
                    case.same(got, whole, f"decoding {how}{what}, after {end} tokens")
                done = end


def future(case: Case) -> None:
    """In a causal model a token changes nothing before it."""
    position = case.make()
    for n, at in ((N, N - 1), (N, 3), (12, 5) if case.grid else (60, 50)):
        x, space = case.x(n), case.space(n)
        base = case.run(position, x, space, causal=True)
        changed, tokens = x.clone(), case.tokens(n)
        changed[:, at:] = case.tensor(B, n - at, H * D, seed=3)
        other = torch.cat([tokens[:, :at], (tokens[:, at:] + 1) % 10], 1)
        got = case.run(position, changed, space.but(tokens=other), causal=True)
        case.same(got[:, :at], base[:, :at], f"tokens before {at} of {n}, when it changes")
        case.differ(got[:, at:], base[:, at:], "the changed tokens themselves change nothing")


def masks(case: Case) -> None:
    """A window, and any other mask, hides what it hides, and dropout stays on."""
    position, n = case.make(), 9
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() < 2
    for mask in (Mask(window=2), Mask(dense=near[None, None].to(case.device))):
        base = case.run(position, case.x(n), case.space(n), mask=mask)
        x, tokens = case.x(n), case.tokens(n)
        x[:, 0], tokens[:, 0] = 9, (tokens[:, 0] + 1) % 10
        got = case.run(position, x, case.space(n, tokens=tokens), mask=mask)
        # Two layers with a window of 2 reach two tokens back.
        case.same(got[:, 3:], base[:, 3:], "tokens that cannot see the one that changes")
    x, space = position.embed(case.x(), case.space(), 0)
    a = stated(case, position, case.layers(), x.detach(), space, dropout=0.25)
    demand(a.dropout == 0.25, "the method changes the dropout")


def length(case: Case) -> None:
    """A row depends on the length of the whole exactly if `length_dependent` says so."""
    position = case.make(max_len=12 if case.facts.max_len else 5)
    with torch.no_grad():
        short = case.run(position, case.x(7), case.space(7), causal=True)
        long = case.run(position, case.x(12), case.space(12), causal=True)[:, :7]
    if case.facts.length_dependent:
        case.differ(long, short, "length_dependent, but more tokens behind it change no row")
    else:
        case.same(long, short, "rows followed by more tokens")


def padding(case: Case) -> None:
    """A padded batch gives what its rows give alone, padded left or right, whatever the padding."""
    skip_if("seed" in case.facts.needs and case.facts.length_dependent, DRAWS)
    # So short a trained length that what depends on the length does so here.
    position, n, short = case.make(max_len=32 if case.facts.max_len else 4), 7, 5
    for causal in case.directions:
        alone = case.run(position, case.x(short)[:1], case.space(short, 1), causal=causal)
        for side, own in (("left", slice(n - short, n)), ("right", slice(0, short))):
            x, tokens = 50 * case.x(n), case.tokens(n)
            x[0, own], tokens[0, own] = case.x(short)[0], case.tokens(short)[0]
            valid = torch.ones(B, n, dtype=torch.bool, device=case.device)
            valid[0] = False
            valid[0, own] = True
            if case.grid:
                index = torch.arange(n) - (n - short if side == "left" else 0)
                space = case.points(case.place(index.clamp_min(0)), valid=valid, tokens=tokens)
            else:
                space = case.space(n, valid=valid, tokens=tokens)
            got = case.run(position, x, space, causal=causal)[:1, own]
            case.same(got, alone, f"a row padded {side} ({causal=})")


def packing(case: Case) -> None:
    """Documents packed into one row give what they give alone."""
    skip_if(case.facts.length_dependent, "documents packed into one row share its length")
    sizes = (3, 6)
    n, position = sum(sizes), case.make()
    ids = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))[None].to(case.device)
    start = torch.tensor([0] * sizes[0] + [sizes[0]] * sizes[1])
    for causal in case.directions:
        if case.grid:
            space = case.points(case.place(torch.arange(n) - start), documents=ids)
        else:
            space = case.space(n, documents=ids)
        packed = case.run(position, case.x(n), space, causal=causal)
        done = 0
        for size in sizes:
            own = slice(done, done + size)
            alone = case.run(
                position, case.x(n)[:, own], case.space(size, tokens=case.tokens(n)[:, own]),
                causal=causal,
            )  # fmt: skip
            case.same(packed[:, own], alone, f"a packed document of {size} tokens ({causal=})")
            done += size


def stretched(case: Case) -> None:
    """Tokens at given positions give what they give on a line with nothing between them."""
    skip_if("tokens" in case.facts.needs, READS)
    places, n, position = torch.tensor([0, 1, 4, 5, 9, 11]), 12, case.make()
    valid = torch.zeros(B, n, dtype=torch.bool, device=case.device)
    valid[:, places] = True
    x = 50 * case.x(n)
    x[:, places] = case.x(6)
    for causal in case.directions:
        on_line = case.run(position, x, case.space(n, valid=valid), causal=causal)[:, places]
        at = case.run(position, case.x(6), case.points(case.place(places)), causal=causal)
        case.same(at, on_line, f"tokens at positions {places.tolist()} ({causal=})")


def permuted(case: Case) -> None:
    """In an encoder the order of the rows means nothing: positions move with their tokens."""
    skip_if(case.facts.causal_only, "it is for causal models, where rows are in order")
    skip_if("tokens" in case.facts.needs, READS)
    turn, position = torch.tensor([3, 0, 6, 1, 5, 2, 4]), case.make()
    straight = case.run(position, case.x(), case.points(case.place(torch.arange(N))))
    mixed = case.run(position, case.x()[:, turn], case.points(case.place(turn)))
    case.same(mixed, straight[:, turn], "permuted tokens with their positions")
    line = case.run(position, case.x(), case.space())
    case.same(straight, line, "positions 0, 1, 2 … given as numbers")


def rows_are_independent(case: Case) -> None:
    """Each row of a batch gives what it gives alone, a single token too."""
    position = case.make()
    for n in (1, N):
        batch = case.run(position, case.x(n), case.space(n))
        case.same(batch[:1], case.run(position, case.x(n, 1), case.space(n, 1)), f"a row, n={n}")
        own = torch.stack([torch.arange(n), torch.arange(n) + 2])
        places = torch.stack([case.place(row) for row in own])
        batch = case.run(position, case.x(n), case.points(places))
        tokens = case.tokens(n)
        for row in range(B):
            if "seed" in case.facts.needs and row == 0:
                continue
            alone = case.points(places[row], 1, tokens=tokens[row : row + 1])
            got = case.run(position, case.x(n)[row : row + 1], alone)
            case.same(batch[row : row + 1], got, f"a row with positions of its own, n={n}")


def grouped_heads(case: Case) -> None:
    """Fewer key heads than query heads give what their copies give."""
    skip_if(not case.facts.key_projection, "its keys are the tokens, cut into all heads")
    heads, x = 4, case.tensor(B, N, 4 * D)
    few, many = case.layers(heads=heads, kv_heads=2), case.layers(heads=heads)
    with torch.no_grad():
        for a, b in zip(few, many, strict=True):
            _copy(a, b)
    position = case.make(dim=heads * D, heads=heads)
    try:
        got = case.run(position, x, case.space(), layers=few)
    except ValueError as why:
        raise Skipped(f"it refuses: {why}") from None
    case.same(got, case.run(position, x, case.space(), layers=many), "grouped heads")


def _copy(few: nn.Module, many: nn.Module) -> None:
    assert isinstance(few, Attention) and isinstance(many, Attention)
    for part in ("q", "out"):
        getattr(few, part).load_state_dict(getattr(many, part).state_dict())
    for part in ("k", "v"):
        ours, theirs = getattr(few, part), getattr(many, part)
        for name in ("weight", "bias"):
            group = getattr(ours, name).unflatten(0, (few.kv_heads, D))
            getattr(theirs, name).copy_(group.repeat_interleave(2, 0).flatten(0, 1))


def special_tokens(case: Case) -> None:
    """A token outside the order has no place: moving it changes nothing."""
    special = (torch.arange(N) == 2)[None].to(case.device)
    position, places = case.make(), torch.tensor([0, 1, 4, 5, 8, 9, 11])
    x, space = position.embed(case.x(), case.points(case.place(places), special=special), 0)
    a = stated(case, position, case.layers(), x.detach(), space)
    skip_if(isinstance(a.norm, StickBreaking), "its norm takes every key in its turn")
    base = case.run(position, case.x(), case.points(case.place(places), special=special))
    moved = places.clone()
    moved[2] = 7
    got = case.run(position, case.x(), case.points(case.place(moved), special=special))
    case.same(got, base, "a special token elsewhere")


def segments(case: Case) -> None:
    """With a memory as long as the text, segments give what one pass gives; only for relative ones."""
    model, tokens, memory = case.model(case.make()), case.tokens(9), Memory(9)
    if not case.facts.relative:
        try:
            model(tokens, memory=memory)
        except ValueError:
            return
        raise Broken("a memory is accepted by a method that is not relative")
    skip_if(case.facts.length_dependent, "earlier segments were seen at another length")
    skip_if(case.grid, "a grid has no segments")
    whole = model(tokens, space=case.space(9))
    parts = [model(tokens[:, s], memory=memory) for s in (slice(0, 4), slice(4, 6), slice(6, 9))]
    case.same(torch.cat(parts, 1), whole, "segments with memory")


def queries_at_the_end(case: Case) -> None:
    """Fewer queries than keys are the last ones."""
    if case.facts.needs or not case.facts.key_projection:
        raise Skipped("it needs a model around it (decoding tests it there)")
    position, n, m = case.make(), 3, 8
    q, k, v = (case.tensor(B, H, m, D, seed=s) for s in (1, 2, 3))
    ids = None if not case.grid else case.place(torch.arange(m))[None]

    def out(queries: Tensor) -> Tensor:
        return attention(
            queries, k, v, position, causal=True, position_ids=ids, backend="reference"
        )

    case.same(out(q[:, :, m - n :]), out(q)[:, :, m - n :], "the last queries alone")


CONTRACTS = (
    decoding,
    queries_at_the_end,
    future,
    masks,
    length,
    padding,
    packing,
    stretched,
    permuted,
    rows_are_independent,
    grouped_heads,
    special_tokens,
    segments,
)
