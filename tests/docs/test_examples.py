"""What is shown runs: the python blocks of the pages, docstrings of methods, and `examples/`."""

import ast
import doctest
import importlib.util
import inspect
import re
import subprocess
from pathlib import Path

import pytest
import torch
import yaml

import ordinate as od
from ordinate.cli import main
from ordinate.experiments.plan import load
from ordinate.methods import INDEX, find

HOUSE = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", *(f"docs/{name}.md" for name in (
    "quickstart", "compare", "models", "backends", "testing", "interface", "write-your-own",
)))  # fmt: skip
BLOCK = re.compile(r"(<!-- not run -->\n)?^```python\n(.*?)^```$", re.M | re.S)


def blocks(text):
    """The line before the first of each python block, and its source, without those marked."""
    return [
        (text.count("\n", 0, block.start(2)), block[2])
        for block in BLOCK.finditer(text)
        if not block[1]
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(od.backends, "ENGINES", dict(od.backends.ENGINES))
    torch.manual_seed(0)
    text = (HOUSE / page).read_text()
    found, world = blocks(text), {"__name__": page}
    assert found
    for line, source in found:
        # Padded, so that a traceback has the line of the page.
        exec(compile("\n" * line + source, HOUSE / page, "exec"), world)


def test_a_block_that_is_marked_does_not_run():
    text = "\n<!-- not run -->\n```python\n1/0\n```\n```python\nx = 1\n```\n```text\n$ rm\n```\n"
    assert blocks(text) == [(6, "x = 1\n")]


OBJECTS = {
    **{name: find(name) for name in INDEX},
    **{f"od.{f.__name__}": f for f in (od.explain, od.bibtex)},
    **{f"od.models.{c.__name__}": c for c in (od.models.Transformer, od.models.Cache)},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_example_of_a_docstring_runs(name):
    torch.manual_seed(0)
    text = inspect.getdoc(OBJECTS[name]) or ""
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)


# The files in examples/.

EXAMPLES = HOUSE / "examples"
CLUSTER = EXAMPLES / "cluster"
TINY = {"sizes": {"dim": 16, "heads": 2}, "layers": 1, "epochs": 1, "seeds": 2, "jobs": 1}


def test_the_method_keeps_the_contract_and_is_that_of_the_page(capsys, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    assert main(["check", "my_method.py:Fade"]) == 0
    assert "0 fail" in capsys.readouterr().out
    page = (HOUSE / "docs" / "write-your-own.md").read_text()
    (theirs,) = re.findall(r"```python\n(import torch\n[\s\S]*?class Fade[\s\S]*?)```", page)
    trees = (ast.parse(source) for source in (theirs, (EXAMPLES / "my_method.py").read_text()))
    # The same hooks with the same bodies, in which one says more types than the other.
    (a, b) = (
        [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for tree in trees
    )
    assert a == b


def test_the_task_is_one(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    task = od.tasks.make("my_task.py:Before:train=300,length=9,tokens=4")
    for split, seed, length in (("train", 0, None), ("train", 1, None), ("test", 0, 20)):
        data = task.samples(split, seed, length)
        first, second = ((data.x == token).long().argmax(1) for token in (4, 5))
        assert ((data.x == 4).sum(1) == 1).all() and ((data.x == 5).sum(1) == 1).all()
        assert torch.equal(data.y, (second < first).long())
        assert abs(data.y.double().mean() - 0.5) < 0.01
        assert data.x.shape[1] == (length or 9)
        assert torch.equal(data.x, task.samples(split, seed, length).x)
    assert not torch.equal(task.samples("train", 0).x, task.samples("train", 1).x)


def test_the_plan_is_one():
    plan = load(str(EXAMPLES / "plan.toml")).checked()
    assert len(plan.cells) == 2 and plan.rates == (3e-4, 1e-3)


def test_the_program_runs(capsys, tmp_path):
    spec = importlib.util.spec_from_file_location("example_compare", EXAMPLES / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = "pattern:train=640,validation=200,test=200"
    found = module.main(str(tmp_path / "runs"), task=task, **TINY)
    assert found.missing == 0 and len(found.rows) == 3
    said = capsys.readouterr().out
    assert "32 Cannot tell: 2 paired seeds" in said and "perfect" in said
    assert (tmp_path / "runs" / "report.html").is_file()


@pytest.mark.parametrize("name", sorted(p.name for p in CLUSTER.glob("*.s*")))
def test_a_script_is_understood_by_bash(name):
    assert subprocess.run(["bash", "-n", CLUSTER / name], capture_output=True).stderr == b""
    text = (CLUSTER / name).read_text()
    assert "set -euo pipefail" in text and 'compare "$@"' in text


def test_the_objects_of_kubernetes_know_each_other():
    found = [*yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())]
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(names)) == len(names) == 6
    claims = {name for kind, name in names if kind == "PersistentVolumeClaim"}
    (service,) = (one for one in found if one["kind"] == "Service")
    address = f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    pods = [one["spec"]["template"] for one in found if "template" in one["spec"]]
    labels = [pod["metadata"]["labels"] for pod in pods if "metadata" in pod]
    assert service["spec"]["selector"] in labels
    used, words = set(), []
    for one in found:
        if "selector" in one["spec"] and one["kind"] == "Deployment":
            wanted = one["spec"]["selector"]["matchLabels"]
            assert wanted == one["spec"]["template"]["metadata"]["labels"]
    for pod in pods:
        volumes = {
            v["name"]: v["persistentVolumeClaim"]["claimName"]
            for v in pod["spec"].get("volumes", [])
        }
        used |= {*volumes.values()}
        for container in pod["spec"]["containers"]:
            assert {m["name"] for m in container.get("volumeMounts", [])} == volumes.keys()
            words += container["command"]
    assert used == claims
    assert address in words and f"--cluster={address}" in words
    folder = next(word for word in words if word.startswith("--folder=")).partition("=")[2]
    paths = {
        m["mountPath"]
        for p in pods
        for c in p["spec"]["containers"]
        for m in c.get("volumeMounts", [])
    }
    assert paths == {folder, f"{folder}/trials"}
