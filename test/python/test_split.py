"""Few queries: the split plan, and its border with the tiled one."""

import itertools

import numpy as np
import pytest
from oracle.memory import beside_unreadable_memory

import attn

HEADS = "q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E]"
GROUPS = "q: f32[B, H, M, D], k: f32[B, G, N, D], v: f32[B, G, N, E]"


def check(kernel, *inputs, tolerance=2e-6):
    """Compares with the reference, relative to the largest of each row."""
    found, expected = kernel(*inputs), kernel.reference(*inputs)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected, strict=True):
        scale = np.maximum(np.abs(b).max(axis=-1, keepdims=True, initial=0), 1)
        with np.errstate(invalid="ignore"):  # of infinities, which are equal
            assert np.all((a == b) | (np.abs(a - b) <= tolerance * scale)), np.abs(a - b).max()
    return found


def heads(generator, b, h, g, m, n, d, e):
    shapes = (b, h, m, d), (b, g, n, d), (b, g, n, e)
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


GROUPED = attn.compile(f"""
    attention grouped({GROUPS}, valid: i32[B]) {{
      weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D) where n < valid[b])
      out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
      return out
    }}""")


@pytest.mark.parametrize("m", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("n, d, e", [(1, 1, 1), (7, 5, 3), (63, 16, 17), (256, 64, 64), (257, 80, 40), (2001, 33, 130)])
def test_sizes_on_both_sides_of_the_border(m, n, d, e):
    generator = np.random.default_rng(m * n)
    check(GROUPED, *heads(generator, 2, 6, 2, m, n, d, e), np.array([n, n // 3], np.int32))


@pytest.mark.parametrize("b, h, g", [(1, 1, 1), (1, 40, 1), (1, 7, 2), (3, 2, 5), (70, 4, 2)])
def test_groups_of_any_size(b, h, g):
    """One key head for all; groups that are not whole; more key heads than heads; more tasks than spans are made for."""
    generator = np.random.default_rng(h)
    check(GROUPED, *heads(generator, b, h, g, 2, 300, 8, 8), np.full(b, 290, np.int32))


@pytest.mark.parametrize("valid", [0, 1, 255, 256, 257, 700])
def test_rows_with_few_keys_or_none(valid):
    generator = np.random.default_rng(valid)
    inputs = heads(generator, 2, 2, 1, 1, 700, 16, 16)
    out = check(GROUPED, *inputs, np.array([valid, 3], np.int32))[0]
    assert valid or not out[0].any()


@pytest.mark.parametrize("m", [1, 8])
def test_a_window_that_differs_from_head_to_head_and_query_to_query(m):
    kernel = attn.compile(f"""
        attention windows({HEADS}, width: i32[H]) {{
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d])
                                          where n <= m + (N - M) and n > m + (N - M) - width[h])
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h, n, e])
          return out
        }}""")
    generator = np.random.default_rng(m)
    check(kernel, *heads(generator, 2, 3, 3, m, 1500, 8, 8), np.array([1, 70, 900], np.int32))


LOGSUMEXP = attn.compile(f"""
    attention logs({GROUPS}, sink: f32[H], valid: i32[B]) {{
      score[b, h, m, n]  = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D)
      weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n < valid[b])
      out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
      lse[b, h, m]       = logsumexp[n](score[b, h, m, n] where n < valid[b])
      sunk[b, h, m, n]   = softmax[n](score[b, h, m, n] where n < valid[b], sink = sink[h])
      rest[b, h, m, e]   = sum[n](sunk[b, h, m, n] * v[b, h // (H // G), n, e])
      with_sink[b, h, m] = logsumexp[n](score[b, h, m, n] where n < valid[b], sink = sink[h])
      return out, lse, rest, with_sink
    }}""")


@pytest.mark.parametrize("m", [0, 1, 5])
@pytest.mark.parametrize("n, d, e", [(1, 1, 1), (65, 16, 7), (2001, 64, 64)])
def test_the_log_sum_exp_of_few_queries(m, n, d, e):
    """Of one span and of several, of rows without keys, with and without a sink."""
    generator = np.random.default_rng(n)
    sink, valid = generator.standard_normal(4, np.float32), np.array([n, 0], np.int32)
    _, lse, _, with_sink = check(LOGSUMEXP, *heads(generator, 2, 4, 2, m, n, d, e), sink, valid)
    assert (lse[1] == -np.inf).all()
    np.testing.assert_allclose(with_sink[1], np.broadcast_to(sink[:, None], (4, m)), rtol=1e-6)


def without_scale(parameters, head, dtype):
    """Attention whose heads read keys and values at `head`, and what PyTorch calls its dtype."""
    import torch

    kernel = attn.compile(
        f"""attention unscaled({parameters}) {{
              weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, {head}, n, d]))
              out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, {head}, n, e])
              return out
            }}""",
        dtype=dtype,
    )
    return kernel, {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]


def check_without_scale(kernel, q, k, v, tolerance):
    """Compares with PyTorch in double precision."""
    import torch

    keys, values = (each.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
    expected = torch.softmax(q.double() @ keys.mT, -1) @ values
    torch.testing.assert_close(kernel(q, k, v).double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [("f32", 2e-6), ("bf16", 2e-2), ("f16", 2e-3)])
@pytest.mark.parametrize("h", [2, 8], ids=["own keys", "shared keys"])
def test_nothing_is_read_beyond_the_last_key(dtype, tolerance, h):
    """Keys and values are parts of larger tensors that are NaN elsewhere: what follows a key, and what follows the last one."""
    torch = pytest.importorskip("torch")
    parameters, head = (HEADS, "h") if h == 2 else (GROUPS, "h // (H // G)")
    kernel, element = without_scale(parameters, head, dtype)
    torch.manual_seed(h)
    for d, e in ((0, 3), (1, 1), (16, 31), (33, 64), (70, 256)):
        for n in (0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 65, 511, 513, 2001):
            q = (torch.randn(1, h, 1, d) / max(d, 1) ** 0.5).to(element)
            k, v = (torch.full((1, 2, n + 40, width + 7), torch.nan).to(element) for width in (d, e))
            k, v = k[:, :, :n, :d].normal_(), v[:, :, :n, :e].normal_()
            check_without_scale(kernel, q, k, v, tolerance)


@pytest.mark.parametrize("dtype, tolerance", [("f32", 2e-6), ("bf16", 2e-2), ("f16", 2e-3)])
@pytest.mark.parametrize("h", [2, 8], ids=["own keys", "shared keys"])
def test_nothing_is_read_beyond_the_last_column(dtype, tolerance, h):
    torch = pytest.importorskip("torch")
    kernel, element = without_scale(GROUPS, "h // (H // G)", dtype)
    torch.manual_seed(h)
    for d, e in ((1, 1), (16, 31), (33, 64), (40, 72), (70, 250)):
        for n in (1, 2, 17, 65):
            q, k, v = (torch.randn(shape) for shape in ((1, h, 1, d), (1, 2, n, d), (1, 2, n, e)))
            q, k, v = (each.to(element) for each in (q / d**0.5, k, v))
            q, k, v = (beside_unreadable_memory(each) for each in (q, k, v))
            check_without_scale(kernel, q, k, v, tolerance)


@pytest.mark.parametrize("u", [1, 5, 21, 47, 80])
def test_nothing_is_read_beyond_the_last_term(u):
    """Factors alone, subscripts and conditions of a table, a maximum, a function that is not 0 of nothing."""
    torch = pytest.importorskip("torch")
    kernel = attn.compile(f"""
        attention terms({GROUPS.replace("D", "U")}, w: f32[U], place: i32[U], on: bool[U]) {{
          additive[b, h, m, n] = sum[u](w[u] * tanh(q[b, h, m, u] + k[b, h // (H // G), n, place[u]]))
          most[b, h, m, n]     = max[u](q[b, h, m, u] * k[b, h // (H // G), n, u] - 5)
          some[b, h, m, n]     = sum[u](exp(-k[b, h // (H // G), n, u] ** 2) where on[u])
          weight[b, h, m, n]   = softmax[n](additive[b, h, m, n] + most[b, h, m, n] + some[b, h, m, n] / U)
          out[b, h, m, e]      = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
          return out
        }}""")
    torch.manual_seed(u)
    for h in (2, 8):
        for n in (1, 17, 65):
            inputs = [torch.randn(shape) for shape in ((1, h, 1, u), (1, 2, n, u), (1, 2, n, 24), (u,))]
            inputs += [torch.randperm(u, dtype=torch.int32), torch.rand(u) < 0.5]
            check(kernel, *(beside_unreadable_memory(each).numpy() for each in inputs), tolerance=4e-6)


def test_scores_that_read_nothing_at_keys():
    kernel = attn.compile("""
        attention places(q: f32[H, D], v: f32[N, E]) {
          weight[h, n] = softmax[n](sum[d](q[h, d] * cos(0.01 * (n + 1) * d)))
          out[h, e]    = sum[n](weight[h, n] * v[n, e])
          return out
        }""")
    generator = np.random.default_rng(3)
    for h, n, d in ((1, 1, 0), (1, 300, 40), (5, 1030, 64)):
        q, v = (generator.standard_normal(shape, np.float32) for shape in ((h, d), (n, 24)))
        check(kernel, q / 10, v)


def test_scores_of_every_kind():
    """A bias of each pair, slopes, a cap, a sink, a distance, a sum that no key changes, factors of the weight."""
    kernel = attn.compile(f"""
        attention kinds({GROUPS}, bias: f32[H, M, N], slope: f32[H], sink: f32[H], gate: f32[H, N]) {{
          dot[b, h, m, n]    = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d])
          far[b, h, m, n]    = sum[d]((q[b, h, m, d] - k[b, h // (H // G), n, d]) ** 2)
          most[b, h, m, n]   = max[d](q[b, h, m, d] * k[b, h // (H // G), n, d])
          score[b, h, m, n]  = (5 * tanh(dot[b, h, m, n] / 5) + bias[h, m, n] - slope[h] * far[b, h, m, n]
                                + most[b, h, m, n] + max[d](q[b, h, m, d]))
          weight[b, h, m, n] = softmax[n](score[b, h, m, n], sink = sink[h])
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * gate[h, n] * v[b, h // (H // G), n, e])
          return out
        }}""")
    generator = np.random.default_rng(1)
    for m in (1, 5):
        q, k, v = heads(generator, 2, 4, 2, m, 333, 20, 24)
        rest = [generator.standard_normal(shape, np.float32) for shape in ((4, m, 333), 4, 4, (4, 333))]
        check(kernel, q, k, v, *rest, tolerance=2e-5)


@pytest.mark.parametrize("count", range(6))
def test_any_number_of_indices_beside_queries_and_columns(count):
    indices = [f"i{number}" for number in range(count)]
    before, sizes = "".join(f"{index}, " for index in indices), "".join(f"{index.upper()}, " for index in indices)
    kernel = attn.compile(f"""
        attention ranks(q: f32[{sizes}M, D], k: f32[{sizes}N, D], v: f32[{sizes}N, E]) {{
          weight[{before}m, n] = softmax[n](sum[d](q[{before}m, d] * k[{before}n, d]) where n <= m + 40)
          out[{before}m, e]    = sum[n](weight[{before}m, n] * v[{before}n, e])
          return out
        }}""")
    generator = np.random.default_rng(count)
    shape = (2, 3, 2, 3, 2)[:count]
    for m in (3, 20, 49, 130, 600):  # split, narrow and wide tiles
        check(kernel, *(generator.standard_normal((*shape, rows, 9), np.float32) for rows in (m, 57, 57)), tolerance=4e-6)


@pytest.mark.parametrize("m", [1, 5, 40])
@pytest.mark.parametrize(
    "score",
    [
        "select(mask[m, n] and n < b, sum[d](q[b, m, d]), select(mask[m, n], 1.0, 0.0))",
        "select(n <= m and (n <= m or n < b), sum[d](q[b, m, d] * k[b, n, d]), 0.5)",
        "erf(sum[d](q[b, m, d] * k[b, n, d]) + erf(sum[d](q[b, m, d]))) where mask[m, n]",
        "select(tag[m] < 2 and n > b, sum[d](q[b, m, d] * k[b, n, d]), select(tag[m] < 2, 1.0, 0.0)) where mask[m, n]",
    ],
)
def test_scores_that_share_a_part_of_their_conditions(score, m):
    """Halide's search for stages that conditions rule out failed where they share what is known of a row."""
    kernel = attn.compile(f"""
        attention shared(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], mask: bool[M, N], tag: i32[M]) {{
          weight[b, m, n] = softmax[n]({score})
          out[b, m, e]    = sum[n](weight[b, m, n] * v[b, n, e])
          return out
        }}""")
    generator = np.random.default_rng(m)
    q, k, v = (generator.standard_normal((3, size, 16), np.float32) for size in (m, 70, 70))
    mask, tag = generator.random((m, 70)) < 0.7, generator.integers(0, 4, m, np.int32)
    check(kernel, q, k, v, mask, tag)


def test_sums_without_a_softmax_and_with_a_condition():
    kernel = attn.compile(f"""
        attention gates({HEADS}, valid: i32[B]) {{
          out[b, h, m, e]  = sum[n](sigmoid(sum[d](q[b, h, m, d] * k[b, h, n, d])) * v[b, h, n, e] where n < valid[b])
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]))
          even[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h, n, e] where n % 2 == 0)
          return out, even
        }}""")
    generator = np.random.default_rng(2)
    for valid in ([500, 0], [3, 300]):
        check(kernel, *heads(generator, 2, 2, 2, 3, 500, 9, 10), np.array(valid, np.int32), tolerance=4e-6)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-13), ("bf16", 1e-2), ("f16", 2e-3)])
def test_other_dtypes(dtype, tolerance):
    torch = pytest.importorskip("torch")
    types = {"f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
    source = f"""
        attention typed({GROUPS}) {{
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D))
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
          return out
        }}"""
    kernel = attn.compile(source.replace("f32", dtype))
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape).to(types[dtype]) for shape in ((2, 4, 1, 40), (2, 2, 600, 40), (2, 2, 600, 24)))
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True)
    assert (kernel(q, k, v).double() - expected).abs().max() <= tolerance


