"""Names to methods: "rope", "rope:base=1e6", "rope+alibi", "randomized(t5):draw_from=512"."""

from __future__ import annotations

import difflib
import inspect
import math
import typing
from collections.abc import Iterable
from typing import Any

from ordinate.files import NAMED
from ordinate.position import Chain, Only, Position

SIZES = ("dim", "heads", "head_dim", "layers", "max_len")


def make(
    name: str,
    *,
    dim: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    layers: int | None = None,
    max_len: int | None = None,
    **options: Any,
) -> Position:
    """A method, or a chain of them, by name; each takes from the sizes what it needs.

    Options may be given as keywords or in the name: `make("rope", head_dim=64, base=1e6)` is
    `make("rope:base=1e6", head_dim=64)`. `on` restricts a method to layers: "rope:on=0-5",
    "rope:on=every 4th". In a chain, write options in the name.
    """
    if not isinstance(name, str):
        raise ValueError(f'a method is named by text, as od.make("rope"), got {name!r}')
    given = {"dim": dim, "heads": heads, "head_dim": head_dim, "layers": layers, "max_len": max_len}
    for size, value in given.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not whole or value < 1):
            raise ValueError(f"{size} is a whole number of at least 1, got {value!r}")
    if dim and heads and not head_dim and dim % heads == 0:
        given["head_dim"] = dim // heads
    pieces = split(name)
    if options and len(pieces) > 1:
        raise ValueError(
            f"options beside the chain {name!r} could belong to any part: "
            f"write them in the name, as {pieces[0]}:{next(iter(options))}=…"
        )
    parts = [_one(piece, given, options) for piece in pieces]
    return parts[0] if len(parts) == 1 else Chain(*parts)


