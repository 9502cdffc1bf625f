import pytest

from ordinate.cli import main
from ordinate.testing import Result

MINE = '''
import ordinate as od

class Mine(od.Position):
    """b = -rate |gap|"""

    facts = od.Facts(paper=("press2022alibi",), relative=True, cross=True)

    def __init__(self, *, rate: float = 0.1) -> None:
        super().__init__()
        self.rate = rate

    def attend(self, a):
        rate = self.rate
        return a.add(od.Distance(lambda gap: -rate * gap.to(a.wide).abs()[None]))

class Liar(Mine):
    facts = od.Facts(paper=("press2022alibi",), relative=False, cross=True)

class Other:
    pass
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.fixture
def few(monkeypatch):
    """Two contracts instead of all, so that a test takes no time."""
    from ordinate import testing

    chosen = {"relative": testing.CONTRACTS["relative"], "acts": testing.CONTRACTS["acts"]}
    run = testing.run
    monkeypatch.setattr(testing, "CONTRACTS", chosen)
    monkeypatch.setattr(
        testing, "run", lambda subjects, **how: run(subjects, contracts=tuple(chosen), **how)
    )


def test_a_method_that_keeps_the_contract(capsys, mine, few):
    assert main(["check", f"{mine}:Mine"]) == 0
    said = capsys.readouterr().out
    assert "relative  pass" in said
    assert "Mine in float32 and float64: 4 pass, 0 fail, 0 skip" in said


def test_a_method_that_breaks_it(capsys, mine, few):
    assert main(["check", f"{mine}:Liar"]) == 1
    said = capsys.readouterr().out
    assert "relative  fail" in said
    assert "2 fail" in said


def test_options(capsys, mine, few):
    assert main(["check", f"{mine}:Mine", "rate=0.5"]) == 0
    assert "Mine:rate=0.5 in" in capsys.readouterr().out


def test_a_skipped_contract_says_why(capsys):
    from ordinate.cli.check import report
    from ordinate.cli.output import console

    results = [
        Result("Mine", "cross", "float32", "skip", "it means nothing between two sequences"),
        Result("Mine", "acts", "float32", "pass"),
    ]
    assert report(console(), results) == 0
    said = capsys.readouterr().out
    assert "it means nothing between two sequences" in said
    assert "1 pass, 0 fail, 1 skip" in said


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("{mine}", [], "write a file and a class, as mine.py:Mine"),
        ("{mine}:", [], "write a file and a class"),
        ("{mine}:Mien", [], "has no 'Mien' (did you mean Mine?); it has Mine, Liar"),
        ("{mine}:Other", [], "a method is a subclass of ordinate.Position"),
        ("{mine}e:Mine", [], "there is no file"),
        ("{folder}:Mine", [], "is a directory"),
        ("{mine}:Mine", ["ratte=3"], "has no option 'ratte' (did you mean rate?); it takes rate"),
        ("{mine}:Mine", ["rate=x"], "rate is a number, got 'x'"),
        ("{mine}:Mine", ["rate"], "write name=value"),
        ("{mine}:Mine", ["heads=3"], "heads is a size"),
        ("{mine}:Mine", ["--device", "nowhere"], "cannot use the device 'nowhere'"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, mine, target, options, sentence):
    assert main(["check", target.format(mine=mine, folder=mine.parent), *options]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\ny = x / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 1: invalid syntax"),
        ("import no_such_package\n", "line 1: ModuleNotFoundError"),
        ("raise SystemExit(0)\n", "line 1: SystemExit"),
        ("", "it has no subclass of ordinate.Position"),
    ],
)
def test_a_file_that_does_not_import_is_one_sentence_with_its_line(
    capsys, tmp_path, source, sentence
):
    path = tmp_path / "broken.py"
    path.write_text(source)
    assert main(["check", f"{path}:Mine"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