@pytest.mark.parametrize(
    "b, h, g, m, n, d, e",
    [
        (1, 32, 8, 1, 2001, 128, 128),
        (2, 6, 2, 3, 65, 40, 72),
        (1, 48, 2, 1, 333, 128, 96),  # groups of 24: a pass of 16 rows has rows of two
        (1, 10, 3, 2, 100, 33, 17),  # groups that are not whole
        (1, 3, 7, 1, 1, 1, 1),  # more key heads than heads
    ],
)
def test_values_in_bf16_are_paired_for_heads_that_share_them(b, h, g, m, n, d, e):
    torch = pytest.importorskip("torch")
    kernel = attn.compile(f"""
        attention halves({GROUPS.replace("f32", "bf16")}) {{
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D))
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
          return out
        }}""")
    torch.manual_seed(n)
    q, k, v = (torch.randn(shape).bfloat16() for shape in ((b, h, m, d), (b, g, n, d), (b, g, n, e)))
    group = torch.arange(h) // (h // g) if h >= g else torch.zeros(h, dtype=torch.long)  # h // 0 is 0
    group = group.clamp(max=g - 1)  # a subscript stays in its dimension
    weight = torch.softmax(q.double() @ k.double()[:, group].mT / d**0.5, -1)
    expected = weight @ v.double()[:, group]
    assert (kernel(q, k, v).double() - expected).abs().max() <= 2**-7 * expected.abs().max()


