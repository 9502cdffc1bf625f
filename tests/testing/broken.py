"""Deliberately broken methods, each with the contract that must find it.

`Sound` is a method that passes every contract; the others are Sound, or RoPE, or a table, with one
mistake that somebody once made.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

import ordinate as od
from ordinate.methods.input.learned import Learned
from ordinate.methods.rotary.rope import RoPE

FACTS = od.Facts(paper=("press2022alibi",), relative=True, cross=True)


class Sound(od.Position):
    """b = -|m_h (j - i)|, m learned."""

    facts = FACTS

    def __init__(self, *, heads: int):
        super().__init__()
        self.heads = heads
        self.slopes = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.slopes)

    def attend(self, a):
        return a.add(od.Distance(lambda gap, m: -m[:, None].abs() * gap.abs(), self.slopes))


BROKEN: list[tuple[type[od.Position], str]] = []


def caught_by(contract):
    def note(cls):
        BROKEN.append((cls, contract))
        return cls

    return note


# Positions.


@caught_by("relative")
class KeySignFlipped(RoPE):
    """Keys turn the other way, so that scores depend on i + j."""

    def attend(self, a):
        def angles(pos):
            return pos * od.frequencies(self.width, self.base, pos)

        k = a.but(k=a.k).turn(od.Rotation(lambda pos: -angles(pos))).rotated()[1]
        q = a.turn(od.Rotation(angles)).rotated()[0]
        return a.but(q=q, k=k)


@caught_by("queries at the end")
class OffsetIgnored(Sound):
    """Queries are counted from 0, also when they are the last of many keys."""

    def attend(self, a):
        n = a.q.shape[2]

        def bias(tile, m):
            i = torch.arange(n, device=m.device)[:, None]
            return -m[:, None, None].abs() * (torch.arange(tile.shape[1]) - i).abs()

        return a.add(od.Local(bias, whole=[self.slopes], op="add"))


@caught_by("stretched")
class PositionsAssumed(Sound):
    """Gaps are taken between indices, whatever the positions are."""

    def attend(self, a):
        n, m = a.q.shape[2], a.k.shape[2]
        gap = torch.arange(m) - torch.arange(m - n, m)[:, None]
        return a.add(
            od.Local(
                lambda tile, s: -s[:, None, None].abs() * gap.abs(), whole=[self.slopes], op="add"
            )
        )


@caught_by("padding")
class PaddingCounted(Learned):
    """The table is read at the index in the row, padding included."""

    def embed(self, x, space, layer):
        n = x.shape[1]
        return (x + self.weight[0, :n].to(x.dtype) if layer == 0 else x), space


@caught_by("fine positions")
class AnglesInHalf(RoPE):
    """Angles in the type of the queries."""

    def attend(self, a):
        narrow = a.q.dtype

        def angles(pos):
            pos = pos.to(narrow)
            return (pos * od.frequencies(self.width, self.base, pos)).float()

        return a.turn(od.Rotation(angles))


@caught_by("fine positions")
class ParametersInHalf(Sound):
    """Parameters follow .bfloat16()."""

    def _apply(self, fn, recurse=True):
        return nn.Module._apply(self, fn, recurse)


@caught_by("integer")
class PositionsRounded(Sound):
    """Real positions are accepted, and silently rounded down."""

    def attend(self, a):
        return super().attend(a.but(space=a.space.but(positions=a.space.positions.long())))


@caught_by("special tokens")
class SpecialTokensPlaced(Learned):
    """Tokens outside the order get a vector too."""

    def embed(self, x, space, layer):
        if layer:
            return x, space
        return x + self.weight[0][space.last(x.shape[1])[..., 0]].to(x.dtype), space


# Texts.


@caught_by("future")
class FutureLeaked(Sound):
    """The mean of the whole text enters every token."""

    facts = replace(FACTS, cross=False, needs=frozenset({"hidden"}))

    def before(self, sources, space, layer):
        return od.Sources(*(s + s.mean(1, keepdim=True) for s in sources))


@caught_by("length")
class LengthUndeclared(Sound):
    """Distances are divided by the length, and the facts do not say so."""

    def attend(self, a):
        m = a.k.shape[2]
        return a.add(od.Distance(lambda gap, s: -s[:, None].abs() * gap.abs() * 4 / m, self.slopes))


@caught_by("decoding")
class DecodingCountsPadding(Sound):
    """With one query and padding the gap is taken wrongly."""

    def attend(self, a):
        if a.q.shape[2] > 1 or a.space.valid is None:
            return super().attend(a)

        def bias(tile, m):
            gap = torch.arange(1 - tile.shape[1], 1, device=m.device)
            return -m[:, None, None].abs() * (1.5 * gap).abs()

        return a.add(od.Local(bias, whole=[self.slopes], op="add"))


@caught_by("packing")
class DocumentsForgotten(Sound):
    """The mask is made anew, without the documents."""

    def attend(self, a):
        fresh = od.Mask(causal=a.mask.causal, valid=a.mask.valid)
        return super().attend(a).but(mask=fresh)


@caught_by("rows are independent")
class BatchMixed(Sound):
    """A statistic is taken over the batch."""

    def attend(self, a):
        return super().attend(a.but(q=a.q * a.q.std()))


@caught_by("decoding")
class KeysForgotten(od.Position):
    """A gate per key that `remember` does not keep: it is computed from the new tokens only."""

    facts = od.Facts(paper=("lin2025fox",), relative=True, needs=frozenset({"hidden"}))

    def __init__(self, *, dim: int):
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.ones(dim))

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def before(self, sources, space, layer):
        gate = torch.sigmoid(sources.k.to(self.weight.dtype) @ self.weight)
        score = gate.cumsum(1)[..., None].to(sources.k.dtype)
        return sources._replace(k=sources.k * score)


@caught_by("permuted")
class OrderOfRows(Sound):
    """The first row of keys gets a bias of its own, wherever its position is."""

    def attend(self, a):
        def bias(tile, m):
            first = torch.arange(tile.shape[1], device=m.device) == 0
            return -m[:, None, None].abs() * first

        return super().attend(a).add(od.Local(bias, whole=[self.slopes], op="add"))


# Gradients.


@caught_by("declared tensors")
class GradientInClosure(Sound):
    """The rule closes over the parameter."""

    def attend(self, a):
        return a.add(od.Distance(lambda gap: -self.slopes[:, None].abs() * gap.abs()))


@caught_by("gradients")
class GradientDetached(Sound):
    """The parameter is read without its gradient."""

    def attend(self, a):
        m = self.slopes.detach()
        return a.add(od.Distance(lambda gap, m: -m[:, None].abs() * gap.abs(), m))


@caught_by("gradients")
class GradientHalved(Sound):
    """A part of the gradient is lost on the way."""

    def attend(self, a):
        m = 0.5 * (self.slopes + self.slopes.detach())
        return a.add(od.Distance(lambda gap, m: -m[:, None].abs() * gap.abs(), m))


@caught_by("gradients")
class ParameterUnused(Sound):
    """A parameter that nothing reads."""

    def __init__(self, *, heads: int):
        super().__init__(heads=heads)
        self.spare = nn.Parameter(torch.zeros(heads))


@caught_by("gradients")
class InputChanged(Learned):
    """Positions are added in place, into the caller's tensor."""

    def embed(self, x, space, layer):
        if layer == 0:
            x.data += self.weight[0][space.last(x.shape[1])[..., 0]].to(x.dtype)
        return x, space


