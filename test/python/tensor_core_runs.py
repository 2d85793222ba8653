"""Runs kernels for tensor cores in the emulator, beside the reference."""

import pytest
import torch
from tensor_core_cases import FEATURES

import attn

# Of a warp each; of warpgroups, two and one; of two, for which a third one copies.
MMA, WGMMA = (), ("--plan=tensor.warpgroups=2", "--plan=tensor.producer=0")
ONE_WARPGROUP, PRODUCER = ("--plan=tensor.warpgroups=1",), (WGMMA[0], "--plan=tensor.producer=1")
KERNELS = {"mma": MMA, "wgmma": WGMMA, "producer": PRODUCER}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
# Relative to the largest number of a row: weights are rounded to the dtype (2^-9, 2^-12), and so is the output.
TOLERANCE = {"bf16": 2e-2, "f16": 3e-3}


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


def run(library, name, feature, kernel, arguments, sizes, seed=0, parts=1, by_maps=True, few=None):
    """The largest error of the outputs."""
    references = expected(kernel, arguments)
    outputs = empty_like(references)
    names = [info.name for info in kernel.outputs]
    library.run(name, arguments | dict(zip(names, outputs)), sizes, seed, parts, by_maps, few)
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
