"""What stands around attention in a model: normalised rows, projections, gates, layers of hidden units. The columns of a
product have their rows in common, which are normalised once; hidden units are stored, as no scores are."""

import re

import pytest

import attn

torch = pytest.importorskip("torch")
from formula_checks import assert_equals_formula, random_inputs  # noqa: E402
from torch.nn import functional  # noqa: E402

WEIGHTS = "wq: f32[H, C, D], wk: f32[H, C, D], wv: f32[H, C, D]"
NORMALISED = """mean[b, t] = sum[i](x[b, t, i]) / C
  deviation[b, t] = sqrt(sum[i]((x[b, t, i] - mean[b, t]) ** 2) / C + 0.00001)
  y[b, t, i] = (x[b, t, i] - mean[b, t]) / deviation[b, t] * gain[i] + shift[i]"""
ATTENTION = """w[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D) where n <= m)
  a[b, h, m, d] = sum[n](w[b, h, m, n] * v[b, h, n, d])"""


def projections(rows, names="qkv"):
    return "\n".join(f"{name}[b, h, t, d] = sum[i]({rows}[b, t, i] * w{name}[h, i, d])" for name in names)


def project(rows, weights):
    return torch.einsum("btc,hcd->bhtd", rows, weights)


def attend(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def joined(heads, weights):
    return torch.einsum("bhtd,hdc->btc", heads, weights)


def normalise(x, gain, shift):
    return functional.layer_norm(x, x.shape[-1:], gain, shift, 1e-5)


def before(x, gain, shift, wq, wk, wv, wo):
    y = normalise(x, gain, shift)
    return x + joined(attend(*(project(y, weights) for weights in (wq, wk, wv))), wo)


def after(x, gain, shift, wq, wk, wv, wo):
    return normalise(x + joined(attend(*(project(x, weights) for weights in (wq, wk, wv))), wo), gain, shift)


def gated(x, wq, wk, wv, wg, wo):
    heads = attend(*(project(x, weights) for weights in (wq, wk, wv)))
    return joined(heads * torch.sigmoid(project(x, wg)), wo)


def root_mean_square(rows, gain):
    return rows * torch.rsqrt((rows**2).mean(-1, keepdim=True) + 1e-6) * gain


def normalised_heads(x, wq, wk, wv, gq, gk):
    return attend(root_mean_square(project(x, wq), gq), root_mean_square(project(x, wk), gk), project(x, wv))


CASES = {
    "a norm before attention": (
        f"""attention layer(x: f32[B, T, C], gain: f32[C], shift: f32[C], {WEIGHTS}, wo: f32[H, D, C]) {{
  {NORMALISED}
  {projections("y")}
  {ATTENTION}
  out[b, t, i] = x[b, t, i] + sum[h, d](a[b, h, t, d] * wo[h, d, i])
  return out
}}""",
        before,
    ),
    "a norm after attention": (
        f"""attention layer(x0: f32[B, T, C], gain: f32[C], shift: f32[C], {WEIGHTS}, wo: f32[H, D, C]) {{
  {projections("x0")}
  {ATTENTION}
  x[b, t, i] = x0[b, t, i] + sum[h, d](a[b, h, t, d] * wo[h, d, i])
  {NORMALISED}
  out[b, t, i] = y[b, t, i]
  return out
}}""",
        after,
    ),
    "a gate of the heads": (
        f"""attention layer(x: f32[B, T, C], {WEIGHTS}, wg: f32[H, C, D], wo: f32[H, D, C]) {{
  {projections("x")}
  g[b, h, t, d] = sigmoid(sum[i](x[b, t, i] * wg[h, i, d]))
  {ATTENTION}
  out[b, t, i] = sum[h, d](a[b, h, t, d] * g[b, h, t, d] * wo[h, d, i])
  return out
}}""",
        gated,
    ),
    "norms of queries and keys": (
        f"""attention layer(x: f32[B, T, C], {WEIGHTS}, gq: f32[D], gk: f32[D]) {{
  {projections("x", "v")}
  q0[b, h, t, d] = sum[i](x[b, t, i] * wq[h, i, d])
  k0[b, h, t, d] = sum[i](x[b, t, i] * wk[h, i, d])
  q[b, h, t, d] = q0[b, h, t, d] / sqrt(sum[j](q0[b, h, t, j] ** 2) / D + 0.000001) * gq[d]
  k[b, h, t, d] = k0[b, h, t, d] / sqrt(sum[j](k0[b, h, t, j] ** 2) / D + 0.000001) * gk[d]
  {ATTENTION}
  return a
}}""",
        normalised_heads,
    ),
    "hidden units": (
        f"""attention layer(x: f32[B, T, C], gain: f32[C], shift: f32[C], w1: f32[C, F], b1: f32[F], w2: f32[F, C]) {{
  {NORMALISED}
  hidden[b, t, f] = sum[i](y[b, t, i] * w1[i, f]) + b1[f]
  unit[b, t, f] = hidden[b, t, f] * 0.5 * (1 + erf(hidden[b, t, f] / sqrt(2.0)))
  out[b, t, i] = x[b, t, i] + sum[f](unit[b, t, f] * w2[f, i])
  return out
}}""",
        lambda x, gain, shift, w1, b1, w2: x + functional.gelu(normalise(x, gain, shift) @ w1 + b1) @ w2,
    ),
    "gated units": (
        """attention layer(x: f32[B, T, C], w1: f32[C, F], w3: f32[C, F], w2: f32[F, C]) {
  hidden[b, t, f] = sum[i](x[b, t, i] * w1[i, f])
  gate[b, t, f] = sum[i](x[b, t, i] * w3[i, f])
  unit[b, t, f] = hidden[b, t, f] * sigmoid(hidden[b, t, f]) * gate[b, t, f]
  out[b, t, i] = sum[f](unit[b, t, f] * w2[f, i])
  return out
}""",
        lambda x, w1, w3, w2: (functional.silu(x @ w1) * (x @ w3)) @ w2,
    ),
}


@pytest.mark.parametrize("tokens", [1, 7, 65], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_result_and_gradients(name, tokens):
    source, formula = CASES[name]
    kernel = attn.compile(source)
    torch.manual_seed(tokens)
    sizes = {"B": 2, "H": 3, "C": 20, "D": 8, "F": 33, "T": tokens}
    tensors = [tensor / 2 for tensor in random_inputs(kernel, sizes)]
    assert_equals_formula(kernel, formula, tensors, tolerance=2e-6, gradient_tolerance=1e-5, noise=1e-5)


def statements(kernel):
    """Each statement's text, by its name."""
    return dict(re.findall(r'attn\.\w+ "(\w+)"(.*?)\n    }\n', kernel.emit("simplified"), re.DOTALL))


def test_a_row_is_normalised_once_for_all_products():
    found = statements(attn.compile(CASES["a norm before attention"][0]))
    assert [name for name, text in found.items() if "read %deviation" in text] == ["q_feature"]
    assert all("read %q_feature" in found[name] for name in "qkv")


@pytest.mark.parametrize("name", ["hidden units", "gated units"])
def test_hidden_units_are_stored_and_are_no_scores(name):
    kernel = attn.compile(CASES[name][0])
    assert "weighted_sum" not in kernel.emit("simplified")
    assert "matrix unit" in kernel.emit("plan") and "matrix out" in kernel.emit("plan")


def test_hidden_units_of_a_long_text_are_stored_for_some_rows_at_a_time():
    plan = attn.compile(CASES["gated units"][0]).emit("plan")
    assert re.search("calls that store more than .* between steps: in parts along B, T", plan)


def test_a_gate_and_what_it_opens_have_a_product_in_common():
    """The gradient of each is that of their product, times the other."""
    found = statements(attn.compile(CASES["a gate of the heads"][0]).grad()[1])
    assert [name for name, text in found.items() if "read %grad_out" in text and "read %wo" in text] == ["grad_g_product"]


def test_a_layer_is_computed_once_for_its_gate_and_for_the_gradient_of_that():
    found = statements(attn.compile(CASES["a gate of the heads"][0]).grad()[1])
    assert [name for name, text in found.items() if "read %x[" in text and "read %wg[" in text] == ["g_dot"]
