"""Kernels on disk: a second process takes what the first compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import attn
kernel = attn.compile("attention twice(x: f32[N]) {\\n  y[n] = 2 * x[n]\\n  return y\\n}\\n")
assert kernel(np.float32([1, 2, 3])).tolist() == [2, 4, 6]
"""

TRAINING = """
import torch
import attn
kernel = attn.compile("attention squares(x: f32[N]) {\\n  y[n] = x[n] * x[n]\\n  return y\\n}\\n", lazy=True)
x = torch.ones(3, requires_grad=True)
kernel(x).sum().backward()
assert x.grad.tolist() == [2, 2, 2]
"""

LAZY = """
import numpy as np
import attn
source = '''attention plain(q: f32[M, D], k: f32[N, D], v: f32[N, D]) {{
  weight[m, n] = softmax[n](sum[d](q[m, d] * k[n, d]))
  out[m, d]    = sum[n](weight[m, n] * v[n, d])
  return out
}}
'''
kernel = attn.compile(source, lazy=True)
q, k = np.zeros(({queries}, 8), np.float32), np.ones((30, 8), np.float32)
np.testing.assert_allclose(kernel(q, k, k), 1, rtol=1e-6)
"""


def start(folder: Path, program: str = PROGRAM) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "ATTN_CACHE_DIR": str(folder)})


def objects(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if "attn-" in path.name]


def test_a_second_process_finds_the_kernel(tmp_path):
    assert start(tmp_path).wait() == 0
    before = {path: path.stat().st_mtime_ns for path in objects(tmp_path)}
    assert len(before) == 2  # a table and a function
    assert start(tmp_path).wait() == 0
    assert {path: path.stat().st_mtime_ns for path in objects(tmp_path)} == before


@pytest.mark.parametrize("part", [0, 1])
def test_a_damaged_part_is_compiled_again(tmp_path, part):
    assert start(tmp_path).wait() == 0
    stored = sorted(objects(tmp_path))[part]
    whole = stored.read_bytes()
    stored.write_bytes(whole[: len(whole) // 2])
    assert start(tmp_path).wait() == 0
    assert stored.read_bytes() == whole


def test_other_sizes_add_what_they_need(tmp_path):
    assert start(tmp_path, LAZY.format(queries=1)).wait() == 0
    few = set(objects(tmp_path))
    assert start(tmp_path, LAZY.format(queries=100)).wait() == 0
    both = set(objects(tmp_path))
    assert few < both
    assert start(tmp_path, LAZY.format(queries=2)).wait() == 0  # with the functions of the first
    assert set(objects(tmp_path)) == both


def test_processes_share_a_folder(tmp_path):
    processes = [start(tmp_path) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert len(objects(tmp_path)) == 2


def test_of_a_lazy_kernel_whose_gradients_are_computed_nothing_else_is_compiled(tmp_path):
    pytest.importorskip("torch")
    assert start(tmp_path, TRAINING).wait() == 0
    assert len(objects(tmp_path)) == 4  # tables and functions of the forward and the backward kernel


@pytest.mark.parametrize("folder", ["", "relative"])
def test_a_cache_folder_that_is_not_absolute_is_not_set(tmp_path, folder):
    """As the XDG Base Directory Specification says: what is loaded never lies where the process happens to be."""
    environment = {**os.environ, "XDG_CACHE_HOME": folder, "HOME": str(tmp_path / "home")}
    del environment["ATTN_CACHE_DIR"]
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=work, check=True)
    assert not list(work.iterdir())
    assert len(objects(tmp_path / "home" / ".cache" / "attn")) == 2
