"""python -m ordinate.testing, as it is typed; it runs where there is no pytest."""

import subprocess
import sys

import pytest

import ordinate.testing.__main__ as command


def typed(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["ordinate.testing", *arguments])
    return command.main()


def test_it_needs_no_pytest_and_runs_in_several_processes():
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "import runpy; sys.argv = ['x', 'none', 'rope', '--contract', 'twice', '--jobs', '2']\n"
        "if __name__ == '__main__': runpy.run_module('ordinate.testing', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["none", "2", "pass", "0", "skip", "0", "fail"]
    assert "5 methods and variants × 1 contracts in float32 and float64 on cpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ropee"], "no method is called 'ropee' (did you mean rope?)"),
        (["rope", "--device", "cuda"], "this torch sees no CUDA device"),
        (["rope", "--contract", "none such"], "invalid choice"),
        (["rope", "--jobs", "0"], "--jobs is at least 1, got 0"),
    ],
)
def test_wrong_arguments_get_a_sentence(monkeypatch, capsys, arguments, sentence):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        typed(monkeypatch, *arguments)
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_ctrl_c_is_one_word(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "results", interrupted)
    assert typed(monkeypatch, "none") == 130
    assert capsys.readouterr().err == "stopped\n"
