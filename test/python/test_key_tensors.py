"""Keys and queries that a statement makes, such as turned ones, are made where they are read (SplitKeys.cpp, TileRows.cpp)."""

import subprocess
import sys

import numpy as np
import pytest
from test_split import check

import attn

MAKERS = {
    "halves": "select(d < D // 2, -{k}[d + D // 2], {k}[d - D // 2]) * table[n, d % (D // 2)] + {k}[d]",
    "neighbours": "select(d % 2 == 0, -{k}[d + 1], {k}[d - 1]) * table[n, d // 2] + {k}[d]",
    "function": "tanh({k}[d]) + {k}[0] * table[n, 0] / 8",
}
READS = {"b, h, n": "q: {t}[B, H, M, D], k: {t}[B, G, N, D], v: {t}[B, G, N, E]",
         "b, n, h": "q: {t}[B, H, M, D], k: {t}[B, N, G, D], v: {t}[B, N, G, E]"}


def source(maker, layout="b, h, n", dtype="f32"):
    """Heads in groups; keys, and what is made of them, in the order of `layout`. Queries are made as keys are."""
    own, shared = layout.replace("h", "g"), layout.replace("h", "h // (H // G)")
    return f"""attention made({READS[layout].format(t=dtype)}, table: f32[N, W], valid: i32[B]) {{
  made[{own}, d]     = {MAKERS[maker].replace("{k}[", f"k[{own}, ")}
  made_q[b, h, m, d] = {MAKERS[maker].replace("{k}[", "q[b, h, m, ").replace("[n, ", "[min(m, N - 1), ")}
  score[b, h, m, n]  = sum[d](made_q[b, h, m, d] * made[{shared}, d]) / sqrt(D) / 4
  weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n < valid[b] and n <= m + N - M)
  out[b, h, m, e]    = sum[n](weight[b, h, m, n] * v[{shared}, e])
  return out
}}"""


