from __future__ import annotations

from typing import Annotated

import tyro


def run(
    method: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="METHOD", help="a method or a chain, such as rope+alibi"),
    ],
    out: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE", help="write a .png, .svg or .html file instead of drawing here"
        ),
    ] = None,
    length: Annotated[
        int | None, tyro.conf.arg(metavar="N", help="how many tokens; 128 by default")
    ] = None,
    causal: Annotated[bool, tyro.conf.arg(help="look back only, as a language model does")] = False,
    layer: Annotated[int, tyro.conf.arg(metavar="N", help="which layer, from 0")] = 0,
    draw: Annotated[
        bool,
        tyro.conf.arg(
            help="draw what is learned from N(0, 0.5), so that tables that start at zero show"
        ),
    ] = False,
    state: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE", help="show what was learned: a state dict of the method or its model"
        ),
    ] = None,
    sizes: Annotated[
        str,
        tyro.conf.arg(metavar="SIZE=N,...", help="sizes of the model, such as dim=64,heads=4"),
    ] = "",
) -> int:
    """A picture of what a method does: at initialisation, drawn at random, or learned."""
    from ordinate.cli import subject
    from ordinate.cli.output import console
    from ordinate.cli.picture import picture

    if out is not None:
        from ordinate.cli import figure

        figure.check(out)
    if draw and state:
        raise ValueError("--draw and --state both say what was learned: give one")
    given = subject.sized(sizes)
    length = min(128, given["max_len"]) if length is None else length
    if not 4 <= length <= 1024:
        raise ValueError(f"--length is between 4 and 1024, got {length}")
    if not 0 <= layer < given["layers"]:
        raise ValueError(f"--layer counts from 0 to {given['layers'] - 1}, got {layer}")
    position, learned = subject.made(method, given, draw=draw), "at initialisation"
    if state is not None:
        subject.learn(position, state)
    if draw or state:
        learned = "parameters drawn from N(0, 0.5)" if draw else f"parameters from {state}"
    name = subject.complete(method)
    scene = subject.Scene(length=length, causal=causal, layer=layer, sizes=given)
    shown = picture(name, position, scene, learned)
    page = console()
    if out is None:
        from rich.text import Text

        from ordinate.cli import terminal

        page.print(Text.assemble((name, "bold"), "  ", subject.one_line(position)))
        terminal.draw(page, shown)
    else:
        figure.write(out, shown, subject.about(position, given))
        print(out)
    return 0
