"""Plans whose sizes are set, or come from a tuning database, compute the same numbers."""

import functools
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import attn

SPEC = """attention heads(q: f32[B, H, M, D], k: f32[B, G, N, D], v: f32[B, G, N, E], bias: f32[M, N], valid: i32[B]) {
  score[b, h, m, n] = sum[d](q[b, h, m, d] * k[b, h // (H // G), n, d]) / sqrt(D) + bias[m, n]
  weight[b, h, m, n] = softmax[n](score[b, h, m, n] where n < valid[b] and n <= m + N - M)
  out[b, h, m, e] = sum[n](weight[b, h, m, n] * v[b, h // (H // G), n, e])
  return out
}
"""


def attnc(*arguments: str) -> str:
    return subprocess.run([Path(os.environ["ATTN_BUILD"]) / "bin/attnc", *arguments], check=True, capture_output=True, text=True).stdout


def settings() -> list[tuple[str, int]]:
    """The least and the largest value of each size of a plan."""
    found = []
    for line in attnc("--plan=help").splitlines():
        name, *values = [word for word in line.split() if word.isdigit() or "." in word]
        found += [(name, int(values[0])), (name, int(values[-1]))]
    return found


def inputs(queries: int) -> list[np.ndarray]:
    generator = np.random.default_rng(queries)
    shapes = (2, 4, queries, 33), (2, 2, 301, 33), (2, 2, 301, 70), (queries, 301)
    return [generator.standard_normal(shape, np.float32) for shape in shapes] + [np.array([301, 77], np.int32)]


@functools.cache
def reference(queries: int) -> np.ndarray:
    return attn.compile(SPEC).reference(*inputs(queries))


@pytest.mark.parametrize("name, value", settings())
def test_every_setting_gives_the_same_numbers(name, value):
    kernel = attn.compile(SPEC, plan={name: value})
    for queries in (1, 40) if name.startswith(("split", "narrow")) else (40, 530):
        arrays, expected = inputs(queries), reference(queries)
        scale = np.abs(expected).max(-1, keepdims=True)
        worst = np.abs(kernel(*arrays) - expected) / np.where(scale == 0, 1, scale)
        assert worst.max() < 4e-6, (name, value, queries)


@pytest.mark.parametrize("queries", [1, 7, 65])  # split, narrow and tiled
@pytest.mark.parametrize("needed", [False, True], ids=["reader", "needed"])
def test_a_log_sum_exp_that_is_read_before_the_sum(queries, needed):
    kernel = attn.compile(f"""attention early(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {{
  score[m, n]  = sum[d](q[m, d] * k[n, d])
  lse[m]       = logsumexp[n](score[m, n])
  half[m]      = lse[m] / 2
  weight[m, n] = softmax[n](score[m, n])
  out[m, e]    = sum[n](weight[m, n] * {"half[m] * " if needed else ""}v[n, e])
  return out, half
}}
""")
    generator = np.random.default_rng(queries)
    arrays = [generator.standard_normal(shape, np.float32) for shape in ((queries, 7), (63, 7), (63, 33))]
    for found, expected in zip(kernel(*arrays), kernel.reference(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_settings_are_part_of_the_plan_that_is_printed():
    assert "512 keys a chunk" in attn.compile(SPEC, plan={"tile.chunk": 512}).emit("plan")
    with pytest.raises(attn.CompileError, match="a plan's tile.chunk is one of 64, 128, 256, 512, 1024, but was given 7"):
        attn.compile(SPEC, plan={"tile.chunk": 7})


PLAIN = """attention plain(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
  weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]))
  out[m, e] = sum[n](weight[m, n] * v[n, e])
  return out
}
"""


def test_a_database_that_changes_is_read_again(tmp_path, monkeypatch):
    spec, database = tmp_path / "spec.attn", tmp_path / "tuning.yaml"
    spec.write_text("attention total(x: f32[N, M]) {\n  y[n] = sum[m](x[n, m])\n  return y\n}\n", encoding="utf-8")
    attnc("tune", str(spec), "--shape=N=64,M=64", f"--database={database}")
    plain = tmp_path / "plain.attn"
    plain.write_text(PLAIN, encoding="utf-8")
    attnc("tune", str(plain), "--set=M=1", "--shape=N=300,D=16,E=16", "--threads=1", f"--database={database}")
    text = re.sub(r"\n +[a-z]+\.[a-z_]+: +\d+", "", database.read_text(encoding="utf-8"))  # the settings that were found
    assert text.count("machine:") == 2
    monkeypatch.setenv("ATTN_TUNING_DB", str(database))
    for chunk in (128, 512):
        lines = [f"  settings: {{ split.chunk: {chunk} }}" if "settings:" in line else line for line in text.splitlines()]
        database.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert f"split: {chunk} keys a chunk" in attn.compile(PLAIN, sizes={"M": 1}).emit("plan")


FUNCTIONS = """attention functions(a: f32[B, M, U], b: f32[B, N, U], w: f32[U], v: f32[B, N, E]) {
  energy[i, m, n] = sum[u](w[u] * tanh(a[i, m, u] + b[i, n, u] + w[u]))
  gate[i, m, n] = sum[u](w[u] * sigmoid(b[i, n, u] - a[i, m, u]))
  weight[i, m, n] = softmax[n](energy[i, m, n] + gate[i, m, n])
  out[i, m, e] = sum[n](weight[i, m, n] * v[i, n, e])
  return out, gate
}
"""


@pytest.fixture(scope="module")
def functions():
    kernel = attn.compile(FUNCTIONS)
    assert "_query_factor where M <= 1" in kernel.emit("plan")
    return kernel


@pytest.mark.parametrize("keys", [1, 2, 3, 70])
@pytest.mark.parametrize("queries", [1, 2, 3, 70])
def test_factors_that_few_rows_share_are_not_needed(queries, keys, functions):
    """Neither where the factors are in range, nor beyond, where a query's and a key's parts may cancel."""
    generator = np.random.default_rng(queries * 100 + keys)
    for magnitude in (1, 50, 1e8):
        shapes = (3, queries, 9), (3, keys, 9), (9,), (3, keys, 20)
        arrays = [generator.standard_normal(shape, np.float32) for shape in shapes]
        arrays[:2] = [np.float32(magnitude) * part for part in arrays[:2]]
        if magnitude > 50:
            arrays[1][:] = -arrays[0][:, :1]
        for found, expected in zip(functions(*arrays), functions.reference(*arrays)):
            scale = np.abs(expected).max()  # A row of equal keys has one sum, whose terms may cancel.
            worst = np.abs(found - expected) / np.where(scale == 0, 1, scale)
            assert worst.max() < 1e-5, (magnitude, worst.max())


@pytest.mark.parametrize("queries", [1, 8, 9, 15, 16, 17, 63, 64, 65])
def test_a_score_that_some_rows_do_not_read(queries):
    """Only the rows from the fourth on need the products of queries and keys."""
    kernel = attn.compile("""attention chosen(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
      score[m, n]  = sum[d](q[m, d] * k[n, d])
      weight[m, n] = softmax[n](select(m > 3, score[m, n], -1.0))
      out[m, e]    = sum[n](weight[m, n] * v[n, e])
      return out
    }""")
    generator = np.random.default_rng(queries)
    inputs = [generator.standard_normal(shape, dtype=np.float32) for shape in ((queries, 16), (300, 16), (300, 17))]
    np.testing.assert_allclose(kernel(*inputs), kernel.reference(*inputs), rtol=0, atol=4e-6)
