"""The rules of the house that a machine can check: who imports whom, how long a file may be, and
what starting up may load. Each check is a function of a source tree that returns its complaints,
so that the last tests can plant mistakes and see them found."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median

import pytest

HOUSE = Path(__file__).parents[1]
SOURCE = HOUSE / "src" / "ordinate"

# layer -> the layers it may import, besides itself. Top-level modules are the core, except the
# door (__init__) and the entries; names.py is core too, and alone there in reading the index of
# methods (methods/__init__), which finds them by name and imports none.
ENTRIES = {"solve"}
LAYERS = {
    "core": {"names"},
    "names": {"core", "index"},
    "index": {"core", "names"},
    "methods": {"core", "names"},
    "backends": {"core", "names"},
    "entry": {"core", "names", "backends"},
    "models": {"core", "names", "index", "methods", "backends", "entry"},
    "door": {"core", "names", "index", "methods", "backends", "entry", "models", "testing"},
    "testing": {"core", "names", "index", "methods", "backends", "entry", "models", "door"},
}
LAYERS |= {
    "tasks": {"core", "names", "index"},
    "training": {"core", "names", "index", "backends", "models", "tasks", "door"},
    "experiments": {"core", "names", "index", "models", "tasks", "training", "door"},
    "report": {"core", "names", "index", "models", "tasks", "training", "experiments", "door"},
}
LAYERS["door"] |= {"tasks", "training", "experiments"}
LAYERS["cli"] = set(LAYERS)
PACKAGES = {"torch", "numpy"}  # all that a layer may import, unless it is named below
MORE = {
    "training": {"pydantic", "safetensors"},
    "experiments": {"pydantic", "scipy", "dask", "distributed", "pyarrow", "tensorboardX"},
    "report": {"rich", "matplotlib", "safetensors"},
}
VAGUE = {"utils", "helpers", "common", "misc", "manager"}


def modules(root):
    """Dotted name -> path of every module under root."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer(name, known):
    top = name.split(".")[1:2]
    if not top:
        return "door"
    if name == "ordinate.methods":
        return "index"
    if top[0] in ENTRIES:
        return "entry"
    if top[0] == "__main__":
        return "cli"
    if top[0] == "names":
        return "names"
    owner = known.get(f"ordinate.{top[0]}")
    return top[0] if owner and owner.name == "__init__.py" else "core"


