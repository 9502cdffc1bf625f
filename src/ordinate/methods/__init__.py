"""Every method by name; adding one is one file here, one line below and one entry in the bibliography."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ordinate.files import NAMED, load_class

if TYPE_CHECKING:
    from ordinate.position import Position

INDEX = {
    "abacus": "input.abacus:Abacus",
    "alibi": "bias.alibi:ALiBi",
    "axial-rope": "grid.axial_rope:AxialRoPE",
    "continuous": "input.continuous:Continuous",
    "cope": "content.cope:CoPE",
    "da": "scale.da:DA",
    "deberta": "content.deberta:DeBERTa",
    "dynamic-ntk": "rotary.dynamic_ntk:DynamicNTK",
    "exposb": "norm.exposb:ExpoSB",
    "fire": "bias.fire:FIRE",
    "fox": "content.fox:FoX",
    "huang3": "scale.huang3:Huang3",
    "learned": "input.learned:Learned",
    "lrope": "rotary.lrope:LRoPE",
    "randomized": "input.randomized:Randomized",
    "relative": "bias.relative:Relative",
    "rope": "rotary.rope:RoPE",
    "rse": "norm.rse:RSE",
    "shaw": "content.shaw:Shaw",
    "sininit": "input.sininit:SinInit",
    "sinusoidal": "input.sinusoidal:Sinusoidal",
    "stick-breaking": "norm.stick_breaking:Stick",
    "swin": "grid.swin:Swin",
    "t5": "bias.t5:T5",
    "tener": "content.tener:TENER",
    "transformer-xl": "content.transformer_xl:TransformerXL",
    "tupe": "content.tupe:TUPE",
    "xpos": "rotary.xpos:XPos",
}


def names() -> list[str]:
    """All names, with "none", the method that changes nothing."""
    return sorted([*INDEX, "none"])


def find(name: str) -> type[Position]:
    """The class behind a name, or in a file: "mine.py:Mine"."""
    if NAMED.fullmatch(name):
        from ordinate.position import Position

        file, cls = name.rsplit(":", 1)
        return load_class(file, cls, Position)
    if name not in INDEX:
        from ordinate.names import nearest

        raise ValueError(
            f"no method is called {name!r}{nearest(name, names())}; ordinate list shows all {len(names())}"
        )
    module, cls = INDEX[name].split(":")
    return getattr(import_module(f"ordinate.methods.{module}"), cls)
