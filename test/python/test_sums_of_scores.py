"""Sums over keys whose weights have no softmax: scores written where they are used, and sums that are a part of a formula."""

import re

import pytest

import attn

torch = pytest.importorskip("torch")
from formula_checks import assert_equals_formula, random_inputs, stored_whole  # noqa: E402

HEADS = "q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E]"


def dots(q, k):
    return q @ k.transpose(-1, -2)


def causal(scores):
    return scores.tril()


def gated(q, k, v, g):
    return torch.sigmoid(dots(q, k)) @ v * torch.sigmoid(g)


def decaying(x, step, b, c):
    total = step.cumsum(1)
    decay = (total[:, :, None] - total[:, None]).exp()  # b, m, n, h
    weights = dots(c, b)[..., None] * decay.where(torch.ones(decay.shape[1:3]).tril()[..., None] > 0, 0.0)
    return torch.einsum("bmnh,bnhp->bmhp", weights, x)


def delta(q, k, v, beta):
    beta = beta[..., None]
    u = beta * v - causal(dots(k, k)).tril(-1) * beta @ (beta * v)
    return causal(dots(q, k)) @ u


def mixed(x, w, p, table):
    hidden = torch.tanh(torch.einsum("md,cud->mcu", x, w))
    return torch.einsum("mc,mct->mt", p, torch.softmax(hidden @ table.T, -1))


def layered(q, k, v, first, second, shift):
    scores = dots(q, k)
    hidden = torch.tanh(scores[..., None] * first + shift)
    return torch.softmax(scores + hidden @ second, -1) @ v


def cut_and_squared(q, k, v):
    scores = dots(q, k).clamp(max=0.4)
    return scores**2 @ v + (torch.softmax(scores, -1) ** 2).sum(-1, keepdim=True)


def balance(weights, steps):
    for _ in range(steps):
        weights = weights / weights.sum(-1, keepdim=True)
        weights = weights / weights.sum(-2, keepdim=True)
    return weights


CASES = {
    "layers of a score": (
        """attention a(q: f32[M, D], k: f32[N, D], v: f32[N, E], w1: f32[U], w2: f32[U], b1: f32[U]) {
             score[m, n] = sum[d](q[m, d] * k[n, d])
             layer[m, n] = sum[u](w2[u] * tanh(w1[u] * score[m, n] + b1[u]))
             weight[m, n] = softmax[n](score[m, n] + layer[m, n])
             out[m, e] = sum[n](weight[m, n] * v[n, e])
             return out }""",
        layered,
    ),
    "squares of scores beside squares of weights": (
        """attention a(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
             score[m, n] = min(sum[d](q[m, d] * k[n, d]), 0.4)
             weight[m, n] = softmax[n](score[m, n])
             out[m, e] = sum[n](score[m, n] ** 2 * v[n, e]) + sum[n](weight[m, n] ** 2)
             return out }""",
        cut_and_squared,
    ),
    "a score in the sum": (
        f"""attention a({HEADS}) {{
              out[b, h, m: M, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e])
              return out }}""",
        lambda q, k, v: dots(q, k) @ v,
    ),
    "a score in a part of a row's keys": (
        f"""attention a({HEADS}) {{
              out[b, h, m: M, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e] where n <= m)
             return out }}""",
        lambda q, k, v: causal(dots(q, k)) @ v,
    ),
    "a gate": (
        f"""attention a({HEADS}, g: f32[B, H, M, E]) {{
              w[b, h, m, n] = sigmoid(sum[d](q[b, h, m, d] * k[b, h, n, d]))
              out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e]) * sigmoid(g[b, h, m, e])
             return out }}""",
        gated,
    ),
    "decay": (
        """attention ssd(x: f32[B, N, H, P], step: f32[B, N, H], k: f32[B, N, D], q: f32[B, N, D]) {
             total[b, n, h] = sum[j](step[b, j, h] where j <= n)
             y[b, m, h, p] = sum[n: N](sum[d](q[b, m, d] * k[b, n, d]) * exp(total[b, m, h] - total[b, n, h]) * x[b, n, h, p]
                                       where n <= m)
             out[b, m, h, p] = 2 * y[b, m, h, p]
             return out }""",
        lambda x, step, k, q: 2 * decaying(x, step, k, q),
    ),
    "delta rule": (
        """attention delta(q: f32[B, H, N, D], k: f32[B, H, N, D], v: f32[B, H, N, E], beta: f32[B, H, N]) {
             u[b, h, m: N, e] = beta[b, h, m] * v[b, h, m, e] - sum[n: N](beta[b, h, m] * sum[d](k[b, h, m, d] * k[b, h, n, d]) *
                                                                          beta[b, h, n] * v[b, h, n, e] where n < m)
             out[b, h, m: N, e] = sum[n: N](sum[d](q[b, h, m, d] * k[b, h, n, d]) * u[b, h, n, e] where n <= m)
             return out }""",
        delta,
    ),
    "a factor before a sum": (
        """attention a(k: f32[B, N, D], v: f32[B, N, E], beta: f32[B, N]) {
             dot[b, m: N, n: N] = sum[d](k[b, m, d] * k[b, n, d])
             out[b, m, e] = beta[b, m] * sum[n](dot[b, m, n] * beta[b, n] * v[b, n, e] where n < m)
             return out }""",
        lambda k, v, beta: beta[..., None] * (dots(k, k).tril(-1) @ (beta[..., None] * v)),
    ),
    "a mixture of softmaxes": (
        """attention mixed(x: f32[M, D], w: f32[C, U, D], p: f32[M, C], table: f32[V, U]) {
             hidden[m, c, u] = tanh(sum[d](x[m, d] * w[c, u, d]))
             logit[m, c, t] = sum[u](hidden[m, c, u] * table[t, u])
             weight[m, c, t] = softmax[t](logit[m, c, t])
             out[m, t] = sum[c](p[m, c] * weight[m, c, t])
             return out }""",
        mixed,
    ),
    "a row's sum in a quotient": (
        """attention a(q: f32[H, M, D], state: f32[H, D, E], z: f32[H, D]) {
             out[h, m, e] = sum[d](q[h, m, d] * state[h, d, e]) / (sum[d](q[h, m, d] * z[h, d]) ** 2 + 1)
             return out }""",
        lambda q, state, z: q @ state / ((q @ z[..., None]) ** 2 + 1),
    ),
    "rows and columns in turns": (
        f"""attention sinkhorn({HEADS}) {{
              w[b, h, m, n] = exp(sum[d](q[b, h, m, d] * k[b, h, n, d]))
              row[b, h, m] = sum[n](w[b, h, m, n])
              column[b, h, n] = sum[m](w[b, h, m, n] / row[b, h, m])
              row2[b, h, m] = sum[n](w[b, h, m, n] / row[b, h, m] / column[b, h, n])
              column2[b, h, n] = sum[m](w[b, h, m, n] / row[b, h, m] / column[b, h, n] / row2[b, h, m])
              out[b, h, m, e] = sum[n](w[b, h, m, n] / row[b, h, m] / column[b, h, n] / row2[b, h, m] / column2[b, h, n] * v[b, h, n, e])
             return out }}""",
        lambda q, k, v: balance(torch.exp(dots(q, k)), 2) @ v,
    ),
}


