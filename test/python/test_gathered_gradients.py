"""Gradients of what is read at computed subscripts: shared heads, tables of biases, pages. Against PyTorch's autograd in f64."""

import sys

import numpy as np
import pytest
from conftest import ROOT

import attn

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))
from bench.memory import most_memory, with_outputs  # noqa: E402

FULL = "softmax[n](score[b, h, m, n])"
CAUSAL = "softmax[n](score[b, h, m, n] where n <= m)"


def heads(parameters, score, value="v[b, h, n, e]", weight=FULL, keys="H"):
    return f"""attention heads(q: f32[B, H, M, D], k: f32[B, {keys}, N, D], v: f32[B, {keys}, N, E]{parameters}) {{
  score[b, h: H, m: M, n: N] = {score}
  weight[b, h: H, m, n] = {weight}
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * {value})
  return out
}}
"""


def grouped(group, weight=FULL, parameters=""):
    score = f"sum[d](q[b, h, m, d] * k[b, {group}, n, d]) / sqrt(D)"
    return heads(parameters, score, f"v[b, {group}, n, e]", weight, "G")


DOTS = "sum[d](q[b, h, m, d] * k[b, h, n, d]) / sqrt(D)"
RELATIVE = heads(", bias: f32[H, R], far: i32", f"{DOTS} + bias[h, n - m + far]", weight=CAUSAL)
SHARED = heads(", bias: f32[R], far: i32", f"{DOTS} + bias[n - m + far]")
ROWS = heads(", bias: f32[S, R], far: i32", f"{DOTS} + bias[h, n - m + far]", weight=CAUSAL)
BUCKETS = heads(", bias: f32[H, R], bucket: i32[M, N]", f"{DOTS} + bias[h, bucket[m, n]]")
EMBEDDED = heads(", embedding: f32[R, D], far: i32", f"{DOTS} + sum[d](q[b, h, m, d] * embedding[n - m + far, d])")
BY_BLOCK = heads(", bias: f32[H, R, N]", f"{DOTS} + bias[h, m // 3, n]")


def distance(t, size):
    offset = torch.arange(t["k"].shape[2]) - torch.arange(t["q"].shape[2])[:, None] + t["far"]
    return offset.clamp(0, size - 1)


