"""Who may look at whom."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """Pairs that may meet, by index; `Mask()` allows all and `a & b` allows what both allow.

    causal:    a query sees itself and what comes before
    window:    a query sees keys less than `window` indices away
    current:   False if a query does not see itself
    valid:     [b, m], False for padding keys
    documents: [b|1, m], tokens meet only within one document (queries are the last n tokens)
    dense:     [b|1, h|1, n, m], anything else; True may look
    """

    causal: bool = False
    window: int | None = None
    current: bool = True
    valid: Tensor | None = None
    documents: Tensor | None = None
    dense: Tensor | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"a window is at least 1, the token itself, got {self.window}")

    def __and__(self, other: Mask) -> Mask:
        windows = [w for w in (self.window, other.window) if w is not None]
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            current=self.current and other.current,
            valid=_both(self.valid, other.valid),
            documents=_pairs(self.documents, other.documents),
            dense=_both(self.dense, other.dense),
        )

    @property
    def by_index(self) -> bool:
        """True if the mask depends on nothing but the two indices."""
        return self.valid is None and self.documents is None and self.dense is None

    @property
    def plain(self) -> bool:
        """True for everything or plain causality."""
        return self.by_index and self.window is None and self.current

    @property
    def fills_rows(self) -> bool:
        """True if every query is certain to see a key: itself."""
        return self.current and self.valid is None and self.dense is None

    def allowed(self, rows: Tensor, cols: Tensor, offset: int) -> Tensor | None:
        """The block of queries `rows` [nq] × keys `cols` [nk]: [b|1, h|1, nq, nk], None for all.

        Query `i` is the token with index `i + offset` among the keys.
        """
        at = rows[:, None] + offset
        parts = []
        if self.causal:
            parts.append((cols <= at)[None, None])
        if self.window is not None:
            near = (cols < at + self.window) & (cols > at - self.window)
            parts.append(near[None, None])
        if not self.current:
            parts.append((cols != at)[None, None])
        if self.valid is not None:
            parts.append(self.valid[:, None, None, cols])
        if self.documents is not None:
            ids = self.documents
            parts.append((ids[:, rows + offset, None] == ids[:, None, cols])[:, None])
        if self.dense is not None:
            parts.append(self.dense[:, :, rows][..., cols])
        out = None
        for part in parts:
            out = part if out is None else out & part
        return out


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return a if b is None else b if a is None else a & b


def _pairs(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    # One id for every pair of ids: tokens meet if they share both.
    low, high = b.aminmax()
    return a * (high - low + 1) + (b - low)