def split(name: str) -> list[str]:
    """The parts of a chain; a "+" inside parentheses or a number such as 1e+6 does not split."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(name):
        depth += (c == "(") - (c == ")")
        if (
            c == "+"
            and depth == 0
            and not (name[i - 1 : i] == "e" and name[i - 2 : i - 1].isdigit())
        ):
            parts.append(name[start:i])
            start = i + 1
    parts = [part.strip() for part in (*parts, name[start:])]
    if depth or not all(parts):
        raise ValueError(f"{name!r} is not a method: write names joined by +, as rope+alibi")
    return parts


def parse(piece: str) -> tuple[str, str | None, dict[str, str]]:
    """ "randomized(rope:base=5):draw_from=9" as name, what is in parentheses, and options."""
    head, inner, tail = piece, None, ""
    if file := NAMED.match(piece):
        head, tail = file[0], piece[file.end() + 1 :]
    elif "(" in piece:
        head, rest = piece.split("(", 1)
        inner, closed, tail = rest.rpartition(")")
        if not closed:
            raise ValueError(f"{piece!r} is not a method: its parentheses do not match")
        if tail and not tail.startswith(":"):
            raise ValueError(
                f"{piece!r}: after the closing parenthesis come options, as :draw_from=9"
            )
        tail = tail[1:]
    elif ":" in piece:
        head, tail = piece.split(":", 1)
    options = {}
    for option in filter(None, tail.split(",")):
        key, equals, value = option.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ValueError(f"{option!r} in {piece!r} is not an option: write name=value")
        if key.strip() in options:
            raise ValueError(f"{key.strip()} is given twice in {piece!r}: keep one")
        options[key.strip()] = value.strip()
    return head.strip(), inner, options


def classes(name: str) -> list[type[Position]]:
    """The classes behind a name, of all its parts, without making anything; none for "none"."""
    from ordinate.methods import find

    found: list[type[Position]] = []
    for head, inner, _ in map(parse, split(name)):
        found += [find(head)] if head != "none" else []
        found += classes(inner) if inner else []
    return found


def _one(piece: str, sizes: dict[str, int | None], extra: dict[str, Any]) -> Position:
    from ordinate.methods import find

    head, inner, written = parse(piece)
    if head == "none":
        if written or extra:
            raise ValueError("none takes no options: it changes nothing")
        return Chain()
    cls = find(head)
    signature = inspect.signature(cls)
    hints = typing.get_type_hints(cls.__init__)
    if both := sorted(extra.keys() & written.keys()):
        raise ValueError(f"{both[0]} is given in the name {piece!r} and beside it: keep one")
    given: dict[str, Any] = {**extra, **written}
    on = given.pop("on", None)
    arguments = {key: sizes[key] for key in SIZES if key in signature.parameters and sizes[key]}
    if "of" in signature.parameters:
        if inner is None:
            raise ValueError(f"{head} wraps another method: write {head}(NAME), as {head}(rope)")
        arguments["of"] = make(inner, **sizes)  # type: ignore[arg-type]
    elif inner is not None:
        raise ValueError(f"{head} wraps no other method: join methods with +, as {head}+{inner}")
    for key, value in given.items():
        if key not in signature.parameters or key == "of":
            takes = sorted(set(signature.parameters) - {"of"})
            raise ValueError(
                f"{head} has no option {key!r}{nearest(key, takes)}; it takes {', '.join(takes)}"
                if takes
                else f"{head} has no option {key!r}: it takes none"
            )
        arguments[key] = convert(f"{head}:{key}", value, hints[key])
        if key == "base" and not arguments[key]:
            raise ValueError(f"{head}:base is a number above 0, got {value!r}")
    missing = [
        key
        for key, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and key not in arguments
    ]
    if missing:
        dim, heads = sizes["dim"], sizes["heads"]
        if missing == ["head_dim"] and dim and heads:
            head_width(dim, heads)
        example = f'od.make("{head}", {", ".join(f"{key}=…" for key in missing)})'
        raise ValueError(f"{head} needs {' and '.join(missing)}: write {example}")
    position = cls(**arguments)
    position.name = piece if written or inner else head
    if on is None:
        return position
    only = Only(position, str(on))
    only.name = piece
    layers = sizes["layers"]
    if layers and not any(map(only.acts, range(layers))):
        raise ValueError(f"on={on} names none of the layers 0 … {layers - 1}")
    return only


def head_width(dim: int, heads: int) -> int:
    """The width of a head, if all are as wide as they can be."""
    if dim % heads:
        raise ValueError(f"dim={dim} does not split into {heads} heads: give head_dim too")
    return dim // heads


def declared(cls: type[Position], text: str) -> dict[str, Any]:
    """ "clip=4,shared=true" as values of the types that a class declares for its options."""
    hints = typing.get_type_hints(cls.__init__)
    written = parse(f"{cls.__name__}:{text}")[2]
    return {key: convert(key, value, hints.get(key, str)) for key, value in written.items()}


def convert(name: str, value: Any, hint: Any) -> Any:
    """`value`, perhaps text, as the type that an option declares."""
    options = [h for h in typing.get_args(hint) if h is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        texts = {str(option): option for option in options}
        if str(value) not in texts:
            raise ValueError(
                f"{name} is one of {', '.join(texts)}, got {value!r}{nearest(str(value), texts)}"
            )
        return texts[str(value)]
    if options:
        if value is None or value == "none":
            return None
        hint = options[0]
    if hint is bool:
        texts = {"true": True, "false": False, "yes": True, "no": False}
        if str(value).lower() not in texts:
            raise ValueError(f"{name} is true or false, got {value!r}")
        return texts[str(value).lower()]
    if hint in (int, float):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or (hint is int and number != int(number)):
            kind = "a whole number" if hint is int else "a number"
            raise ValueError(f"{name} is {kind}, got {value!r}")
        if number < (hint is int):
            kind = "a whole number of at least 1" if hint is int else "a number of at least 0"
            raise ValueError(f"{name} is {kind}, got {value!r}")
        return hint(number)
    return value


def nearest(word: str, words: Iterable[str]) -> str:
    """ ", did you mean …?" if there is something close."""
    known = {known.lower(): known for known in words}
    close = [known[c] for c in difflib.get_close_matches(word.lower(), list(known), 1, 0.6)]
    return f" (did you mean {close[0]}?)" if close else ""