#: By name: the spec; which head of keys a head reads; what is added to the scores; more inputs, of the sizes H, G, M, N, D.
CASES = {
    "divided": (grouped("h // (H // G)"), lambda h, H, G: h // (H // G), None, lambda H, G, M, N, D: {}),
    "divided, causal": (grouped("h // (H // G)", CAUSAL), lambda h, H, G: h // (H // G), None, lambda H, G, M, N, D: {}),
    "by threes": (grouped("h // 3"), lambda h, H, G: h // 3, None, lambda H, G, M, N, D: {}),
    "interleaved": (grouped("h % G"), lambda h, H, G: h % G, None, lambda H, G, M, N, D: {}),
    "table of heads": (
        grouped("head[b, h]", CAUSAL, ", head: i32[B, H]"),
        None,
        None,
        lambda H, G, M, N, D: {"head": torch.randint(-1, G + 1, (2, H), dtype=torch.int32)},
    ),
    "relative": (
        RELATIVE,
        lambda h, H, G: h,
        lambda t: t["bias"][:, distance(t, t["bias"].shape[1])],
        lambda H, G, M, N, D: {"bias": torch.randn(H, 11), "far": torch.tensor(4, dtype=torch.int32)},
    ),
    "relative, shared": (
        SHARED,
        lambda h, H, G: h,
        lambda t: t["bias"][distance(t, len(t["bias"]))],
        lambda H, G, M, N, D: {"bias": torch.randn(11), "far": torch.tensor(4, dtype=torch.int32)},
    ),
    "relative, more rows than heads": (
        ROWS,
        lambda h, H, G: h,
        lambda t: t["bias"][: t["q"].shape[1], distance(t, t["bias"].shape[1])],
        lambda H, G, M, N, D: {"bias": torch.randn(H + 1, 11), "far": torch.tensor(4, dtype=torch.int32)},
    ),
    "buckets": (
        BUCKETS,
        lambda h, H, G: h,
        lambda t: t["bias"][:, t["bucket"].long()],
        lambda H, G, M, N, D: {"bias": torch.randn(H, 5), "bucket": torch.randint(0, 5, (M, N), dtype=torch.int32)},
    ),
    "embedded": (
        EMBEDDED,
        lambda h, H, G: h,
        lambda t: torch.einsum("bhmd,mnd->bhmn", t["q"], t["embedding"][distance(t, len(t["embedding"]))]),
        lambda H, G, M, N, D: {"embedding": torch.randn(9, D), "far": torch.tensor(5, dtype=torch.int32)},
    ),
    "by block": (
        BY_BLOCK,
        lambda h, H, G: h,
        lambda t: t["bias"][:, (torch.arange(t["q"].shape[2]) // 3).clamp(max=t["bias"].shape[1] - 1)],
        lambda H, G, M, N, D: {"bias": torch.randn(H, 4, N)},
    ),
}
#: H, G, M, N
SHAPES = [(6, 2, 65, 7), (5, 2, 7, 65), (3, 3, 9, 4), (4, 1, 1, 33), (10, 4, 130, 1), (4, 2, 0, 5), (4, 2, 5, 0)]


def draw(name, H, G, M, N, D=5):
    torch.manual_seed(H * M + N)
    keys = G if CASES[name][0].count("[B, G,") else H
    tensors = {"q": torch.randn(2, H, M, D), "k": torch.randn(2, keys, N, D), "v": torch.randn(2, keys, N, D + 1)}
    return tensors | CASES[name][3](H, G, M, N, D)


def expected(name, tensors, gradient):
    """The result and the gradients by name."""
    _, head_of, added, _ = CASES[name]
    exact = {key: value.double().requires_grad_() if is_float(value) else value for key, value in tensors.items()}
    batch, heads, queries, width = exact["q"].shape
    groups = exact["k"].shape[1]
    if head_of:
        head = head_of(torch.arange(heads), heads, groups).expand(batch, -1)
    else:
        head = exact["head"].long()
    head = head.clamp(0, groups - 1)
    k, v = (exact[key][torch.arange(batch)[:, None], head] for key in "kv")
    score = exact["q"] @ k.mT / width**0.5
    if added:
        score = score + added(exact)
    if CAUSAL in CASES[name][0]:
        mask = torch.arange(k.shape[2]) <= torch.arange(queries)[:, None]
        score = score.masked_fill(~mask, -torch.inf)
    out = torch.softmax(score, -1) @ v
    names = [key for key, value in exact.items() if is_float(value)]
    return dict(zip(names, torch.autograd.grad(out, [exact[key] for key in names], gradient.double())))


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def gradients(kernel, tensors, gradient):
    forward, backward = kernel.grad()
    results = forward(*tensors.values())
    known = tensors | dict(zip([info.name for info in forward.outputs], results)) | {"grad_out": gradient}
    results = backward(*[known[info.name] for info in backward.inputs])
    return {info.name.removeprefix("grad_"): value for info, value in zip(backward.outputs, results)}


@pytest.fixture(scope="module")
def compiled():
    kernels = {}
    return lambda name: kernels.setdefault(name, attn.compile(CASES[name][0], plan={"split.queries": 0, "narrow.queries": 0}))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_autograd_with_the_same_bits_on_any_number_of_threads(name, compiled):
    for shape in SHAPES:
        tensors = draw(name, *shape)
        gradient = torch.randn(*tensors["q"].shape[:3], tensors["v"].shape[3])
        found = []
        try:
            for threads in (1, 2):
                attn.set_num_threads(threads)
                found.append(gradients(compiled(name), tensors, gradient))
        finally:
            attn.set_num_threads(0)
        exact = expected(name, tensors, gradient)
        noise = max([value.abs().max().item() for value in exact.values() if value.numel()], default=0)
        for key, value in exact.items():
            assert torch.equal(found[0][key], found[1][key]), (shape, key)
            assert found[0][key].shape == value.shape
            if value.numel():
                largest = max(value.abs().max().item(), 0.1 * noise)
                assert (found[0][key] - value).abs().max() <= 1e-5 * largest, (shape, key)


def test_blocks_of_some_heads_add_up_what_groups_share(compiled):
    """1100 keys: the rows of a head are more than a block has, and groups of heads are in several blocks."""
    for name in ("divided, causal", "by threes", "relative"):
        tensors = draw(name, 6, 2, 700, 1100, 3)
        gradient = torch.randn(2, 6, 700, 4)
        found, exact = gradients(compiled(name), tensors, gradient), expected(name, tensors, gradient)
        for key, value in exact.items():
            assert (found[key] - value).abs().max() <= 1e-5 * value.abs().max(), (name, key)


@pytest.mark.parametrize("name", ["divided, causal", "interleaved", "relative", "relative, more rows than heads", "relative, shared", "buckets"])
def test_a_backward_pass_takes_8_mb_at_most(name, compiled):
    """Gradients of all heads by themselves would take 33 MB, an element for each pair 134 MB."""
    kernel = compiled(name)
    tensors = draw(name, 32, 8, 1024, 1024, 128)
    tensors = {key: value[:1] if key in "qkv" else value for key, value in tensors.items()}
    forward, backward = kernel.grad()
    results = dict(zip([info.name for info in forward.outputs], forward(*tensors.values())))
    known = {key: torch.as_tensor(value) for key, value in tensors.items()} | results
    known |= {"grad_out": torch.ones_like(results["out"])}
    for threads in (1, 2):
        assert most_memory(backward, with_outputs(backward, known), threads) < 8e6


def test_groups_of_a_constant_size_need_not_divide_the_heads():
    source = "attention repeat(x: f32[G], h: f32[H]) {\n y[i: H] = x[i // 4] * h[i]\n return y\n}"
    _, backward = attn.compile(source).grad(["x"])
    h = np.arange(1, 11, dtype=np.float32)
    for groups, gradient in ((3, [10, 26, 19]), (4, [10, 26, 19, 0]), (2, [10, 45]), (1, [55])):
        result = backward(x=np.ones(groups, np.float32), h=h, grad_y=np.ones(10, np.float32))
        assert result.tolist() == gradient


def test_values_that_all_heads_share_of_an_output_that_is_projected():
    """The gradient of the heads' own values was taken for one of the pairs that it is a sum of, and the compiler crashed."""
    kernel = attn.compile(
        """attention projected(v: f64[G, N, E], wo: f64[E, H], score: f64[H, N, N]) {
          weight[h, m, n] = softmax[n](score[h, m, n] where n <= m)
          out[h: H, m: N, e: E] = sum[n](weight[h, m, n] * v[h // H, n, e])
          y[m] = sum[h, e](wo[e, h] * out[h, m, e])
          return y }""",
        lazy=True,
    )
    given = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((1, 7, 2), (2, 4), (4, 7, 7))]
    v, wo, score = given
    weight = score.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf).softmax(2)
    wanted = torch.einsum("eh,hme->m", wo, weight @ v)
    torch.testing.assert_close(kernel(*given), wanted, rtol=1e-12, atol=1e-12)
    gradient = torch.randn(7, dtype=torch.float64)
    for a, b in zip(torch.autograd.grad(kernel(*given), given, gradient), torch.autograd.grad(wanted, given, gradient)):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("subscript", ["n + 0", "n // 1", "2 * n - n", "n % N", "n - 0 * M"])
def test_subscripts_that_are_an_index_in_the_end(subscript):
    """The last element is read by all that would read behind it."""
    kernel = attn.compile(f"attention f(x: f32[M, N], t: f32[M, T]) {{\n y[m, n] = x[m, n] * t[m, {subscript}]\n return y\n}}")
    for size in (1, 4, 9, 12):
        x, gradient = torch.randn(3, 9), torch.randn(3, 9)
        table = torch.randn(3, size, requires_grad=True)
        (kernel(x, table) * gradient).sum().backward()
        expected = torch.zeros(3, size).index_add_(1, torch.arange(9).clamp(max=size - 1), x * gradient)
        torch.testing.assert_close(table.grad, expected)


def test_keys_that_an_index_gathers():
    """Edges of a graph, in the order of their targets: what each adds to its source is summed over the targets first."""
    kernel = attn.compile("""
    attention edges(x: f32[N, H, D], a: f32[N, H], source: i32[X], start: i32[N + 1]) {
      weight[h, m: N, e: X] = softmax[e](tanh(a[m, h] + a[source[e], h]) where start[m] <= e and e < start[m + 1])
      out[m, h, d] = sum[e: X](weight[h, m, e] * x[source[e], h, d])
      return out
    }""")
    assert "each term of e is added" in kernel.grad()[1].emit("plan")
    torch.manual_seed(0)
    for nodes, edges in ((1, 3), (7, 30), (300, 2000)):
        source, target = torch.randint(0, nodes, (edges,)), torch.sort(torch.randint(0, nodes, (edges,)))[0]
        start = torch.searchsorted(target, torch.arange(nodes + 1))
        x, a, gradient = torch.randn(nodes, 2, 9), torch.randn(nodes, 2), torch.randn(nodes, 2, 9)
        found = [tensor.clone().requires_grad_() for tensor in (x, a)]
        (kernel(*found, source.int(), start.int()) * gradient).sum().backward()
        exact = [tensor.double().requires_grad_() for tensor in (x, a)]
        weight = torch.tanh(exact[1][target] + exact[1][source]).exp()
        total = torch.zeros(nodes, 2, dtype=torch.float64).index_add(0, target, weight)
        terms = (weight / total[target])[..., None] * exact[0][source]
        (torch.zeros(nodes, 2, 9, dtype=torch.float64).index_add(0, target, terms) * gradient).sum().backward()
        for single, double in zip(found, exact):
            wanted = double.grad.float()
            torch.testing.assert_close(single.grad, wanted, rtol=1e-4, atol=4e-6 * max(wanted.abs().max().item(), 0.1))


BLOCK_LOCAL = """attention block_local[C = 8](x: f32[B, M, D], w: f32[D, D], k: f32[B, M, D], v: f32[B, M, D]) {
  q[b, m, d] = sum[i: D](x[b, m, i] * w[i, d]) / sqrt(D)
  score[b, m, n: 2 * C] = sum[d](q[b, m, d] * k[b, m // C * C + n - C, d])
  weight[b, m, n] = softmax[n](score[b, m, n] where m // C * C + n - C >= 0 and m // C * C + n - C <= m)
  out[b, m, d] = sum[n](weight[b, m, n] * v[b, m // C * C + n - C, d])
  return out
}
"""


@pytest.mark.parametrize("tokens", [1, 7, 8, 33, 64])
def test_blocks_that_see_themselves_and_the_one_before(tokens):
    random = np.random.default_rng(tokens)
    inputs = [random.standard_normal(shape).astype("f") for shape in ((2, tokens, 12), (12, 12), (2, tokens, 12), (2, tokens, 12))]
    ours = [torch.from_numpy(value).requires_grad_() for value in inputs]
    exact = [torch.from_numpy(value).double().requires_grad_() for value in inputs]
    x, w, k, v = exact
    m, n = torch.arange(tokens)[:, None], torch.arange(tokens)
    seen = (n >= m // 8 * 8 - 8) & (n <= m)
    scores = ((x @ w / 12**0.5) @ k.transpose(1, 2)).masked_fill(~seen, -torch.inf)
    expected = scores.softmax(-1) @ v
    found = attn.compile(BLOCK_LOCAL)(*ours)
    gradient = torch.from_numpy(random.standard_normal((2, tokens, 12)))
    expected.backward(gradient)
    found.backward(gradient.float())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-6)
    for value, reference in zip(ours, exact):
        torch.testing.assert_close(value.grad.double(), reference.grad, rtol=1e-5, atol=2e-6 * max(1, float(reference.grad.abs().max())))
