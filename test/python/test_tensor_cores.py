"""Attention on tensor cores: the text of `attnc --emit=cuda` against the reference, run by an emulator on the CPU.

Nothing here needs a GPU, and nothing here has run on one. The emulator (lib/CUDA/Emulation.h) has the instructions of
lib/CUDA/Instructions.cuh as the PTX manual describes them; nvcc compiles the same text where it is installed.
"""

import itertools
import re
import shutil
import subprocess

import pytest
import torch
from conftest import EXAMPLES
from emulated import CUDA, Library, emit, split
from tensor_core_cases import CAUSAL, DOT, FEATURES, WIDTHS, Feature

import attn

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
# Relative to the largest number of a row: weights are rounded to the dtype (2^-9, 2^-12), and so is the output.
TOLERANCE = {"bf16": 2e-2, "f16": 3e-3}
# A tile and a part of one; more queries than keys, so that causal masks leave rows empty; one query; one key.
SHAPES = [dict(B=1, H=2, M=70, N=150), dict(B=2, H=2, M=150, N=65), dict(B=1, H=4, M=1, N=260), dict(B=3, H=2, M=33, N=1)]
# Each dtype of each feature has three of the widths, each width comes up with several features.
COMBINATIONS = [
    (feature, dtype, WIDTHS[(3 * number + step) % len(WIDTHS)])
    for number, (feature, dtype) in enumerate(itertools.product(FEATURES, DTYPES))
    for step in range(3)
]
assert len(set(COMBINATIONS)) >= 60


def name_of(feature, dtype, widths):
    return f"{feature}_{dtype}_{widths[0]}_{widths[1]}"


def text_of(feature, dtype, widths, *options):
    source = FEATURES[feature].spec(name_of(feature, dtype, widths), dtype)
    text = emit(source, f"--set=D={widths[0]}", f"--set=E={widths[1]}", *options)
    assert "extern \"C\" __global__" in text, text[-300:]
    return text


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The kernels of a feature, compiled when they are first asked for."""
    folder, made = tmp_path_factory.mktemp("tensor_cores"), {}

    def library(feature, dtype):
        if (feature, dtype) not in made:
            texts = [text_of(*each) for each in COMBINATIONS if each[:2] == (feature, dtype)]
            made[feature, dtype] = Library(folder, f"{feature}_{dtype}", texts)
        return made[feature, dtype]

    return library


def expected(kernel, arguments):
    results = kernel.reference(**arguments)
    return results if isinstance(results, tuple) else (results,)


def empty_like(results):
    """Memory for outputs: NaN, so that what nobody writes is seen."""
    return [torch.full_like(result, float("nan")) for result in results]


def error_of(found, reference):
    """The largest difference relative to the largest number of its row; infinite where infinities or NaN differ."""
    found, reference = (torch.atleast_1d(each.double()) for each in (found, reference))
    if found.shape[-1:] == (0,) or found.numel() == 0:
        return 0.0
    same = torch.isfinite(found) == torch.isfinite(reference)
    odd = ~torch.isfinite(reference)
    if not same.all() or not torch.equal(found[odd], reference[odd]):
        return float("inf")
    found, reference = (torch.where(odd, 0.0, each) for each in (found, reference))
    # Sums of numbers of some size are no more exact than these where they cancel.
    scale = reference.abs().amax(-1, keepdim=True) + reference.abs().mean()
    return ((found - reference).abs() / (scale + 1e-30)).max().item()


def run(library, name, feature, kernel, arguments, sizes, seed=0):
    """The largest error of the outputs."""
    references = expected(kernel, arguments)
    outputs = empty_like(references)
    names = [info.name for info in kernel.outputs]
    library.run(name, arguments | dict(zip(names, outputs)), sizes, seed)
    return max(error_of(found, reference) for found, reference in zip(outputs, references))


@pytest.fixture(scope="module")
def kernels():
    """The references of a feature, for any widths."""
    made = {}

    def kernel(feature, dtype):
        if (feature, dtype) not in made:
            made[feature, dtype] = attn.compile(FEATURES[feature].spec(feature, dtype))
        return made[feature, dtype]

    return kernel


@pytest.mark.parametrize("feature, dtype, widths", COMBINATIONS)
def test_equals_the_reference(feature, dtype, widths, libraries, kernels):
    torch.manual_seed(20)
    number = COMBINATIONS.index((feature, dtype, widths))
    for turn, shape in enumerate((SHAPES[0], SHAPES[1 + number % 3])):
        sizes = FEATURES[feature].sizes_of(shape | dict(D=widths[0], E=widths[1]))
        arguments = FEATURES[feature].arguments(sizes, DTYPES[dtype])
        name, kernel = name_of(feature, dtype, widths), kernels(feature, dtype)
        error = run(libraries(feature, dtype), name, feature, kernel, arguments, sizes, seed=(number + turn) % 4)
        assert error <= TOLERANCE[dtype], f"{sizes}: {error}"
