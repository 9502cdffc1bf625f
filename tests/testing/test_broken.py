"""The contract can fail: each deliberately broken method is caught, by the contract named."""

import pytest
import torch

from ordinate.testing import CONTRACTS, check, of
from testing.broken import BROKEN, Sound


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_sound_method_passes(contract):
    (subject,) = of(Sound)
    result = check(subject, contract, torch.float64)
    assert result.verdict in ("pass", "skip"), result.why


@pytest.mark.parametrize(("method", "contract"), BROKEN, ids=[m.__name__ for m, _ in BROKEN])
def test_a_broken_method_is_caught(method, contract):
    subject = of(method)[-1 if "variants" in vars(method) else 0]
    result = check(subject, contract, torch.float64)
    assert result.verdict == "fail", f"{contract} passes: {method.__doc__}"
    # By what it demands, not by tripping over it.
    assert not result.why.startswith(("TypeError", "AttributeError", "IndexError")), result.why


def test_nearly_every_contract_has_a_method_that_breaks_it():
    assert len(BROKEN) >= 15
    unbroken = set(CONTRACTS) - {contract for _, contract in BROKEN}
    # What these demand is true of every method today, by how the core is made.
    assert unbroken <= {"every engine", "gradients alone", "checkpointing", "axes"}, unbroken
