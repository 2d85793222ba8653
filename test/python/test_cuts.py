"""Calls that would store much between their steps run in parts (lib/Runtime/Cuts.c): the same numbers, less memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_split import check

import attn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def bilinear():
    return attn.compile((EXAMPLES / "bilinear.attn").read_text(), lazy=True)


@pytest.fixture(scope="module")
def pair_bias():
    return attn.compile((EXAMPLES / "pair_bias.attn").read_text(), lazy=True)


def normal(generator, *shapes):
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("b, m", [(40, 200), (3, 5001), (1, 9001), (2, 9002), (9001, 1)])
def test_of_the_batch_and_of_queries(bilinear, b, m):
    q, k, v, w = normal(np.random.default_rng(b), (b, m, 16), (b, 5, 130), (b, 5, 3), (16, 130))
    assert b * m * 130 * 4 > 3 << 20
    check(bilinear, q / 4, k / 4, v, w / 4)


def test_any_strides(bilinear):
    q, k, v, w = normal(np.random.default_rng(0), (5001, 3, 16), (3, 5, 130), (3, 5, 3), (16, 130))
    check(bilinear, q.transpose(1, 0, 2), k[::-1], np.asfortranarray(v), w[::-1] / 32)


@pytest.mark.parametrize("b, h, m, n", [(2, 8, 700, 301), (1, 70, 129, 130), (1, 3, 64, 5000)])
def test_rows_of_a_bias(pair_bias, b, h, m, n):
    shapes = (b, h, m, 8), (b, h, n, 8), (b, h, n, 5), (m, n, 3), (h, 3), (b, h, m, 5)
    assert h * m * n * 4 > 3 << 20
    check(pair_bias, *normal(np.random.default_rng(h), *shapes))


def test_numbers_do_not_depend_on_threads(bilinear):
    inputs = normal(np.random.default_rng(1), (3, 5001, 16), (3, 50, 130), (3, 50, 3), (16, 130))
    results = []
    for threads in (1, 2):
        attn.set_num_threads(threads)
        results.append(bilinear(*inputs))
    attn.set_num_threads(0)
    np.testing.assert_array_equal(*results)


def test_gradients_of_what_ran_in_parts():
    torch = pytest.importorskip("torch")
    kernel = attn.compile((EXAMPLES / "bilinear.attn").read_text(), lazy=True)
    q, k, v, w = (torch.from_numpy(each / 4).requires_grad_() for each in normal(np.random.default_rng(2), (2, 4001, 16), (2, 5, 130), (2, 5, 3), (16, 130)))
    found = torch.autograd.grad(kernel(q, k, v, w).square().sum(), (q, k, v, w))
    doubles = [each.detach().double().requires_grad_() for each in (q, k, v, w)]
    out = torch.softmax(doubles[0] @ doubles[3] @ doubles[1].mT, -1) @ doubles[2]
    for a, b in zip(found, torch.autograd.grad(out.square().sum(), doubles), strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_memory_does_not_grow():
    """q W of a million queries is 256 MB."""
    program = f"""
import resource, numpy as np, attn
kernel = attn.compile(open({str(EXAMPLES / "bilinear.attn")!r}).read())
def repeated(count):
    return np.broadcast_to(np.linspace(-1, 1, 8, dtype=np.float32), (1, count, 8))
others = np.ones((1, 3, 64), np.float32), np.ones((1, 3, 1), np.float32), np.ones((8, 64), np.float32)
kernel(repeated(2000), *others)
now = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (now * 1024 + (128 << 20),) * 2)
np.testing.assert_allclose(kernel(repeated(1 << 20), *others), 1, rtol=1e-6)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
