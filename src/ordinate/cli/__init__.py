"""The command `ordinate`. Nothing here loads torch: a command is imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """What the front page says about a command; `ordinate.cli.NAME.run` is the command."""

    does: str
    example: str


COMMANDS = {
    "list": Command("every method, and what it is", "ordinate list --family bias"),
    "show": Command("a picture of what a method does", "ordinate show alibi --out alibi.png"),
    "explain": Command(
        "its facts, the problem it states, and which engine runs it",
        "ordinate explain rope --causal",
    ),
    "cite": Command("BibTeX for what you used", "ordinate cite rope+alibi"),
    "check": Command(
        "the whole contract on a method of your own", "ordinate check mine.py:Mine clip=4"
    ),
    "doctor": Command("every engine against the reference on this machine", "ordinate doctor"),
    "compare": Command(
        "train and compare methods on a task, fairly", "ordinate compare rope alibi none --seeds 6"
    ),
    "runs": Command("what was trained: list, show, rm, export", "ordinate runs export runs.csv"),
    "report": Command(
        "the tables and the page of a comparison", "ordinate report --figures figures"
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; what goes wrong becomes one sentence."""
    # Not list(...): once the command `list` is imported, that name here is its module.
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    try:
        code = dispatch(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # `ordinate list | head`: nobody reads on, and Python would complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return fail("interrupted", 130)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}", 1)
    except ValueError as error:
        return fail(str(error), 2)
    except Exception as error:
        if os.environ.get("ORDINATE_TRACEBACK"):
            raise
        first = (str(error).splitlines() or [""])[0]
        return fail(f"{type(error).__name__}: {first} (ORDINATE_TRACEBACK=1 shows where)", 1)


def dispatch(arguments: list[str]) -> int:
    from ordinate import __version__

    if not arguments or arguments[0] in ("-h", "--help", "help"):
        if arguments[:1] == ["help"] and arguments[1:]:
            return dispatch([*arguments[1:], "--help"])
        return front_page()
    if arguments[0] in ("-V", "--version"):
        print(f"ordinate {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        import difflib

        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"there is no command {name!r}{hint}; there are {', '.join(COMMANDS)}")

    import tyro

    command = import_module(f"ordinate.cli.{name}")
    return tyro.cli(
        command.run,
        prog=f"ordinate {name}",
        description=f"{command.run.__doc__}\n\nExample: {COMMANDS[name].example}",
        args=rest,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def front_page() -> int:
    from rich.table import Table
    from rich.text import Text

    from ordinate.cli.output import console

    out = console()
    out.print(Text.assemble(("ordinate", "bold"), " tells a transformer where its tokens are\n"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, command in COMMANDS.items():
        table.add_row(name, command.does)
        table.add_row("", Text(command.example, "dim"))
    out.print(table)
    out.print(
        "\nOptions are part of a method's name, and methods join with +: "
        "rope:base=1e6, rope+alibi.\n"
        "ordinate COMMAND --help explains one command; ordinate --version says which this is."
    )
    return 0


def fail(sentence: str, code: int) -> int:
    print(f"ordinate: {sentence}", file=sys.stderr)
    return code
