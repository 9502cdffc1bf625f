"""The sdpa engine: exact where it does not refuse, refusals as sentences, no N × N."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import ordinate as od

N = 2048


def qkv(n=N, b=1, h=4, d=16, m=None, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((b, h, n, d), (b, h, m or n, d), (b, h, m or n, d))
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def largest_allocation(call):
    """The largest single block of memory that a call takes, in bytes."""
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        call()
    return max(event.cpu_memory_usage for event in log.events())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["alibi", "t5", "relative", "rope+alibi"])
def test_a_distance_bias_is_never_a_matrix(name, causal):
    q, k, v = qkv()
    position = od.make(name, heads=4, head_dim=16)
    with torch.no_grad():
        took = largest_allocation(
            lambda: od.attention(q, k, v, position, causal=causal, backend="sdpa")
        )
    assert took < N * N * 4 / 8
    with torch.no_grad():
        dense = largest_allocation(
            lambda: od.attention(q, k, v, position, causal=causal, backend="reference")
        )
    assert dense >= N * N * 4, "the measurement would not see a matrix"


@pytest.mark.parametrize("n", [1, 2, 17, 63, 64, 65, 255, 256, 257, 300])
@pytest.mark.parametrize("name", ["none", "rope", "alibi", "t5", "alibi:sides=split", "rope+t5"])
def test_odd_lengths_and_offsets_equal_the_reference(name, n):
    position = od.make(name, heads=4, head_dim=16).double()
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    for causal in (False, True):
        for m in (n, n + 30):
            q, k, v = qkv(n, b=2, m=m, dtype=torch.float64)
            with torch.no_grad():
                ours, want = (
                    od.attention(q, k, v, position, causal=causal, backend=backend)
                    for backend in ("sdpa", "reference")
                )
            torch.testing.assert_close(ours, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("window", [1, 5, 300])
def test_windows_equal_the_reference(window):
    q, k, v = qkv(300, dtype=torch.float64)
    for name in ("alibi", "rope", "none"):
        for causal in (False, True):
            mask = od.Mask(window=window)
            ours, want = (
                od.attention(
                    q, k, v, od.make(name, heads=4, head_dim=16), mask=mask, causal=causal,
                    backend=backend,
                )
                for backend in ("sdpa", "reference")
            )  # fmt: skip
            torch.testing.assert_close(ours, want, rtol=1e-10, atol=1e-12)


def test_gradients_of_q_k_v_through_a_distance_bias():
    position = od.make("alibi", heads=4)
    grads = []
    for backend in ("sdpa", "reference"):
        inputs = [x.requires_grad_() for x in qkv(70, dtype=torch.float64)]
        od.attention(*inputs, position, causal=True, backend=backend).square().sum().backward()
        grads.append([x.grad for x in inputs])
    for ours, want in zip(*grads, strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("t5", {}, "gradient of a Distance term"),
        ("shaw", {}, "cannot replace the values"),
        ("shaw:values=false", {}, "no place for a Lookup term"),
        ("stick-breaking", {}, "cannot replace the norm"),
        ("da", {}, "no place for a Local term"),
        ("alibi", {"dropout": 0.1}, "dropout"),
        ("alibi", {"mask": torch.ones(1, 100, dtype=torch.bool)}, "matrix of all pairs"),
        ("alibi", {"position_ids": torch.arange(100) * 2}, "unit steps"),
    ],
)
def test_refuses_in_a_sentence_and_never_falls_back(name, options, sentence):
    q, k, v = qkv(100)
    position = od.make(name, heads=4, head_dim=16)
    with pytest.raises(ValueError, match=f"the sdpa backend refuses: .*{sentence}"):
        od.attention(q, k, v, position, backend="sdpa", **options)
    assert od.attention(q, k, v, position, **options).shape == q.shape


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
def test_a_query_that_sees_nothing_gets_zero(backend):
    q, k, v = qkv(6)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 2, :] = False
    for name in ("none", "rope"):
        out = od.attention(q, k, v, od.make(name, head_dim=16), mask=mask, backend=backend)
        assert out[:, :, 2].eq(0).all() and out.isfinite().all()


def test_auto_takes_the_fused_kernel_for_long_texts_only():
    q, k, v = qkv(100)
    a = od.problem(q, k, v, "rope")
    assert od.backends.choose(a) == "sdpa"
    assert od.backends.choose(od.problem(q, k, v, od.make("shaw", head_dim=16))) == "reference"
    short = [x[:, :, :32] for x in (q, k, v)]
    assert od.backends.choose(od.problem(*short, "rope")) == "reference"


def test_an_unknown_engine_is_refused():
    q, k, v = qkv(4)
    with pytest.raises(ValueError, match=r"no backend is called 'flash': choose auto, sdpa, ref"):
        od.attention(q, k, v, backend="flash")
