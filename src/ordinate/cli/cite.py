from __future__ import annotations

from typing import Annotated

import tyro


def run(
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="METHOD ...", help="methods, chains such as rope+alibi, or bibliography keys"
        ),
    ] = (),
) -> int:
    """BibTeX for methods; without a method, for Ordinate itself."""
    from ordinate.cite import bibtex

    print(bibtex(*methods))
    return 0
