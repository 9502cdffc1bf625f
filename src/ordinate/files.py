"""Classes in files of one's own: "mine.py:Mine" is a name wherever a name is taken."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")

# "mine.py:Mine", and after it perhaps ":clip=4".
NAMED = re.compile(r"(?P<file>[^()+]*\.py):(?P<cls>\w+)(?=[:+)]|$)")


def load_class(path: str, name: str, kind: type[T]) -> type[T]:
    """The class of that name in a file; it is a subclass of `kind`."""
    from ordinate.names import nearest

    what = kind.__name__.lower()
    module = load(Path(path))
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
    ]
    found = getattr(module, name, None)
    if found is None:
        home = (
            f"ordinate.{kind.__name__}" if what == "position" else f"ordinate.tasks.{kind.__name__}"
        )
        has = f"it has {', '.join(own)}" if own else f"it has no subclass of {home}"
        raise ValueError(f"{path} has no {name!r}{nearest(name, own)}; {has}")
    if not (isinstance(found, type) and issubclass(found, kind)):
        kinds = {"position": "method: a method is a subclass of ordinate.Position"}
        said = kinds.get(what, f"{what}: a {what} is a subclass of ordinate.tasks.{kind.__name__}")
        raise ValueError(f"{name} in {path} is no {said}")
    return found


def load(path: Path) -> ModuleType:
    """A file as a module; what goes wrong in it is one sentence with its line."""
    from ordinate.names import nearest

    if path.is_dir():
        raise ValueError(f"{path} is a directory: name the file in it, as {path / 'mine.py'}:Mine")
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.py")])
        raise ValueError(f"there is no file {path}{near}")
    spec = importlib.util.spec_from_file_location(f"ordinate_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file: its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        own = [
            f.lineno
            for f in traceback.extract_tb(error.__traceback__)
            if f.filename == str(path.resolve()) or f.filename == str(path)
        ]
        line = f", line {own[-1]}" if own else ""
        raise ValueError(f"{path}{line}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    return module


def digest(name: str) -> str | None:
    """What the files in a name hold, as 16 letters, so that a changed file is another method."""
    files = sorted({match["file"].strip() for match in NAMED.finditer(name)})
    if not files:
        return None
    content = hashlib.sha256()
    for file in files:
        try:
            content.update(Path(file).read_bytes())
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}") from None
    return content.hexdigest()[:16]
