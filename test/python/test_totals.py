"""Weights that are divided by a total of their row, without a softmax: the scores of the total are computed again, not
stored."""

import re

import pytest

import attn

torch = pytest.importorskip("torch")
from formula_checks import assert_equals_formula, stored_whole  # noqa: E402

SCORE = "s[h, m, n] = sum[d](q[h, m, d] * k[h, n, d]) / sqrt(D)"
DOT = "s[h, m, n] = sum[d](q[h, m, d] * k[h, n, d])"  # could be a projection, if its factors had not a head in common
POSITIVE = "p[h, m, n] = max(s[h, m, n], 0.0) * max(s[h, m, n], 0.0)"


def scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def dots(q, k):
    return q @ k.mT


def squared(scores):
    return scores**2 + 0.5 * scores + 1


def decay(q, k):
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(k.shape[1])
    return 0.9 ** distance.clamp(min=0).double()


def over(weights, totals):
    return weights / totals(weights)


def added(weights):
    return weights.sum(-1, keepdim=True)


CASES = {
    "squares of a rectifier": (
        f"""{SCORE}
            {POSITIVE}
            r[h, m] = sum[n](p[h, m, n])
            w[h, m, n] = p[h, m, n] / (r[h, m] + 0.5)
            out[h, m, e] = sum[n](w[h, m, n] * v[h, n, e])""",
        lambda q, k, v: over(scores(q, k).relu() ** 2, lambda p: added(p) + 0.5) @ v,
    ),
    "a quotient of two sums": (
        f"""{SCORE}
            {POSITIVE}
            out[h, m, e] = sum[n](p[h, m, n] * v[h, n, e]) / (sum[n](p[h, m, n]) + 0.5)""",
        lambda q, k, v: over(scores(q, k).relu() ** 2, lambda p: added(p) + 0.5) @ v,
    ),
    "the size of a sum, 1 at least": (
        f"""{SCORE}
            r[h, m] = max(abs(sum[n](s[h, m, n])), 1.0)
            out[h, m, e] = sum[n](s[h, m, n] / r[h, m] * v[h, n, e])""",
        lambda q, k, v: over(scores(q, k), lambda s: added(s).abs().clamp(min=1)) @ v,
    ),
    "a row's length": (
        f"""{SCORE}
            length[h, m] = sqrt(sum[n](s[h, m, n] ** 2) + 0.1)
            out[h, m, e] = sum[n](s[h, m, n] / length[h, m] * v[h, n, e])""",
        lambda q, k, v: over(scores(q, k), lambda s: (added(s**2) + 0.1).sqrt()) @ v,
    ),
    "a softmax by hand": (
        f"""{SCORE}
            r[h, m] = sum[n](exp(s[h, m, n]))
            w[h, m, n] = exp(s[h, m, n]) / r[h, m]
            out[h, m, e] = sum[n](w[h, m, n] * v[h, n, e])""",
        lambda q, k, v: scores(q, k).softmax(-1) @ v,
    ),
    "a causal softmax by hand": (
        f"""{SCORE}
            p[h, m, n] = select(n <= m, exp(s[h, m, n]), 0.0)
            w[h, m, n] = p[h, m, n] / (sum[j](p[h, m, j]) + 0.5)
            out[h, m, e] = sum[n](w[h, m, n] * v[h, n, e])""",
        lambda q, k, v: over(scores(q, k).exp().tril(), lambda p: added(p) + 0.5) @ v,
    ),
    "totals of the keys before": (
        f"""{SCORE}
            r[h, m] = sum[n](sigmoid(s[h, m, n]) where n <= m)
            out[h, m, e] = sum[n](sigmoid(s[h, m, n]) / (r[h, m] + 0.5) * v[h, n, e] where n <= m)""",
        lambda q, k, v: over(scores(q, k).sigmoid().tril(), lambda p: added(p) + 0.5) @ v,
    ),
    "a polynomial of dot products": (
        f"""{DOT}
            p[h, m, n] = s[h, m, n] ** 2 + 0.5 * s[h, m, n] + 1
            out[h, m, e] = sum[n](p[h, m, n] * v[h, n, e]) / sum[n](p[h, m, n])""",
        lambda q, k, v: over(squared(dots(q, k)), added) @ v,
    ),
    "dot products": (
        f"""{DOT}
            out[h, m, e] = sum[n](s[h, m, n] * v[h, n, e]) / (sum[n](s[h, m, n]) ** 2 + 100)""",
        lambda q, k, v: over(dots(q, k), lambda s: added(s) ** 2 + 100) @ v,
    ),
    "sizes of the keys before": (
        f"""{DOT}
            r[h, m] = sum[n](abs(s[h, m, n]) where n <= m)
            out[h, m, e] = sum[n](s[h, m, n] * v[h, n, e] where n <= m) / max(r[h, m], 1.0)""",
        lambda q, k, v: over(dots(q, k).tril(), lambda s: added(s.abs()).clamp(min=1)) @ v,
    ),
    "decay, and the size of a sum": (
        """s[h, m, n] = sum[d](q[h, m, d] * k[h, n, d]) * 0.9 ** f32(m - n)
            r[h, m] = sum[n](s[h, m, n] where n <= m)
            w[h, m, n] = s[h, m, n] / max(abs(r[h, m]), 1.0)
            out[h, m, e] = sum[n](w[h, m, n] * v[h, n, e] where n <= m)""",
        lambda q, k, v: over(dots(q, k).tril() * decay(q, k), lambda s: added(s).abs().clamp(min=1)) @ v,
    ),
    "two totals": (
        f"""{SCORE}
            mean[h, m] = sum[n](s[h, m, n]) / N
            square[h, m] = sum[n](s[h, m, n] * s[h, m, n]) / N
            w[h, m, n] = (s[h, m, n] - mean[h, m]) / sqrt(square[h, m] + 0.1)
            out[h, m, e] = sum[n](w[h, m, n] * v[h, n, e])""",
        lambda q, k, v: (scores(q, k) - scores(q, k).mean(-1, keepdim=True))
        / ((scores(q, k) ** 2).mean(-1, keepdim=True) + 0.1).sqrt()
        @ v,
    ),
}