def inputs(generator, m, n, d, e, layout="b, h, n", b=2, h=4, g=2):
    def normal(*shape):
        return generator.standard_normal(shape, np.float32)

    keys = {"b, h, n": (b, g, n), "b, n, h": (b, n, g)}[layout]
    table = normal(n, max(d // 2, 1))
    return [normal(b, h, m, d), normal(*keys, d), normal(*keys, e), table, np.array([n, n // 3 + 1][:b], np.int32)]


@pytest.fixture(scope="module", params=list(READS))
def layout(request):
    return request.param


@pytest.fixture(scope="module", params=list(MAKERS))
def kernel(request, layout):
    return attn.compile(source(request.param, layout), lazy=True)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 8, 70, 515])
@pytest.mark.parametrize("n, d, e", [(1, 2, 1), (7, 5, 3), (63, 16, 17), (65, 33, 8), (2001, 64, 64), (1100, 130, 20)])
def test_any_size(kernel, layout, m, n, d, e):
    heads = dict(b=2, h=4, g=2) if m * n < 100000 else dict(b=1, h=2, g=1)
    check(kernel, *inputs(np.random.default_rng(m * n), m, n, d, e, layout, **heads))


def test_is_made_where_it_is_read(kernel):
    plan = kernel.emit("plan")
    assert "split (made made at keys, made_q made at queries)" in plan
    assert "tiled (made_q made at queries)\n" in plan
    assert "not computed: made_q\n" in plan
    assert "not computed: made where M <= " in plan


@pytest.mark.parametrize("maker, sizes", [
    ("halves", {"M": 1}), ("halves", {"M": 3, "D": 64}), ("neighbours", {"M": 1, "D": 6}), ("halves", {"M": 80, "D": 64}),
    ("neighbours", {"M": 33, "D": 7}), ("function", {"M": 2, "D": 40, "E": 24, "H": 4, "G": 2})], ids=str)
def test_sizes_that_are_known(maker, sizes):
    kernel = attn.compile(source(maker), lazy=True, sizes=sizes)
    arrays = inputs(np.random.default_rng(3), sizes["M"], 300, sizes.get("D", 21), sizes.get("E", 9))
    assert ("not computed: made\n" in kernel.emit("plan")) == (sizes["M"] <= 8)
    check(kernel, *arrays)


def test_strides_and_no_keys():
    kernel = attn.compile(source("halves"), lazy=True)
    q, k, v, table, valid = inputs(np.random.default_rng(4), 2, 130, 48, 32)
    turned = [np.asfortranarray(q), k[:, :, ::-1], np.repeat(v, 2, axis=3)[..., ::2], table[:, ::-1], valid]
    check(kernel, *turned)
    assert not kernel(q, k[:, :, :0], v[:, :, :0], table[:0], np.zeros(2, np.int32)).any()


@pytest.mark.parametrize("dtype, tolerance", [("f16", 1e-3), ("bf16", 8e-3), ("f64", 1e-14)])
def test_other_dtypes(dtype, tolerance):
    import torch

    of = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[dtype]
    kernel = attn.compile(source("halves", dtype=dtype).replace("table: f32", "table: f64" if dtype == "f64" else "table: f32"), lazy=True)
    exact = attn.compile(source("halves", dtype="f64").replace("table: f32", "table: f64"), lazy=True)
    for m in (1, 2, 40, 600):
        q, k, v, table, valid = inputs(np.random.default_rng(m), m, 700, 64, 72)
        q, k, v = (torch.from_numpy(each).to(of) for each in (q, k, v))
        table = torch.from_numpy(table).to(torch.float64 if dtype == "f64" else torch.float32)
        found = kernel(q, k, v, table, torch.from_numpy(valid)).double().numpy()
        expected = exact.reference(*(each.double().numpy() for each in (q, k, v, table)), valid)
        assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


OTHERS = attn.compile("""attention others(q: f32[H, M, D], p: f32[H, M, C], k: f32[N, D], c: f32[H, N, C], bias: f32[H, M, N],
                          table: f32[N, D // 2], v: f32[N, E]) {
  turned[n, d]    = k[n, d] + select(d < D // 2, -k[n, d + D // 2], k[n, d - D // 2]) * table[n, d % (D // 2)]
  grown[h, n, i]  = exp(c[h, n, i])
  score[h, m, n]  = (sum[d](q[h, m, d] * turned[n, d]) + max[i](p[h, m, i] + grown[h, n, i]) + bias[h, m, n]) / sqrt(D)
  weight[h, m, n] = softmax[n](score[h, m, n])
  out[h, m, e]    = sum[n](weight[h, m, n] * v[n, e])
  return out
}""")


@pytest.mark.parametrize("h, m", [(1, 1), (3, 1), (2, 3), (5, 9), (2, 100), (1, 530)])
def test_two_of_them_one_of_all_heads_and_one_of_each(h, m):
    generator = np.random.default_rng(h)
    shapes = (h, m, 20), (h, m, 9), (130, 20), (h, 130, 9), (h, m, 130), (130, 10), (130, 33)
    check(OTHERS, *(generator.standard_normal(shape, np.float32) for shape in shapes))


@pytest.mark.parametrize("reader", ["made[b, h // (H // G), n, 0]", "0.0 where made[b, h // (H // G), n, 0] > 0.0"])
def test_not_where_somebody_else_reads_it(reader):
    term, _, condition = reader.partition(" where ")
    text = source("function").replace(" where n <", f" + {term} where {condition or 'true'} and n <")
    kernel = attn.compile(text, lazy=True)
    assert "made at keys" not in kernel.emit("plan")
    check(kernel, *inputs(np.random.default_rng(7), 1, 70, 8, 8))


@pytest.mark.parametrize("queries", [1, 20, 100])
@pytest.mark.parametrize("scale", ["1 / sqrt(D)", "sum[m, d](q[m, d]) / (M * D)", "inverse / 3"])
def test_a_scale_that_is_a_statement(scale, queries):
    """It is read at no row, and ended the compiler."""
    kernel = attn.compile(f"""
        attention scaled(q: f32[M, D], k: f32[N, D], v: f32[N, E], inverse: f32) {{
          scale = {scale}
          out[m, e] = sum[n](softmax[n](sum[d](q[m, d] * k[n, d]) * scale) * v[n, e])
          return out
        }}""")
    generator = np.random.default_rng(queries)
    check(kernel, *(generator.standard_normal(shape, np.float32) for shape in ((queries, 8), (70, 8), (70, 5))), np.float32(1.5))


def test_there_is_no_memory_for_what_is_not_stored():
    """A million keys, of which one row lies in memory; made of all of them they would be 256 MB."""
    program = """
import resource, numpy as np, attn
kernel = attn.compile('''attention made(q: f32[M, D], k: f32[N, D], table: f32[N, D // 2], v: f32[N, E]) {
  turned[n, d] = k[n, d] + select(d < D // 2, -k[n, d + D // 2], k[n, d - D // 2]) * table[n, d % (D // 2)]
  out[m, e]    = sum[n](softmax[n](sum[d](q[m, d] * turned[n, d])) * v[n, e])
  return out
}''')
def repeated(width):
    return np.broadcast_to(np.random.default_rng(width).standard_normal(width, np.float32), (1 << 20, width))
kernel(np.ones((1, 64), np.float32), repeated(64)[:2000], repeated(32)[:2000], repeated(8)[:2000])
now = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (now * 1024 + (128 << 20),) * 2)
out = kernel(np.ones((1, 64), np.float32), repeated(64), repeated(32), repeated(8))
np.testing.assert_allclose(out[0], repeated(8)[0], rtol=1e-5)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
