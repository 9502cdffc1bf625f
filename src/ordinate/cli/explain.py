from __future__ import annotations

import inspect
import typing
from typing import Annotated, Any

import tyro


def run(
    method: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="METHOD", help="a method or a chain, such as rope+alibi"),
    ],
    length: Annotated[int, tyro.conf.arg(metavar="N", help="how many tokens")] = 128,
    causal: Annotated[bool, tyro.conf.arg(help="look back only, as a language model does")] = False,
    layer: Annotated[int, tyro.conf.arg(metavar="N", help="which layer, from 0")] = 0,
) -> int:
    """The facts of a method, the problem it states, and which engine runs it."""
    import torch
    from rich.padding import Padding
    from rich.text import Text

    from ordinate.cli import subject
    from ordinate.cli.output import console, table
    from ordinate.describe import describe
    from ordinate.position import leaves
    from ordinate.solve import engines

    if length < 1 or layer < 0:
        raise ValueError(f"--length is at least 1 and --layer at least 0, got {length} and {layer}")
    if layer >= subject.MADE["layers"]:
        raise ValueError(f"--layer counts from 0 to {subject.MADE['layers'] - 1}, got {layer}")
    position = subject.made(method)
    out = console()
    parts = leaves(position)
    if not parts:
        out.print("none", style="bold")
        out.print("No position at all: attention does not see the order.\n")
    for part in parts:
        _part(out, part)
    out.print("Facts" if len(parts) < 2 else "Facts of the chain", style="bold")
    facts = table("", "")
    facts.show_header = False
    for key, value in subject.about(position).items():
        facts.add_row(f"  {key}", value)
    out.print(facts)

    causal = causal or position.facts.causal_only
    scene = subject.Scene(length=length, causal=causal, layer=layer)
    training = subject.problem(position, scene)
    with torch.no_grad():
        inference = subject.problem(position, scene)
        frozen = engines(inference)
    out.print("\nThe problem it states", style="bold")
    lines = [describe(inference)]
    lines += [
        f"remembered of every key: {key}, {list(x.shape)}" for key, x in inference.kept.items()
    ]
    for line in lines:
        out.print(Padding(Text(line), (0, 0, 0, 2)))
    learning = engines(training)
    said = (
        [("training and inference", frozen)]
        if learning == frozen
        else [("training", learning), ("inference", frozen)]
    )
    for when, lines in said:
        out.print(Text.assemble(("\nEngines", "bold"), f" ({when})"))
        grid = table("", "", "")
        grid.show_header = False
        for name, mark, says in lines:
            grid.add_row(f"  {mark}", name, says)
        out.print(grid)
    return 0


def _part(out: Any, part: Any) -> None:
    """What one method says of itself."""
    from rich.text import Text

    from ordinate.cli.output import table
    from ordinate.cli.subject import family
    from ordinate.names import SIZES, parse

    head = parse(part.name)[0]
    out.print(Text.assemble((part.name, "bold"), f"  ({family(head)})"))
    for paragraph in words(type(part)).split("\n\n"):
        # Prose is set to the width of the terminal, an equation stays as it is.
        equation = paragraph.startswith(" ")
        out.print(Text(paragraph if equation else " ".join(paragraph.split())))
        out.print()
    signature, hints = inspect.signature(type(part)), typing.get_type_hints(type(part).__init__)
    if signature.parameters:
        grid = table("  option", "default", "allowed")
        for key, parameter in signature.parameters.items():
            default = parameter.default
            if default is parameter.empty:
                shown = "a size" if key in SIZES else "must be given"
            else:
                shown = (
                    str(default).lower()
                    if default is None or isinstance(default, bool)
                    else str(default)
                )
            grid.add_row(f"  {key}", shown, allowed(hints[key]) if key != "of" else "a method")
        out.print(grid)
        out.print()
    learned = list(part.named_parameters())
    if learned:
        grid = table("  parameter", "shape", "numbers", right=("numbers",))
        for key, p in learned:
            grid.add_row(f"  {key}", str(list(p.shape)), f"{p.numel():,}")
        out.print(grid)
        out.print()


def words(method: type) -> str:
    """The documentation of a class without its example."""
    text = inspect.getdoc(method) or ""
    return text.split("\n>>>")[0].rstrip()


def allowed(hint: Any) -> str:
    """What may be written for an option of this type."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(str, options))
    if options:
        return " | ".join("none" if o is type(None) else allowed(o) for o in options)
    names = {bool: "true | false", int: "a whole number", float: "a number", str: "text"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))