def imports(name, known):
    """(line, dotted name) of whatever a module imports, inside functions too."""
    for node in ast.walk(ast.parse(known[name].read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = [node.module] if node.module else []
            if node.level:
                depth = node.level - (known[name].name == "__init__.py")
                parts = name.split(".")
                source = parts[: len(parts) - depth] + source
            for alias in node.names:
                full = ".".join([*source, alias.name])
                yield node.lineno, full if full in known else ".".join(source)


def import_complaints(root):
    known, complaints = modules(root), []
    for name, path in known.items():
        mine = layer(name, known)
        if mine not in LAYERS:
            complaints.append(f"{name} has no layer: say in LAYERS what {mine} may import")
            continue
        for line, target in imports(name, known):
            where, top = f"{path.relative_to(root.parent)}:{line}", target.split(".")[0]
            if top == "ordinate":
                theirs = layer(target, known)
                if theirs not in LAYERS[mine] | {mine}:
                    complaints.append(f"{where}: {mine} may not import {theirs} ({target})")
            elif mine != "cli" and top not in (
                PACKAGES | MORE.get(mine, set()) | sys.stdlib_module_names
            ):
                complaints.append(f"{where}: {mine} may not import the package {top}")
    return complaints


def size_complaints(root):
    complaints, methods = [], []
    for path in modules(root).values():
        here, lines = path.relative_to(root), len(path.read_text().splitlines())
        vague = VAGUE & {here.stem, *here.parts[:-1]}
        complaints += [f"{here}: {word} says nothing; name what it is" for word in vague]
        if lines > 300:
            complaints.append(f"{here}: {lines} lines, at most 300")
        if here.parts[0] == "methods" and len(here.parts) > 2 and here.stem != "__init__":
            methods.append(lines)
            if lines > 150:
                complaints.append(f"{here}: {lines} lines, a method has at most 150")
    if not methods:
        complaints.append("methods: no method found")
    elif median(methods) > 100:
        complaints.append(f"methods: the median is {median(methods)} lines, at most 100")
    return complaints


def test_imports_point_one_way():
    assert import_complaints(SOURCE) == []


def test_files_are_short_and_say_what_they_are():
    assert size_complaints(SOURCE) == []


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        (["-c", "import ordinate"], {"torch", "numpy", "rich", "tyro", "matplotlib"}),
        (["-m", "ordinate", "--help"], {"torch", "matplotlib"}),
        (
            ["-c", "import ordinate as od; od.make('rope', head_dim=8)"],
            {"triton", "transformers", "x_transformers", "matplotlib", "rich", "tyro"},
        ),
    ],
    ids=["import", "help", "make"],
)
def test_a_fresh_process_loads_only_what_it_needs(command, unwanted):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 0, "\n".join(said)
    loaded = set(re.findall(r"^import time:.*\|\s*(\w+)", done.stderr, re.M))
    assert "ordinate" in loaded
    assert loaded & unwanted == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_in_the_texts_exists(page):
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)(?=`|\s{2,}|\n)", (HOUSE / page).read_text()))
    targets = set(re.findall(r"^([a-z-]+):.*##", (HOUSE / "Makefile").read_text(), re.M))
    assert {"README.md": {"compare", "test"}, "CONTRIBUTING.md": {"setup"}}[page] <= named
    assert named <= targets


def test_versions_agree():
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in (HOUSE / "CITATION.cff").read_text()
    assert "torch==" in (HOUSE / "constraints.txt").read_text()


SOUND = {
    "__init__.py": "def __getattr__(name):\n    from . import models, solve",
    "__main__.py": "from .cli import main",
    "names.py": "import math\nfrom . import tensors\nfrom .methods import INDEX",
    "tensors.py": "import torch\nfrom numpy import array",
    "solve.py": "from .backends.sdpa import run\nfrom .names import make",
    "backends/__init__.py": "",
    "backends/sdpa.py": "from ..tensors import angles\nfrom torch.nn.functional import softmax",
    "methods/__init__.py": "INDEX = {}\ndef f():\n    from ordinate.names import nearest",
    "methods/rotary/__init__.py": "",
    "methods/rotary/rope.py": "from ... import tensors\nfrom . import pairing",
    "methods/rotary/pairing.py": "import ordinate.tensors",
    "models/__init__.py": "from .layer import Layer",
    "models/layer.py": "from ..solve import attention\nfrom ..methods.rotary import rope",
    "testing/__init__.py": "import ordinate as od\nfrom ..models import Layer",
    "cli/__init__.py": "import rich\nfrom .. import testing",
}


def plant(tmp_path, path="tensors.py", source=""):
    """A small sound tree with one file replaced or added."""
    root = tmp_path / "ordinate"
    for name, text in {**SOUND, path: source}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_sound_tree_passes(tmp_path):
    root = plant(tmp_path, "tensors.py", SOUND["tensors.py"])
    assert import_complaints(root) == size_complaints(root) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("space.py", "from .methods.rotary.rope import RoPE", "core may not import methods"),
        ("space.py", "from .methods import rotary", "core may not import methods"),
        ("space.py", "from .methods import INDEX", "core may not import index"),
        ("backends/sdpa.py", "from ..methods import INDEX", "backends may not import index"),
        ("fold.py", "def f():\n    from ordinate.backends import sdpa", "core .* import backends"),
        ("masks.py", "import ordinate as od", "core may not import door"),
        ("masks.py", "from . import make", "core may not import door"),
        ("norms.py", "from .solve import attention", "core may not import entry"),
        ("norms.py", "try:\n    import scipy.special\nexcept ImportError: pass", "package scipy"),
        ("solve.py", "from .methods.rotary import rope", "entry may not import methods"),
        ("methods/__init__.py", "from . import rotary", "index may not import methods"),
        ("methods/rotary/rope.py", "from ...backends import sdpa", "methods .* backends"),
        ("methods/rotary/rope.py", "def f():\n    import einops", "methods .* package einops"),
        ("backends/sdpa.py", "import ordinate.methods.rotary.rope", "backends .* methods"),
        ("backends/sdpa.py", "from ..models.layer import Layer", "backends .* models"),
        ("models/layer.py", "from .. import cli", "models may not import cli"),
        ("models/layer.py", "import transformers", "models .* package transformers"),
        ("testing/__init__.py", "from ..cli import main", "testing may not import cli"),
        ("__init__.py", "def f():\n    from .cli import main", "door may not import cli"),
        ("hf/__init__.py", "", "hf has no layer"),
    ],
)
def test_a_planted_import_is_found(tmp_path, path, source, complaint):
    (found,) = import_complaints(plant(tmp_path, path, source))
    assert re.search(complaint, found)


@pytest.mark.parametrize(
    ("path", "lines", "complaint"),
    [
        ("space.py", 301, "at most 300"),
        ("methods/rotary/rope.py", 151, "at most 150"),
        ("methods/rotary/rope.py", 202, "median"),
        ("models/utils.py", 1, "utils says nothing"),
        ("common/__init__.py", 1, "common says nothing"),
    ],
)
def test_a_planted_size_or_name_is_found(tmp_path, path, lines, complaint):
    assert re.search(complaint, "\n".join(size_complaints(plant(tmp_path, path, "#\n" * lines))))
