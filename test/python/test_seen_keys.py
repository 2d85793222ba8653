"""Masks of data: the keys that no row of a tile, of few rows or of a block sees are found when a call runs, and left out."""

import itertools
import re

import attn
import numpy as np
import pytest
from oracle.memory import beside_unreadable_memory

MASKS = {
    "given": ("see: bool[M, N]", "see[m, n]"),
    "given for heads": ("see: bool[B, H, M, N]", "see[b, h, m, n]"),
    "padding": ("keep: bool[B, N]", "keep[b, n]"),
    "documents": ("row: i32[B, M], of: i32[B, N]", "row[b, m] == of[b, n]"),
    "causal documents": ("row: i32[B, M], of: i32[B, N]", "n <= m and row[b, m] == of[b, n]"),
    "a sink and documents": ("row: i32[B, M], of: i32[B, N]", "n < 3 or row[b, m] == of[b, n]"),
    "blocks of 16": ("table: bool[X, Y]", "table[m // 16, n // 16]"),
    "blocks of 48": ("table: bool[X, Y]", "table[m // 48, n // 48]"),
    "groups of keys": ("table: bool[H, Y], group: i32", "table[h, n // 32] and m // group == n // group"),
}
SHAPES = [(1, 1), (1, 63), (5, 64), (8, 65), (2, 2001), (7, 5), (65, 63), (100, 257), (130, 2001), (600, 15), (0, 5), (5, 0)]


def source(parameters, mask):
    return (
        f"attention f(q: f32[B, H, M, D], k: f32[B, H, N, D], v: f32[B, H, N, E], {parameters}) {{\n"
        f"  w[b, h, m, n] = softmax[n](sum[d](q[b, h, m, d] * k[b, h, n, d]) where {mask})\n"
        "  out[b, h, m, e] = sum[n](w[b, h, m, n] * v[b, h, n, e])\n  return out\n}\n"
    )


