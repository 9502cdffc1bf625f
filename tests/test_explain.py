import pytest
import torch

import ordinate as od


def explained(q, k, v, name, **options):
    position = od.make(name, heads=8, head_dim=64)
    return od.explain(od.problem(q, k, v, position, **options))


@pytest.fixture
def q():
    return torch.randn(1, 8, 128, 64)


def test_the_first_line_is_the_problem_in_order(q):
    first, *engines = explained(q, q[:, :2], q[:, :2], "rope+alibi", causal=True).splitlines()
    assert first == (
        "batch 1, 8 heads of 64 on 2 for keys, 128 queries × 128 keys, float32 on cpu; causal: "
        "turn q and k by position (half pairs) → q·k × 0.125 → + a bias per distance → "
        "softmax → values"
    )
    assert engines == ["→ sdpa       runs it", "  reference  could run it"]


def test_a_refusal_is_a_sentence(q):
    _, sdpa, reference = explained(q, q, q, "shaw").splitlines()
    assert sdpa.startswith("× sdpa       refuses: torch's kernel cannot")
    assert reference == "→ reference  runs it"


def test_a_small_problem_says_why_the_kernel_waits(q):
    _, sdpa, _ = explained(q[:, :, :4], q, q, "none", causal=True).splitlines()
    assert sdpa == "  sdpa       could run it; the reference is faster this small"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"mask": od.Mask(window=8, current=False)}, "window 8, a token does not see itself"),
        ({"mask": torch.ones(1, 128, dtype=torch.bool)}, "padding"),
        ({"mask": torch.ones(1, 1, 128, 128, dtype=torch.bool)}, "a mask"),
        ({"cu_seqlens": torch.tensor([0, 60, 128])}, "documents"),
        ({"position_ids": torch.arange(128) * 2}, "positions as given"),
        (
            {"position_ids": torch.arange(128), "key_position_ids": torch.arange(128)},
            "two sequences",
        ),
        ({"dropout": 0.1}, "softmax → dropout 0.1 → values"),
        ({"scale": 1.0}, "q·k × 1 →"),
    ],
)
def test_who_sees_whom(q, how, words):
    assert words in explained(q, q, q, "none", **how).splitlines()[0]


@pytest.mark.parametrize(
    ("name", "causal", "words"),
    [
        ("shaw", False, "+ query · vector per distance → softmax → values + a vector per distance"),
        ("da", False, "factor per distance"),
        ("huang3", False, "a rule of q and k × 0.125"),
        ("stick-breaking", True, "stick-breaking, nearest key first"),
        ("xpos", True, "turn q and k by position (interleaved pairs with a gain)"),
    ],
)
def test_every_kind_of_step(q, name, causal, words):
    assert words in explained(q, q, q, name, causal=causal)