def compiled(name):
    statements, formula = CASES[name]
    parameters = "q: f32[H, M, D], k: f32[H, N, D], v: f32[H, N, E]"
    return attn.compile(f"attention a({parameters}) {{\n{statements}\nreturn out }}"), formula


@pytest.mark.parametrize("rows, keys", [(1, 1), (1, 130), (7, 65), (65, 7), (130, 300)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_result_and_gradients(name, rows, keys):
    kernel, formula = compiled(name)
    torch.manual_seed(rows * keys)
    tensors = [torch.randn(2, size, width) for size, width in ((rows, 12), (keys, 12), (keys, 9))]
    # Sums of numbers of both signs may be small beside what they are made of.
    assert_equals_formula(kernel, formula, tensors, tolerance=4e-6, gradient_tolerance=2e-5, noise=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_no_key_at_all(name):
    kernel, _ = compiled(name)
    out = kernel(torch.randn(2, 3, 4), torch.randn(2, 0, 4), torch.randn(2, 0, 5))
    assert out.shape == (2, 3, 5) and (out.nan_to_num() == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_pairs_is_stored(name):
    """But blocks of rows of the gradient, which the plan names."""
    kernel, _ = compiled(name)
    assert stored_whole(kernel, "m: M", "n: N") == []


@pytest.mark.parametrize("name", CASES)
def test_gradients_share_blocks_of_pairs(name):
    """Totals that scores are divided by come before the blocks: their own gradient is a sum of a row."""
    kernel, _ = compiled(name)
    plan = kernel.grad()[1].emit("plan")
    assert re.search("^blocks of h, m.*grad_k added, grad_q", plan, re.MULTILINE)
    assert "matrix grad_q: " in plan and "matrix grad_k: " in plan
    assert "matrix grad_v: " in plan or "sum grad_v: " in plan  # where the gradient of linear scores needs no scores


def test_a_weight_that_is_returned_is_stored():
    kernel = attn.compile(
        f"""attention a(q: f32[H, M, D], k: f32[H, N, D], v: f32[H, N, E]) {{
              {SCORE}
              r[h, m] = sum[n](s[h, m, n] ** 2)
              out[h, m, e] = sum[n](s[h, m, n] / r[h, m] * v[h, n, e])
              return out, s }}"""
    )
    q, k, v = (torch.randn(2, 9, 8, dtype=torch.float32) for _ in range(3))
    out, stored = kernel(q, k, v)
    wanted = scores(q.double(), k.double())
    torch.testing.assert_close(stored.double(), wanted, rtol=0, atol=2e-6)
    torch.testing.assert_close(out.double(), wanted / added(wanted**2) @ v.double(), rtol=0, atol=4e-6)