@caught_by("declared tensors")
class BiasInHalf(Sound):
    """The bias is rounded before it is added."""

    def attend(self, a):
        def bias(gap, m):
            return (-m[:, None].abs() * gap.abs()).bfloat16()

        return a.add(od.Distance(bias, self.slopes))


@caught_by("gradients")
class LayerZeroAlways(Sound):
    """Every layer reads the parameters of the first."""

    def __init__(self, *, heads: int, layers: int = 1):
        od.Position.__init__(self)
        self.heads, self.layers = heads, layers
        self.slopes = nn.Parameter(torch.empty(layers, heads))
        self.reset_parameters()

    def attend(self, a):
        return a.add(od.Distance(lambda gap, m: -m[:, None].abs() * gap.abs(), self.slopes[0]))


@caught_by("stated precision")
class BiasInTheTypeOfQ(Sound):
    """The bias is rounded to whatever type the queries have."""

    def attend(self, a):
        narrow = a.q.dtype

        def bias(tile, m):
            return (-m[:, None, None].abs() * tile.gap().abs().unsqueeze(1)).to(narrow).to(m.dtype)

        return a.add(od.Local(bias, whole=[self.slopes], op="add"))


@caught_by("chain with a rotation")
class TermsForgotten(Sound):
    """What other methods of a chain turned is dropped."""

    def attend(self, a):
        return super().attend(a.but(rotations=()))


@caught_by("masks")
class WindowForgotten(Sound):
    """The mask is made anew, without the window."""

    def attend(self, a):
        fresh = od.Mask(causal=a.mask.causal, valid=a.mask.valid, documents=a.mask.documents)
        return super().attend(a).but(mask=fresh)


@caught_by("any sequence of calls")
class TrainingBroken(Sound):
    """In training the queries are larger."""

    def attend(self, a):
        return super().attend(a.but(q=a.q * 2) if self.training else a)


# What is kept.


@caught_by("any sequence of calls")
class StaleTable(Sound):
    """A table is made at the first call and kept."""

    def attend(self, a):
        if not hasattr(self, "memo"):
            reach = a.k.shape[2]
            self.memo = torch.arange(-reach, reach + 1, device=a.k.device).abs()
        table, half = self.memo, len(self.memo) // 2

        def bias(gap, m):
            return -m[:, None].abs() * table[(gap.long() + half).clamp(0, len(table) - 1)]

        return a.add(od.Distance(bias, self.slopes))