def draw(random, parameters, m, n, density):
    """Arguments for `parameters`: bits of some density, documents of some length."""
    sizes = {"B": 2, "H": 2, "M": m, "N": n, "X": -(-m // 16) + 1, "Y": -(-n // 16) + 1}
    arguments = {}
    for name, dtype, shape in re.findall(r"(\w+): (\w+)(?:\[([^\]]*)\])?", parameters):
        extents = [sizes[size] for size in shape.split(", ")] if shape else []
        if dtype == "bool":
            arguments[name] = random.random(extents) < density
        elif extents:
            arguments[name] = (np.arange(extents[1])[None] // (1 + int(300 * density)) + np.arange(extents[0])[:, None]).astype("i4")
        else:
            arguments[name] = 1 + int(400 * density)
    return arguments


@pytest.mark.parametrize("name", MASKS)
def test_outputs_are_those_of_the_reference(name):
    parameters, mask = MASKS[name]
    kernel, random = attn.compile(source(parameters, mask)), np.random.default_rng(0)
    assert f"keys of w: visited {'0 <= n < m + 1' if 'causal' in name else '0 <= n < N'} from the first to the last seen" in kernel.emit("plan")
    for m, n in SHAPES:
        for density in (0.0, 0.02, 0.5, 1.0):
            q, k, v = (random.standard_normal((2, 2, length, width)).astype("f") for length, width in ((m, 9), (n, 9), (n, 7)))
            arguments = draw(random, parameters, m, n, density)
            expected = kernel.reference(q, k, v, **arguments)
            for begins in (False, True):
                given = {
                    name: beside_unreadable_memory(value, begins) if isinstance(value, np.ndarray) else value for name, value in arguments.items()
                }
                np.testing.assert_allclose(kernel(q, k, v, **given), expected, atol=4e-6, err_msg=f"{m} {n} {density}")


@pytest.mark.parametrize("name", MASKS)
def test_gradients_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    parameters, mask = MASKS[name]
    kernel, random = attn.compile(source(parameters, mask)), np.random.default_rng(1)
    rows = attn.compile(f"attention f({parameters}, x: f32[B, H, M, N]) {{\n  seen[b, h, m, n] = x[b, h, m, n] > 0 and {mask}\n  return seen\n}}\n")
    for m, n in [(1, 70), (7, 5), (65, 63), (130, 500)]:
        for density in (0.0, 0.05, 0.6):
            q, k, v = (torch.randn(2, 2, length, width, requires_grad=True) for length, width in ((m, 9), (n, 9), (n, 7)))
            arguments = draw(random, parameters, m, n, density)
            see = torch.from_numpy(rows(**arguments, x=np.ones((2, 2, m, n), "f")))
            scores = (q.double() @ k.double().mT).masked_fill(~see, -1e300)
            expected = torch.where(see, scores.softmax(-1), 0.0) @ v.double()
            out, given = kernel(q, k, v, **arguments), torch.randn(2, 2, m, 7)
            for found, right in zip(torch.autograd.grad(out, (q, k, v), given), torch.autograd.grad(expected, (q, k, v), given.double())):
                np.testing.assert_allclose(found, right, atol=2e-5, err_msg=f"{m} {n} {density}")


def visited(mask, parameters, rows, **arguments):
    """Chunks that a kernel visits, and those with a key that some row of a tile sees."""
    kernel = attn.compile(source(parameters, mask), count_chunks=True)
    m, n = rows.shape
    q, k, v = (np.ones((1, 1, length, 3), "f") for length in (m, n, n))
    _, chunks = kernel(q, k, v, **arguments)
    queries, keys = map(int, re.search(r"(\d+) queries a tile.* (\d+) keys a chunk", kernel.emit("plan")).groups())
    tiles = [rows[row : row + queries, key : key + keys] for row in range(0, m, queries) for key in range(0, n, keys)]
    return chunks[0], sum(tile.any() for tile in tiles), len(tiles)


def test_chunks_of_other_documents_are_not_visited():
    document = (np.arange(4000) // 300).astype("i4")
    see = document[:, None] == document[None]
    found, right, all_chunks = visited("row[m] == of[n]", "row: i32[M], of: i32[N]", see, row=document, of=document)
    assert found == right < all_chunks / 4


@pytest.mark.parametrize("n", [2048, 2001])
def test_chunks_that_a_given_mask_rules_out_are_not_visited(n):
    see = np.zeros((1000, n), bool)
    see[3, 7] = see[500, n - 1] = see[999, 900] = True
    found, right, _ = visited("see[m, n]", "see: bool[M, N]", see, see=see)
    assert found == right == 3


def test_chunks_between_a_sink_and_a_window_are_not_visited():
    m = np.arange(4096)
    see = (m[None] <= m[:, None]) & ((m[None] < 4) | (m[:, None] - m[None] < 256))
    found, right, all_chunks = visited("n <= m and (n < 4 or m - n < 256)", "x: f32", see, x=0.0)
    assert found == right < all_chunks / 4


@pytest.mark.parametrize(
    "parameters, mask",
    [
        ("x: f32[M, N]", "sum[d](q[b, h, m, d] * k[b, h, n, d]) > x[m, n]"),  # a mask of scores
        ("x: f32[M, N]", "exp(x[m, n]) > 2"),
        ("at: i32[N], x: bool[N]", "x[at[n]]"),
        ("step: i32", "(m - n) % step == 0"),
        ("x: f32", "(m - n) % 4 == 0"),
        ("start: i32[M]", "n >= start[m]"),
    ],
)
def test_no_key_is_looked_for_where_that_takes_long_or_the_text_says_all(parameters, mask):
    assert "seen" not in attn.compile(source(parameters, mask)).emit("plan")


def test_the_first_seen_key_is_in_the_first_chunk():
    """Cheap scores have spans of many chunks; what subscripts divide is kept for the keys of a chunk."""
    kernel = attn.compile(
        "attention f(keep: bool[M, L * S], factor: f32[M, L * S], v: f32[S, E]) {\n"
        "  w[m, n] = softmax[n](1.0 where keep[m, n])\n"
        "  out[m, e] = sum[n](w[m, n] * v[n % S, e] * factor[m, n])\n  return out\n}\n"
    )
    random = np.random.default_rng(5)
    for m, first in itertools.product((1, 2, 9), (0, 255, 256, 259, 520, 700)):
        keep = np.zeros((m, 711), bool)
        keep[0, first], keep[-1, first + 10] = True, True
        arguments = {"keep": keep, "factor": random.standard_normal((m, 711)).astype("f"), "v": random.standard_normal((79, 3)).astype("f")}
        np.testing.assert_allclose(kernel(**arguments), kernel.reference(**arguments), rtol=0, atol=2e-6)
