"""Every contract on every method; the variants in both precisions only in make test-all."""

import inspect

import pytest
import torch

from ordinate.methods import INDEX, find
from ordinate.names import SIZES, parse
from ordinate.testing import run, subjects

PLAIN = {s.name for s in subjects(variants=False)}


def failures(subject, *dtypes):
    results = list(run([subject], dtypes=dtypes))
    assert any(r.verdict == "pass" for r in results)
    return [f"{r.contract} ({r.dtype}): {r.why}" for r in results if r.verdict == "fail"]


@pytest.mark.parametrize("subject", subjects(), ids=lambda s: s.name)
def test_keeps_every_contract(subject):
    assert failures(subject, torch.float64) == []


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(s, marks=() if s.name in PLAIN else pytest.mark.slow, id=s.name)
        for s in subjects()
    ],
)
def test_keeps_every_contract_in_float32(subject):
    assert failures(subject, torch.float32) == []


@pytest.mark.parametrize(
    "chain",
    ["rope+alibi", "learned+t5", "shaw+fox", "rope+deberta:clip=4", "alibi:on=0", "xpos+cope"],
)
def test_chains_keep_every_contract(chain):
    (subject,) = subjects(chain)
    assert failures(subject, torch.float64) == []


@pytest.mark.parametrize("name", INDEX)
def test_every_option_is_in_a_variant(name):
    cls = find(name)
    tried = set().union(*(parse(v if v[0] == "(" else f":{v}")[2] for v in cls.variants), ["of"])
    # Rows are a size: more of them change nothing.
    assert set(inspect.signature(cls).parameters) - {*SIZES, "rows"} <= tried
