"""Which chunks of keys a kernel visits, and on which it evaluates the mask, counted by the kernel itself as it runs."""

import re

import attn
import numpy as np
import pytest

D = 8
PARAMETERS = f"q: f32[B, M, {D}], k: f32[B, N, {D}], v: f32[B, N, {D}]"


def counts(mask, sizes, parameters="", **arguments):
    """Visited, masked and all chunks of an attention with this mask; its output is compared with the reference."""
    where = f" where {mask}" if mask else ""
    kernel = attn.compile(
        f"attention f({PARAMETERS}{parameters}) {{\n  w[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]) / sqrt({D}){where})\n"
        "  out[b, m, e] = sum[n](w[b, m, n] * v[b, n, e])\n  return out\n}\n",
        count_chunks=True,
    )
    random = np.random.default_rng(0)
    b, m, n = sizes
    q, k, v = (random.standard_normal((b, length, D)).astype("f") for length in (m, n, n))
    out, chunks = kernel(q, k, v, **arguments)
    plan = re.search(r"(\d+) queries a tile.* (\d+) keys a chunk", kernel.emit("plan"))
    queries, keys = map(int, plan.groups())
    assert chunks[2] == b * -(-m // queries) * -(-n // keys)
    if m * n * b <= 2**22:
        np.testing.assert_allclose(out, kernel.reference(q, k, v, **arguments)[0], atol=4e-6)
    return chunks, queries, keys


def test_a_causal_mask_visits_half_and_masks_the_diagonal():
    chunks, queries, keys = counts("n <= m", (1, 2048, 2048))
    # The chunks that some query of the tile reaches; the diagonal cuts one or two of them.
    last = [min(tile + queries, 2048) - 1 for tile in range(0, 2048, queries)]
    assert chunks[0] == sum(each // keys + 1 for each in last)
    assert 0.5 <= chunks[0] / chunks[2] <= 0.5 + keys / 2048
    assert chunks[1] == sum(each // keys + 1 - (tile + 1) // keys for each, tile in zip(last, range(0, 2048, queries)))


def test_a_causal_mask_with_a_past():
    chunks, queries, keys = counts("n <= m + (N - M)", (1, queries := 64, 4096))
    assert chunks[0] == chunks[2]
    assert chunks[1] <= 2 * (chunks[2] // (4096 // keys))


def test_a_window_of_256_in_8192_visits_a_sixteenth():
    chunks, queries, keys = counts("abs(n - m) < 128", (1, 8192, 8192))
    assert chunks[0] / chunks[2] <= (256 + queries + 2 * keys) / 8192
    causal, queries, keys = counts("n <= m and m - n < 256", (1, 8192, 8192))
    assert causal[0] / causal[2] <= (256 + queries + 2 * keys) / 8192
    if keys == 256:
        assert causal[0] / causal[2] < 1.3 / 16


def test_ragged_lengths_visit_chunks_in_proportion():
    lengths = np.array([0, 1, 300, 2048, 2047, 5000, -3], "i4")
    chunks, queries, keys = counts("n < valid[b]", (7, 100, 2048), ", valid: i32[B]", valid=lengths)
    tiles = -(-100 // queries)
    inside = np.clip(lengths, 0, 2048)
    assert chunks[0] == tiles * sum(-(-inside // keys))
    assert chunks[1] == tiles * sum(inside % keys != 0)


def test_documents_visit_their_own_keys():
    document = np.repeat(np.arange(8), 512).astype("i4")
    start, end = (np.repeat(np.arange(8) * 512 + offset, 512).astype("i4") for offset in (0, 512))
    chunks, queries, keys = counts(
        "n >= start[m] and n < end[m]", (1, 4096, 4096), ", start: i32[M], end: i32[M]", start=start, end=end
    )
    assert chunks[0] / chunks[2] <= (512 + queries + 2 * keys) / 4096
    assert len(document) == 4096


def test_a_prefix_is_visited_by_all_and_the_rest_causally():
    prefix = np.array([700], "i4")
    chunks, queries, keys = counts("n <= m or n < prefix[b]", (1, 2048, 2048), ", prefix: i32[B]", prefix=prefix)
    tiles = range(0, 2048, queries)
    assert chunks[0] == sum(-(-max(700, min(tile + queries, 2048)) // keys) for tile in tiles)
    assert chunks[1] < chunks[0] / 2


def test_keys_that_stand_for_several_tokens_are_visited_causally():
    chunks, queries, keys = counts("4 * n + 7 <= m", (1, 2048, 512))
    last = [min(tile + queries, 2048) - 1 for tile in range(0, 2048, queries)]
    assert chunks[0] == sum(-(-max(0, (row - 3) // 4) // keys) for row in last)
    assert chunks[0] < chunks[2]


@pytest.mark.parametrize("rest", [0, 1])
def test_without_a_mask_only_the_last_chunk_is_compared_with_the_size(rest):
    chunks, queries, keys = counts("", (2, 100, 2048 + rest))
    assert chunks[0] == chunks[2]
    assert chunks[1] == (2 * -(-100 // queries) if rest else 0)


def test_a_mask_that_is_true_is_evaluated_on_no_whole_chunk():
    chunks, *_ = counts("n < valid[b]", (2, 100, 2048), ", valid: i32[B]", valid=np.array([2048, 4000], "i4"))
    assert chunks[0] == chunks[2] and chunks[1] == 0


def test_a_kernel_without_the_option_has_no_count():
    kernel = attn.compile("attention f(x: f32[M, N], v: f32[N, E]) {\n  out[m, e] = sum[n](softmax[n](x[m, n]) * v[n, e])\n  return out\n}\n")
    assert [each.name for each in kernel.outputs] == ["out"]


def test_a_sum_without_softmax_counts_and_evaluates_its_condition_everywhere():
    source = "attention f(x: f32[M, D], y: f32[N, D], v: f32[N, E]) {\n  out[m, e] = sum[n](sigmoid(sum[d](x[m, d] * y[n, d])) * v[n, e] where n <= m)\n  return out\n}\n"
    arrays = [np.ones(shape, "f") for shape in [(1024, 3), (1024, 3), (1024, 5)]]
    out, (visited, masked, all_chunks) = attn.compile(source, count_chunks=True)(*arrays)
    assert visited == masked < all_chunks
    np.testing.assert_array_equal(out, attn.compile(source)(*arrays))


@pytest.mark.parametrize("valid", [9, 70, 255, 301])
def test_equal_scores_have_equal_weights_on_both_sides_of_a_masks_edge(valid):
    # The last of the keys stand in a register tile that is masked, those before in tiles that are not, all in one chunk.
    kernel = attn.compile(
        f"attention f({PARAMETERS}, valid: i32[M]) {{\n"
        "  w[b, m, n] = softmax[n](1005 * sum[d](q[b, m, d] * k[b, n, d]) where n < valid[m])\n"
        "  out[b, m, e] = sum[n](w[b, m, n] * v[b, n, e])\n  return out\n}\n"
    )
    q, k = np.full((1, 600, D), 1, "f"), np.full((1, 320, D), 0.7, "f")
    v = np.repeat(np.arange(320, dtype="f")[None, :, None], D, axis=2)
    out = kernel(q, k, v, valid=np.full(600, valid, "i4"))
    np.testing.assert_allclose(out, np.full_like(out, (valid - 1) / 2), rtol=2e-6)