@pytest.mark.parametrize("sizes", [1, 7, 65], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_sum_and_gradients(name, sizes):
    source, formula = CASES[name]
    kernel = attn.compile(source)
    torch.manual_seed(sizes)
    small = {"B": 2, "H": 2, "C": 2, "D": 5, "E": 3, "P": 3, "U": 6}
    tensors = [tensor / 4 for tensor in random_inputs(kernel, small, sizes)]
    assert_equals_formula(kernel, formula, tensors, tolerance=2e-6, gradient_tolerance=1e-5, noise=1e-7)


def test_what_is_written_with_a_name_and_without_has_the_same_backward_pass():
    inline = attn.compile(f"""attention a({HEADS}) {{
      out[b, h, m: M, e] = sum[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) * v[b, h, n, e] where n <= m)
             return out }}""")
    named = attn.compile(f"""attention a({HEADS}) {{
      out_sum[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h, n, d])
      out[b, h, m: M, e] = sum[n](out_sum[b, h, m, n] * v[b, h, n, e] where n <= m)
             return out }}""")
    assert inline.grad()[1].emit("plan") == named.grad()[1].emit("plan")


@pytest.mark.parametrize("name", ["delta rule", "a factor before a sum"])
def test_no_matrix_of_pairs_is_stored_whole(name):
    """Not even by the backward pass, which stores blocks of rows (`attn.pairs`)."""
    assert stored_whole(attn.compile(CASES[name][0]), "m: N", "n: N") == []


BALANCED = """attention balanced(w: f32[M, N]) {
  row[m] = sum[n](w[m, n])
  column[n] = sum[m](w[m, n] / row[m])
  row2[m] = sum[n](w[m, n] / row[m] / column[n])
  column2[n] = sum[m](w[m, n] / row[m] / column[n] / row2[m])
  out[m, n] = w[m, n] / row[m] / column[n] / row2[m] / column2[n]
  return out
}"""


@pytest.mark.parametrize("rows, keys", [(1, 1), (7, 65), (300, 63)])
def test_a_total_of_a_row_is_not_summed_again_for_each_column(rows, keys):
    kernel = attn.compile(BALANCED)
    weights = torch.rand(rows, keys) + 0.1
    assert_equals_formula(kernel, lambda w: balance(w, 2), [weights], tolerance=2e-6, gradient_tolerance=1e-5, noise=1e-7)
    for each in (kernel, *kernel.grad()):
        for statement in re.split("attn.tensor \"", each.emit("simplified"))[1:]:
            assert "attn.reduce" not in statement.partition("attn.reduce")[2], statement


def test_a_gate_leaves_a_sum_its_tiles():
    source, _ = CASES["a gate"]
    assert "sum out_sum: split" in attn.compile(source).emit("plan")


@pytest.mark.parametrize("first, weight", [("exp({})", "a60[m, n]"), ("{}", "exp(a60[m, n])"), ("{}", "softmax[n](a60[m, n] where n <= m)")])
@pytest.mark.parametrize("step", ["{0} + {0} * 0.5", "{0} - ({0} + f32(m)) * scale", "select(m > 3, {0}, {0} * 0.5) + {0}"])
def test_a_part_that_is_used_twice_many_times_over_is_looked_at_once(first, weight, step):
    """As often as there are ways to it this would take years."""
    steps = "\n".join(f"a{i + 1}[m, n] = {step.format(f'a{i}[m, n]')}" for i in range(60))
    kernel = attn.compile(
        f"""attention deep(q: f32[M, D], k: f32[N, D], v: f32[N, E], scale: f32) {{
              a0[m, n] = {first.format("sum[d](q[m, d] * k[n, d])")}
              {steps}
              weight[m, n] = {weight}
              out[m, e] = sum[n](weight[m, n] * v[n, e] where n <= m)
              return out }}""",
        lazy=True,
    )
    for each in (kernel, *kernel.grad()):
        assert "predicted" in each.emit("plan")