@caught_by("state")
class StateNotSaved(Sound):
    """What was drawn at the start is no part of the state."""

    def __init__(self, *, heads: int):
        super().__init__(heads=heads)
        self.hidden = torch.rand(heads)

    def attend(self, a):
        extra = self.hidden.to(a.wide)
        return a.add(
            od.Distance(lambda gap, m, e: -(m.abs() + e)[:, None] * gap.abs(), self.slopes, extra)
        )


@caught_by("no buffers")
class Buffered(Sound):
    """A table in a buffer, which is garbage after `to_empty`."""

    def __init__(self, *, heads: int):
        super().__init__(heads=heads)
        self.register_buffer("table", torch.ones(3), persistent=False)


@caught_by("reset")
class ResetForgets(Sound):
    """A parameter is set in the constructor and not in reset_parameters."""

    def __init__(self, *, heads: int):
        super().__init__(heads=heads)
        self.shift = nn.Parameter(torch.zeros(heads))

    def attend(self, a):
        return super().attend(a).add(od.Distance(lambda gap, c: c[:, None] * gap, self.shift))


@caught_by("twice")
class Random(Sound):
    """Noise without a seed."""

    def attend(self, a):
        return super().attend(a.but(q=a.q + torch.rand_like(a.q)))


# What is said.


@caught_by("relative")
class FalselyRelative(Sound):
    """Says relative; the bias depends on the key's position alone."""

    def attend(self, a):
        return a.add(
            od.Local(
                lambda tile, m: m[:, None, None] * torch.sin(0.7 * tile.pos_k[:, None, None, :, 0]),
                whole=[self.slopes],
                op="add",
            )
        )


@caught_by("relative")
class FalselyAbsolute(Sound):
    """Says it is not relative, and is."""

    facts = replace(FACTS, relative=False)


@caught_by("cross")
class FalselyCross(Sound):
    """Says that it acts between two sequences, and does not."""

    def attend(self, a):
        return a if a.cross else super().attend(a)


@caught_by("needs")
class NeedsUndeclared(Learned):
    """Acts on the tokens, and does not say that it needs the embedding stage."""

    def __init__(self, *, dim: int, max_len: int):
        super().__init__(dim=dim, max_len=max_len)
        self.facts = replace(self.facts, needs=frozenset())


@caught_by("causal only")
class FalselyBothWays(Sound):
    """Looks back only, in an encoder too, and does not say so."""

    def attend(self, a):
        return super().attend(a).but(mask=a.mask & od.Mask(causal=True))


@caught_by("finite")
class TableClamped(Learned):
    """Positions beyond the table read its last row."""

    def embed(self, x, space, layer):
        if layer:
            return x, space
        index = space.last(x.shape[1])[..., 0].clamp_max(self.weight.shape[1] - 1)
        return x + self.weight[0][index].to(x.dtype), space


@caught_by("finite")
class Overflowing(Sound):
    """Grows with distance until it overflows."""

    def attend(self, a):
        return a.add(
            od.Distance(lambda gap, m: (m[:, None].abs() * gap.abs()).exp() ** 40, self.slopes)
        )


@caught_by("options")
class OptionIgnored(Sound):
    """An option that does nothing."""

    variants = ("power=2",)

    def __init__(self, *, heads: int, power: float = 1.0):
        super().__init__(heads=heads)


@caught_by("acts")
class Nothing(Sound):
    """States nothing."""

    def attend(self, a):
        return a


@caught_by("paper")
class NoPaper(Sound):
    """From nowhere."""

    facts = replace(FACTS, paper=())


@caught_by("grouped heads")
class GroupsTiled(Sound):
    """Key heads are copied in the wrong order: 0 1 0 1 for 0 0 1 1."""

    def attend(self, a):
        k = a.k.repeat(1, a.q.shape[1] // a.k.shape[1], 1, 1)
        table = torch.full((a.q.shape[1], 1, a.q.shape[3]), 0.3, dtype=a.wide)
        row = torch.zeros_like
        return super().attend(a).add(od.Lookup(k, table, side="k", row=row, scale=1.0))


@caught_by("chain with none")
class FactsChange(Sound):
    """Facts that are made anew each time they are read."""

    count = 0

    @property
    def facts(self):
        type(self).count += 1
        return replace(FACTS, paper=(str(self.count),))

    @facts.setter
    def facts(self, value):
        pass


@caught_by("segments")
class CountsFromHere(Sound):
    """Remembers where the text began in an attribute, so a second segment starts at 0."""

    def attend(self, a):
        n, m = a.q.shape[2], a.k.shape[2]
        if n != m:
            keys = torch.arange(m, device=a.q.device)
            gap = keys - torch.arange(n, device=a.q.device)[:, None]
            return a.add(
                od.Local(
                    lambda tile, s: -s[:, None, None].abs() * gap.abs(),
                    whole=[self.slopes],
                    op="add",
                )
            )
        return super().attend(a)
