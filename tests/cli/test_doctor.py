import pytest
import torch

from ordinate.backends import ENGINES
from ordinate.cli import doctor, main


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(doctor, "LENGTH", 12)
    monkeypatch.setattr(doctor, "PROBLEMS", (("none", True), ("shaw", False), ("swin", False)))


def test_a_healthy_machine(capsys, small):
    assert main(["doctor", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert torch.__version__ in said
    assert "Every engine that does not refuse is right." in said
    assert "refuses" in said
    assert all(name in said for name in ENGINES)


def test_a_wrong_engine_is_found(capsys, small, monkeypatch):
    class Wrong:
        @staticmethod
        def refuses(a):
            return ""

        @staticmethod
        def run(a):
            return ENGINES["reference"].run(a) * 1.01

    monkeypatch.setitem(ENGINES, "wrong", Wrong)
    assert main(["doctor", "--device", "cpu"]) == 1
    said = capsys.readouterr().out
    assert said.count("WRONG") == 3
    assert "3 wrong." in said