def pages(dtype):
    """Heads of a token lie together, in pages that lie anywhere."""
    return attn.compile(f"""
        attention pages(q: {dtype}[B, H, M, D], k: {dtype}[P, S, G, D], v: {dtype}[P, S, G, E], page: i32[B, L],
                        first: i32[B], length: i32[B]) {{
          score[b, h, m, n: L * S] = sum[d](q[b, h, m, d] * k[page[b, n // S], n % S, h // (H // G), d]) / sqrt(D)
          weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n >= first[b] and n < length[b])
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[page[b, n // S], n % S, h // (H // G), e])
          return out
        }}""")


PAGES = pages("f32")


@pytest.mark.parametrize(
    "b, h, g, m, d, e",
    [
        (1, 32, 8, 1, 128, 128),  # all heads of a token are rows of a task
        (2, 8, 8, 1, 64, 40),  # heads with keys of their own
        (1, 8, 8, 4, 33, 130),  # tiles of four queries
        (2, 10, 3, 2, 17, 64),  # groups that are not whole
        (1, 72, 12, 1, 16, 16),  # more heads than a task has: three tasks of 24
        (1, 34, 2, 1, 16, 20),  # 17 heads read a key, in two passes
        (1, 3, 7, 1, 5, 1),  # more key heads than heads
        (1, 64, 1, 1, 8, 8),
    ],
)
@pytest.mark.parametrize("tokens", [1, 16, 700])
def test_heads_that_lie_together_at_a_token(b, h, g, m, d, e, tokens):
    size = 16
    generator = np.random.default_rng(h * tokens)
    used = -(-tokens // size)
    count = b * used + 3
    q = generator.standard_normal((b, h, m, d), np.float32)
    k, v = (generator.standard_normal((count, size, g, width), np.float32) for width in (d, e))
    page = generator.permutation(count)[: b * used].reshape(b, used).astype(np.int32)
    length = np.array([tokens, tokens // 2][:b], np.int32)
    check(PAGES, q, k, v, page, length // 3, length)
    check(PAGES, q[:, ::-1], k[:, :, ::-1], v[..., ::-1], page, np.zeros(b, np.int32), length)


@pytest.mark.parametrize("h, g", [(32, 8), (8, 8), (12, 2)])
def test_heads_that_lie_together_in_bf16(h, g):
    torch = pytest.importorskip("torch")
    torch.manual_seed(h)
    kernel = pages("bf16")
    for tokens, m, width in ((700, 1, 128), (33, 2, 72)):
        q, k, v = (torch.randn(shape).bfloat16() for shape in ((1, h, m, width), (50, 16, g, width), (50, 16, g, width)))
        page = torch.randperm(50)[None, : -(-tokens // 16)].int()
        found = kernel(q, k, v, page, torch.tensor([0]).int(), torch.tensor([tokens]).int())
        keys, values = (x.double()[page[0].long()].flatten(0, 1)[:tokens].transpose(0, 1).repeat_interleave(h // g, 0) for x in (k, v))
        expected = torch.softmax(q[0].double() @ keys.mT / width**0.5, -1) @ values
        assert (found[0].double() - expected).abs().max() <= 2**-7 * expected.abs().max()


@pytest.mark.parametrize("m", [1, 3, 9])
@pytest.mark.parametrize("group", ["h", "h // 2"])
def test_what_heads_that_lie_together_have_at_a_token_is_their_own(group, m):
    """Scales of a quantised cache, one for each token and head, beside values and scores."""
    own = "H" if group == "h" else "G"
    kernel = attn.compile(f"""
      attention scaled(q: f32[B, H, M, D], k: i8[B, N, {own}, D], v: i8[B, N, {own}, E], kscale: f32[B, N, {own}],
                       vscale: f32[B, N, {own}], bias: f32[B, N, {own}]) {{
        weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, n, {group}, d]) * kscale[b, n, {group}] + bias[b, n, {group}])
        out[b, h, m, e]    = sum[n](weight[b, h, m, n] * (vscale[b, n, {group}] * v[b, n, {group}, e]))
        total[b, h, m, e]  = sum[n](sum[d](q[b, h, m, d] * k[b, n, {group}, d]) * (vscale[b, n, {group}] * v[b, n, {group}, e]))
        return out, total
      }}""")
    generator = np.random.default_rng(m)
    for n, own in [(1, 3), (2, 2), (65, 3), (300, 16)]:
        heads = own if group == "h" else 2 * own
        q = generator.standard_normal((2, heads, m, 8), np.float32)
        k, v = (generator.integers(-9, 10, (2, n, own, width)).astype(np.int8) for width in (8, 5))
        check(kernel, q, k, v, *(generator.uniform(0.05, 0.2, (2, n, own)).astype("f4") for _ in range(3)), tolerance=4e-6)


def test_what_a_row_reads_is_its_own_where_keys_are_those_of_a_group():
    """Subscripts that are divided: of keys once for a group, of a row's factors for each row."""
    kernel = attn.compile("""
        attention factors(q: f32[H, D], k: f32[N, G, D], v: f32[N, G, E], factor: i32[F], row: i32[H]) {
          weight[h, n] = softmax[n](sum[d](q[h, d] * k[n, h // (H // G), d] * factor[h // 2] * factor[row[h]]) / D)
          out[h, e]    = sum[n](weight[h, n] * v[n, h // (H // G), e])
          return out
        }""")
    generator = np.random.default_rng(8)
    for h, g in ((8, 2), (8, 8), (16, 2)):
        q, k, v = (generator.standard_normal(shape, np.float32) for shape in ((h, 32), (100, g, 32), (100, g, 20)))
        factor, row = generator.integers(-3, 4, h // 2, np.int32), generator.integers(0, h // 2, h, np.int32)
        check(kernel, q, k, v, factor, row, tolerance=4e-6)


def test_heads_that_share_keys_in_pages():
    """In pages that lie anywhere, up to the last one."""
    kernel = attn.compile("""
        attention shared(q: f32[H, D], k: f32[P, S, D], v: f32[P, S, E], page: i32[L]) {
          weight[h, n: L * S] = softmax[n](sum[d](q[h, d] * k[page[n // S], n % S, d]))
          out[h, e]           = sum[n](weight[h, n] * v[page[n // S], n % S, e])
          return out
        }""")
    generator = np.random.default_rng(6)
    for h in (3, 8):
        q, k, v = (generator.standard_normal(shape, np.float32) for shape in ((h, 32), (70, 16, 32), (70, 16, 40)))
        check(kernel, q, k, v, generator.permutation(70).astype(np.int32), tolerance=4e-6)


@pytest.mark.parametrize("n", [4, 16, 40, 1000, 1040])
def test_keys_and_values_whose_places_are_in_tables(n):
    """Where the keys end before the one that would be fetched, the tables are not read for it."""
    kernel = attn.compile("""
        attention table(q: f32[H, C, D], k: f32[R, D], v: f32[R, E], row: i32[L, C], place: i32[L, E]) {
          weight[h, n: L * 4] = softmax[n](sum[c, d](q[h, c, d] * k[row[n // 4, c], d]) / D)
          out[h, e]           = sum[n](weight[h, n] * v[place[n // 4, e], e])
          return out
        }""")
    generator = np.random.default_rng(n)
    q, k, v = (generator.standard_normal(shape, np.float32) for shape in ((6, 3, 32), (50, 32), (50, 40)))
    row, place = (generator.integers(0, 50, (n // 4, count)).astype(np.int32) for count in (3, 40))
    check(kernel, q, k, v, row, place)


def test_keys_that_are_not_contiguous_along_the_sum():
    kernel = attn.compile("""
        attention columns(q: f32[B, D], k: f32[B, D, N], v: f32[B, N, E]) {
          weight[b, n] = softmax[n](sum[d](q[b, d] * k[b, d, n]))
          out[b, e]    = sum[n](weight[b, n] * v[b, n, e])
          return out
        }""")
    generator = np.random.default_rng(3)
    for n, d in ((1, 1), (15, 3), (16, 4), (17, 4), (31, 5), (600, 64)):
        q, k, v = (generator.standard_normal(shape, np.float32) for shape in ((2, d), (2, d, n), (2, n, 7)))
        check(kernel, q, k, v, tolerance=4e-6)
        check(kernel, q[::-1], k[:, ::-1], v[:, ::-1], tolerance=4e-6)
        for begins in (False, True):
            check(kernel, q, beside_unreadable_memory(k, begins), v, tolerance=4e-6)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 2001])
def test_formulas_that_read_something_at_keys(n):
    """In the score, in the weight and in the condition of the sum: vectors of keys, and the keys that are left."""
    kernel = attn.compile(f"""
        attention biased({HEADS}, bias: f32[H, M, N], keep: bool[B, N], gain: f32[N], shown: bool[N]) {{
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) + bias[h, m, n] where keep[b, n])
          out[b, h, m, e]    = sum[n](weight[b, h, m, n] * gain[n] * v[b, h, n, e] where shown[n])
          return out
        }}""")
    generator = np.random.default_rng(n)
    for m in (1, 3):
        inputs = heads(generator, 2, 3, 3, m, n, 8, 8)
        bias, gain = generator.standard_normal((3, m, n), np.float32), generator.standard_normal(n, np.float32)
        others = [bias, generator.random((2, n)) < 0.7, gain, generator.random(n) < 0.7]
        for begins in (False, True):
            check(kernel, *inputs, *(beside_unreadable_memory(each, begins) for each in others), tolerance=4e-6)


def test_dropout_drops_the_same_weights_as_in_tiles():
    kernel = attn.compile(f"""
        attention dropped({HEADS}, seed: i64, p: f32) {{
          weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]))
          kept[b, h, m, n]   = dropout(weight[b, h, m, n], p, seed)
          out[b, h, m, e]    = sum[n](kept[b, h, m, n] * v[b, h, n, e])
          return out
        }}""")
    generator = np.random.default_rng(4)
    for m in (8, 9):
        check(kernel, *heads(generator, 2, 2, 2, m, 400, 8, 8), 7, 0.3, tolerance=4e-6)


def test_the_number_of_threads_changes_no_bit():
    generator = np.random.default_rng(5)
    inputs = *heads(generator, 1, 4, 2, 1, 5000, 32, 32), np.array([4900], np.int32)
    results = []
    for threads in (1, 2, 5):
        attn.set_num_threads(threads)
        results.append(GROUPED(*inputs))
    attn.set_num_threads(0)
    assert all((result == results[0]).all() for result in results)


SHARED = f"""attention shared({GROUPS}) {{
  weight[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D))
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  return out
}}"""


@pytest.mark.parametrize("dtype, tolerance", [(None, 2e-6), ("bf16", 1e-2)])
@pytest.mark.parametrize("h, g, m, e", [(32, 8, 1, 128), (8, 8, 1, 32), (8, 2, 3, 16), (12, 4, 2, 48)])
def test_sizes_that_are_known_leave_some_register_tiles_empty(h, g, m, e, dtype, tolerance):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in heads(np.random.default_rng(6), 1, h, g, m, 70, 40, e))
    if dtype:
        q, k, v = (x.bfloat16() for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True)
    for sizes in ({"H": h, "G": g}, {"E": e}, {"H": h, "G": g, "M": m, "D": 40, "E": e}):
        found = attn.compile(SHARED, dtype=dtype, sizes=sizes)(q, k, v)
        assert (found.double() - expected).abs().max() <= tolerance * max(expected.abs().max(), 1)


PAGES_OF_MAXIMA = """
attention maxima(q: f32[B, D], k: f32[P, S, D], v: f32[P, S, E], page: i32[B, L], first: i32, end: i32[B]) {
  score[b, n: L * S] = max[d](q[b, d] + k[page[b, n // S], n % S, d])
  weight[b, n]       = softmax[n](score[b, n] where n >= first and n < end[b])
  out[b, e]          = sum[n](weight[b, n] * v[page[b, n // S], n % S, e])
  return out
}
"""


@pytest.mark.parametrize("first, end", [(3, 17), (16, 7), (40, 49), (0, 49)])
def test_maxima_read_pages_of_the_keys_that_are_visited(first, end):
    """Loops over keys of other reductions than sums are not cut: they read subscripts that nobody had computed."""
    generator = np.random.default_rng(first)
    q, k, v = (generator.standard_normal(shape, dtype=np.float32) for shape in ((2, 15), (3, 49, 15), (3, 49, 15)))
    page, ends = np.array([[2], [4]], np.int32), np.array([end, end - 1], np.int32)
    kernel = attn.compile(PAGES_OF_MAXIMA)
    arguments = (q, k, v, page, first, ends)
    np.testing.assert_allclose(kernel(*arguments), kernel.reference(*arguments), rtol=0, atol=5e-6)


@pytest.mark.parametrize("m", [1, 4, 8, 40])
def test_terms_that_read_pairs_outside_of_their_sum(m):
    """What the whole score has, `near[m, n]`, is no key that queries share, though terms are left out by it."""
    kernel = attn.compile("""attention near(q: f32[M, D], k: f32[N, D], v: f32[N, E], near: bool[M, N], bias: f32[M, N]) {
      score[m, n] = select(near[m, n], 1.0, bias[m, n]) + sum[d](q[m, d] * k[n, d] * bias[m, n] where near[m, n])
      out[m, e]   = sum[n](softmax[n](score[m, n]) * v[n, e])
      return out
    }""")
    generator = np.random.default_rng(m)
    q, k, v, bias = (generator.standard_normal(shape, np.float32) for shape in ((m, 40), (300, 40), (300, 33), (m, 300)))
    check(kernel, q, k, v, generator.random((m, 300)) < 0.5, bias)


@pytest.mark.parametrize("subscript, size", [("e // 2", "(E + 1) // 2"), ("e % 3", "3"), ("e // 3 * 2 + 1", "E"), ("2 * e", "2 * E")])
def test_values_and_keys_at_computed_columns(subscript, size, generator):
    """Lanes behind the last column, or the last term of a score, read nothing behind the end of a tensor."""
    kernel = attn.compile(f"""
        attention computed(q: f32[M, D], k: f32[N, (D + 1) // 2], v: f32[N, {size}], z: f32[E]) {{
          w[m, n] = softmax[n](sum[d](q[m, d] * k[n, d // 2]))
          out[m, e: E] = sum[n](v[n, {subscript}] * w[m, n]) + z[e]
          return out
        }}""")
    for m, d, e in itertools.product((1, 3, 9), (1, 7, 33), (1, 5, 33)):
        columns = eval(size, {"E": e})
        shapes = (m, d), (37, (d + 1) // 2), (37, columns), (e,)
        given = [beside_unreadable_memory(generator.standard_normal(shape, np.float32)) for shape in shapes]
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), rtol=0, atol=2e-5)


def test_sums_whose_terms_are_all_the_same(generator):
    """Few queries and many: a score of as many equal terms as an index has values."""
    kernel = attn.compile("""
        attention equal(q: f32[M, D], k: f32[N, D], v: f32[N, E], z: f32[C]) {
          w[m, n] = softmax[n](sum[d, c: C](q[m, d] * k[n, d]) + sum[c: C](q[m, 0] * k[n, 0] where m < n + 3))
          out[m, e] = sum[n](w[m, n] * v[n, e]) + z[0]
          return out
        }""")
    for m in (1, 7, 33, 600):
        shapes = (m, 3), (40, 3), (40, 5), (4,)
        check(kernel, *(generator.standard_normal(shape, np.float32) * np.float32(0.3) for shape in shapes))
