import os
import signal
import subprocess
import sys
import time

import pytest

from ordinate.cli import COMMANDS, dispatch, main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_front_page_names_every_command_with_an_example(capsys, arguments):
    assert main(arguments) == 0
    said = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"\n{name}" in said
        assert command.example in said
    assert max(map(len, said.splitlines())) <= 80


def test_version(capsys):
    import ordinate

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ordinate {ordinate.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(capsys, name):
    assert main([name, "--help"]) == 0
    assert COMMANDS[name].example in capsys.readouterr().out
    assert main(["help", name]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lst"], "there is no command 'lst' (did you mean list?)"),
        (["-x"], "there is no command '-x'"),
        (["show", "rop"], "no method is called 'rop' (did you mean rope?)"),
        (["show", ""], "write names joined by +"),
        (["show", "rope:bse=3"], "rope has no option 'bse' (did you mean base?)"),
        (["show", "rope+swin"], "parts for the same space"),
        (["show", "rope", "--length", "0"], "--length is between 4 and 1024, got 0"),
        (["show", "rope", "--layer", "-1"], "--layer counts from 0"),
        (["show", "rope", "--out", "x.pdf"], "--out ends in .png, .svg, .html, got .pdf"),
        (["show", "rope", "--out", "x"], "got no ending"),
        (["show", "rope", "--out", "no/such/x.png"], "there is no directory no/such"),
        (["explain", "ropee"], "did you mean rope?"),
        (["explain", "rope", "--length", "0"], "--length is at least 1"),
        (["cite", "alibii"], "did you mean alibi?"),
        (["list", "--family", "bais"], "there is no family 'bais' (did you mean bias?)"),
        (["compare", "ropee"], "did you mean rope?"),
        (["compare", "--preset", "quik"], "no preset is called 'quik' (did you mean quick?)"),
        (["compare", "--seeds", "0"], "seeds is to be greater than or equal to 1, got 0"),
        (["runs", "list", "--folder", "no/such"], "there are no runs in no/such"),
        (["runs", "export", "x.xlsx"], "a table ends in .csv, .parquet, .json, got .xlsx"),
        (["report", "--out", "x.pdf"], "--out ends in .html, got x.pdf"),
        (["doctor", "--device", "nowhere"], "cannot use the device 'nowhere'"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, arguments, sentence):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("ordinate: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "rope", "--lenght", "3"], ["list", "--x"]]
)
def test_a_wrong_option_is_shown_with_the_way_to_the_help(capsys, arguments):
    assert main(arguments) == 2
    assert f"ordinate {arguments[0]} --help" in capsys.readouterr().err


def test_a_directory_is_no_file(capsys, tmp_path):
    (tmp_path / "x.png").mkdir()
    assert main(["show", "rope", "--out", str(tmp_path / "x.png")]) == 2
    assert "is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "ordinate: interrupted\n"),
        (
            PermissionError(13, "Permission denied", "x.png"),
            1,
            "ordinate: x.png: Permission denied\n",
        ),
        (
            RuntimeError("no memory\nand more"),
            1,
            "ordinate: RuntimeError: no memory (ORDINATE_TRACE",
        ),
    ],
)
def test_what_goes_wrong_inside_is_one_sentence_too(capsys, monkeypatch, error, code, sentence):
    def broken(arguments):
        raise error

    monkeypatch.setattr("ordinate.cli.dispatch", broken)
    monkeypatch.delenv("ORDINATE_TRACEBACK", raising=False)
    assert main(["list"]) == code
    assert capsys.readouterr().err.startswith(sentence)


def test_a_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setattr("ordinate.cli.dispatch", lambda arguments: 1 / 0)
    monkeypatch.setenv("ORDINATE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main([])


def test_a_reader_that_leaves_is_no_error():
    ordinate = subprocess.Popen(
        [sys.executable, "-m", "ordinate", "cite", "rope"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ordinate.stdout.close()
    assert ordinate.wait() != 0
    assert ordinate.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_an_interrupt_is_one_line():
    ordinate = subprocess.Popen(
        [sys.executable, "-c", "import time, ordinate.cli as c; print(flush=True)\n"
         "c.dispatch = lambda a: time.sleep(60); raise SystemExit(c.main([]))"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    ordinate.stdout.readline()
    time.sleep(0.2)
    ordinate.send_signal(signal.SIGINT)
    _, said = ordinate.communicate(timeout=30)
    assert (ordinate.returncode, said) == (130, b"ordinate: interrupted\n")


def test_nothing_to_dispatch_but_a_page(capsys):
    assert dispatch([]) == 0
    assert "rope+alibi" in capsys.readouterr().out
